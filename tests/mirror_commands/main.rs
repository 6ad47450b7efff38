//! `labproxy mirror` from outside: the real program, a user of its own, two directories.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::zombie_processes,
    clippy::print_stderr,
    dead_code,
    missing_docs,
    reason = "test code"
)]

mod abroad;
mod brakes;
mod copy_in;
mod differential;
mod disk;
mod host;
mod hostile;
mod kills;
mod large;
mod model;
mod rig;
mod rsync;
#[path = "../support/sshd.rs"]
#[allow(unreachable_pub, reason = "shared with tests of other crates")]
mod server;
mod store;
mod surface;
mod terminal;
mod trees;
mod watch;
