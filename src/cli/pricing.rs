//! `labproxy pricing`.

use clap::Subcommand;

use super::Context;
use crate::report::{Exit, Failure, Output};

/// What `labproxy pricing` can do.
#[derive(Debug, Subcommand)]
pub enum PricingCommand {}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: PricingCommand, _ctx: &Context, _out: &mut Output) -> Result<Exit, Failure> {
    match command {}
}
