//! The host side from outside: the real helper as a local process over pipes, with a small client
//! of the protocol in place of a controller.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "test code"
)]

mod client;
mod directories;
mod end;
mod escapes;
#[path = "../support/host_program.rs"]
mod host_program;
mod hostile;
mod kills;
mod links;
mod oracle;
mod rig;
mod run;
mod seeds;
mod start;
mod statuses;
mod streams;
mod sweep;
mod terminal;
mod users;
