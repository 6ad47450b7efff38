//! The proxy end to end: real loopback clients, a scripted upstream, a real ledger.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    unreachable_pub,
    reason = "test code"
)]

mod access;
mod bytes;
mod cap;
mod clients;
mod connections;
mod floods;
mod framing;
mod joined;
mod memory;
mod order;
mod outcomes;
mod rig;
mod secrets;
mod shutdown;
#[path = "../support/upstream.rs"]
mod upstream;
#[path = "../support/upstream_h2.rs"]
mod upstream_h2;
