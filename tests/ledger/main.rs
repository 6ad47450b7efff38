//! The ledger as other programs, broken disks and killed processes meet it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod bench;
mod ceiling;
mod child;
mod commands;
mod crash;
#[path = "../support/recording_disk.rs"]
mod disk;
mod faults;
mod oracle;
mod order;
mod places;
mod prefixes;
mod receipts;
mod seeds;
mod tamper;
mod versions;
