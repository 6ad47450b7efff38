//! `labproxy config`: what is configured, and from where.

use std::path::PathBuf;

use clap::Subcommand;

use super::Context;
use crate::report::{Exit, Failure, Output};

/// What `labproxy config` can do.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each value and where it came from; never a secret
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Give a working directory's labproxy.toml full powers, as long as it does not change
    Trust {
        /// The file to trust, by the hash of what it holds now.
        file: PathBuf,
    },
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: ConfigCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let _ = (ctx, out);
    match command {
        ConfigCommand::Show { json: _ } => todo!(),
        ConfigCommand::Trust { file: _ } => todo!(),
    }
}
