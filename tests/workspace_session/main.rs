//! Sessions on a host with a workspace: the real program, a real sshd on loopback, scripted agents.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::string_slice,
    clippy::as_conversions,
    dead_code,
    missing_docs,
    reason = "test code, which shares the world of the session tests"
)]

mod control;
mod deaths;
mod disks;
mod ends;
mod gate;
mod place;
#[path = "../session/rig.rs"]
mod rig;
#[path = "../support/sshd.rs"]
#[allow(unreachable_pub, reason = "shared with tests of other crates")]
mod server;
#[path = "../support/small_disk.rs"]
mod small_disk;
#[path = "../remote_session/sshd.rs"]
mod sshd;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
mod starts;
mod steps;
#[path = "../session/subscriber.rs"]
mod subscriber;
