//! `labproxy audit` from outside: the real program, a real sshd on loopback, a session whose agent
//! worked there.
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

mod changes;
mod disks;
mod looks;
mod named;
mod place;
mod restores;
#[path = "../session/rig.rs"]
mod rig;
mod runs;
#[path = "../support/sshd.rs"]
#[allow(unreachable_pub, reason = "shared with tests of other crates")]
mod server;
#[path = "../support/small_disk.rs"]
mod small_disk;
#[path = "../remote_session/sshd.rs"]
mod sshd;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
