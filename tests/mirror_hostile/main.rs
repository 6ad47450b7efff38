//! The other end of a mirror in an attacker's hands: what it may say, and what becomes of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod contents;
mod deltas;
#[path = "../support/finished.rs"]
mod finished;
mod glances;
mod host;
mod listings;
mod messages;
mod mutations;
mod oracle;
mod pushes;
mod world;
