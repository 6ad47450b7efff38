//! Prices, bills, usage readers and verdicts, end to end through the public interface.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

mod agreement;
mod file;
mod price;
mod properties;
mod quote;
mod reader;
mod rules;
mod seeds;
mod verdict;
mod worked;
