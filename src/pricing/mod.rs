//! What the provider charges: the price book and the bill of one response.

pub mod bill;
pub mod book;
mod fields;
mod file;
mod hold;
mod records;
mod render;

pub use bill::{Bill, BillLine, ChargeTerms, Flag, bill};
pub use book::{
    Band, CLOCK_BEHIND_DAYS, PRICE_SKEW, PriceBook, PriceRow, PricingDigest, PricingProblem, Rates,
    STALE_AFTER_DAYS, Staleness, Unpriced,
};
pub use hold::{HoldRates, WriteBound};
