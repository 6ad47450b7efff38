//! `labproxy session`.

use clap::Subcommand;

use super::Context;
use crate::report::{Exit, Failure, Output};

/// What `labproxy session` can do.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: SessionCommand, _ctx: &Context, _out: &mut Output) -> Result<Exit, Failure> {
    match command {}
}
