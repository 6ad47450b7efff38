//! Hearing of edits, and `labproxy mirror push --watch`.
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
#![cfg(target_os = "linux")]

mod commands;
mod hearing;
#[path = "../mirror_commands/rig.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest")]
mod rig;
