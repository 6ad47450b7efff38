//! Real clients through a real `labproxy session start`, against the stand-in upstream: nothing of
//! labproxy is replaced here.
//!
//! They need the pinned clients that `make clients` installs, so a plain `cargo test` leaves them
//! out by name.
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

mod agents;
mod audits;
mod claude;
mod hooks;
mod refusals;
mod rig;
mod sdks;
#[path = "../tunnel/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod sshd;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
mod terminal;
