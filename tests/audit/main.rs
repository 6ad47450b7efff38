//! Audits: a real tool in a real sandbox on a copy of a generation, and what the ledger says of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    dead_code,
    missing_docs,
    reason = "test code"
)]

mod changes;
mod history;
mod limits;
mod policy;
mod rig;
mod sandbox;
mod tools;
