//! `labproxy pricing`.

mod catalog;
mod map;
mod quote;

use clap::Subcommand;

use super::Context;
use crate::pricing::{PriceBook, PricingProblem};
use crate::report::{Exit, Failure, Output};

/// What `labproxy pricing` can do.
#[derive(Debug, Subcommand)]
pub enum PricingCommand {
    /// Show the prices in force, or every row of one model
    Show(catalog::ShowArgs),
    /// Check a price file, and whether its prices are recent
    Check(catalog::CheckArgs),
    /// Price a response as the proxy would
    Quote(quote::QuoteArgs),
    /// Turn a LiteLLM price map into a price file on stdout
    Import(map::ImportArgs),
    /// Compare the prices in force with a LiteLLM price map
    Diff(map::DiffArgs),
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: PricingCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        PricingCommand::Show(args) => catalog::show(&args, ctx, out),
        PricingCommand::Check(args) => catalog::check(&args, ctx, out),
        PricingCommand::Quote(args) => quote::run(&args, ctx, out),
        PricingCommand::Import(args) => map::import(&args, ctx, out),
        PricingCommand::Diff(args) => map::diff(&args, ctx, out),
    }
}

/// The prices that the configuration names.
///
/// # Errors
/// What is wrong with the configuration or with the price file.
pub fn configured_book(ctx: &Context) -> Result<PriceBook, Failure> {
    match &ctx.config()?.pricing.file {
        Some(file) => PriceBook::with_file(&file.value),
        None => PriceBook::builtin(),
    }
    .map_err(|problems| unusable(&problems))
}

/// The failure of a price file with these problems.
pub fn unusable(problems: &[PricingProblem]) -> Failure {
    let count = problems.len();
    let things = if count == 1 { "problem" } else { "problems" };
    let failure = Failure::usage(format!("the price file has {count} {things}"));
    problems.iter().fold(failure, |failure, problem| {
        failure.problem(problem.to_string())
    })
}

/// Reads a text file that the user named.
fn read_text(file: &std::path::Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("{} cannot be read", file.display())).caused_by(&error)
    })
}
