//! How a mirror's other end is reached, and with whose rights: real servers, users of their own.
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

#[path = "../tunnel/rig.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest")]
mod host;
mod privileges;
#[path = "../mirror_commands/rig.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest")]
mod rig;
