//! The shim as an SDK starts it, with programs of this machine in place of those on a host.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

mod ends;
mod rig;
mod streams;
