//! The forwarder of the host side as a real process, between clients and a socket that stands for
//! the link's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

#[path = "../support/host_program.rs"]
mod host_program;
mod rig;

mod ahead;
mod ends;
mod load;
mod peers;
mod probes;
mod waiting;
