//! The mirror as hostile trees, broken disks and killed processes meet it: what is moved, what is
//! not, and where to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod corpus;
#[path = "../support/recording_disk.rs"]
mod disk;
mod excludes;
mod held_back;
mod journal;
mod model;
mod places;
mod plan;
mod store;
mod store_crash;
mod store_disk;
mod store_tamper;
mod trees;
