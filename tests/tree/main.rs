//! Trees on a disk: read by scans while others write in them, and changed by steps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

mod apply;
mod apply_ahead;
mod apply_crash;
mod apply_disk;
mod apply_grouped;
mod apply_instant;
mod apply_kept;
mod apply_plan;
mod apply_race;
mod apply_rewrite;
mod apply_rig;
#[path = "../support/finished.rs"]
mod finished;
mod scan;
