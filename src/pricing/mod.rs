//! What the provider charges: the price book and the bill of one response.

pub mod bill;
pub mod book;
mod fields;
mod file;
mod hold;
pub mod litellm;
mod records;
mod render;

pub use bill::{Bill, BillLine, ChargeTerms, Flag, bill};
pub(crate) use book::utc_day;
pub use book::{
    Band, CLOCK_BEHIND_DAYS, PRICE_SKEW, PriceBook, PriceRow, PricingDigest, PricingProblem, Rates,
    STALE_AFTER_DAYS, Staleness, Unpriced,
};
pub use hold::{HoldRates, WriteBound};
pub(crate) use render::{per_million, write_rows};
