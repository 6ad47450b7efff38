//! A session's tunnel against the real program of the host, which runs here and is reached through
//! pipes: what ssh adds is not in it, and every link can be cut at any byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

mod carrier;
mod cuts;
mod ends;
#[path = "../support/host_program.rs"]
mod host_program;
mod phases;
mod rig;
mod streams;
