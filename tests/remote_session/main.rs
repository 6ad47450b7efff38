//! Sessions on a host from outside: the real program, a real sshd on loopback, the stand-in upstream.
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
    reason = "test code, which shares the world of the session tests"
)]

mod bulk;
mod fallback;
mod interrupts;
mod losses;
#[path = "../session/rig.rs"]
mod rig;
mod runs;
#[path = "../support/sshd.rs"]
#[allow(unreachable_pub, reason = "shared with tests of other crates")]
mod server;
mod sshd;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
mod starts;
mod terminal;
#[path = "../session/tmux.rs"]
mod tmux;
mod together;
mod unreached;
