//! `labproxy ledger`.

use clap::Subcommand;

use super::Context;
use crate::report::{Exit, Failure, Output};

/// What `labproxy ledger` can do.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: LedgerCommand, _ctx: &Context, _out: &mut Output) -> Result<Exit, Failure> {
    match command {}
}
