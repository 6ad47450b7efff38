//! The way to a host over a real sshd: connections, what a host may do to them, the helper's way
//! there, and what is left afterwards.
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

mod configuration;
mod deaths;
mod deploys;
mod host_check;
mod keys;
mod links;
mod rig;
mod shells;
