//! The shim of a real session over a real sshd, with a scripted CLI in place of Claude Code.
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

mod arguments;
mod canary;
mod launches;
mod others;
mod programs;
mod rig;
#[path = "../tunnel/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod sshd;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
