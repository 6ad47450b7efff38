//! Real ssh over a network that can be cut, between two network namespaces of this machine. Needs
//! root, as namespaces do; without it nothing is tried, and each test says so.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

#[path = "../support/host_program.rs"]
mod host_program;
#[path = "../support/netpair.rs"]
mod netpair;
#[path = "../support/sshd.rs"]
mod sshd;

mod cable;
mod forward;
mod rig;
mod session;
mod world;
