//! What the provider charges: the price book and the bill of one response.

pub mod bill;
pub mod book;

pub use bill::{Bill, BillLine, ChargeTerms, Flag, bill};
pub use book::{Band, HoldRates, PriceBook, PriceRow, PricingDigest, Rates, Unpriced, WriteBound};
