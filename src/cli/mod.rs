//! The command line: what can be asked, and who answers.

pub mod config;
mod context;
pub mod ledger;
pub mod pricing;
pub mod session;

pub use context::Context;

use clap::{Args, Parser, Subcommand};

use crate::report::{Exit, Failure, Output};

/// Runs coding agents under a hard cap, with exact bills and no key of yours in their hands.
#[derive(Debug, Parser)]
#[command(
    name = "labproxy",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct GlobalArgs {
    /// Read FILE in place of ./labproxy.toml, with full powers.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Say more on stderr; twice for debugging.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// How messages on stderr are written.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub log_format: LogFormat,
}

/// How messages on stderr are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Short lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What labproxy can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an agent under a cap, and look after running sessions
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Show, check and compare prices, and price a response
    #[command(subcommand)]
    Pricing(pricing::PricingCommand),
    /// Read, export and verify what was held and charged
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Show the configuration and where each value came from
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Does what the command line asks.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: Command, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        Command::Session(command) => session::run(command, ctx, out),
        Command::Pricing(command) => pricing::run(command, ctx, out),
        Command::Ledger(command) => ledger::run(command, ctx, out),
        Command::Config(command) => config::run(command, ctx, out),
    }
}
