//! Sessions from outside: the real program, its agents, its signals, its end, on a stand-in
//! upstream. Nothing of labproxy is replaced here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::zombie_processes,
    missing_docs,
    reason = "test code"
)]

mod canary;
mod control;
mod crash;
mod detach;
mod events;
mod idle;
mod resume;
mod rig;
mod signals;
#[path = "../../examples/upstream/standin.rs"]
mod standin;
mod start;
mod statuses;
mod subscriber;
mod terminal;
mod tmux;
mod troubles;
