//! The command line: what can be asked, and who answers.

pub mod audit;
pub mod config;
mod context;
mod examples;
pub mod hardening;
pub mod host;
pub mod ledger;
pub mod logging;
mod manual;
pub mod mirror;
pub mod pricing;
pub mod session;
mod words;

pub use context::{Context, style_of};
pub use words::job_of;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::child::{EXEC_COMMAND, PROGRAM_AT, become_program};
use crate::escape::{escape, escape_line};
use crate::mirror::rsync::shell::{self as rsync_shell, SHELL_COMMAND};
use crate::report::{self, Exit, Failure, Output};
use crate::session::detach::{self, DETACHED_COMMAND};
use crate::session::shim::{self, SHIM_COMMAND};

const EXAMPLES: &str = "\
Examples:
  labproxy session start --cap 2 -- claude -p \"fix the failing test\"
                                run an agent that can spend two dollars at most
  labproxy session start --cap 2
                                print what to export for an agent of your own
  labproxy host check gpu1      try each step of the way to a remote machine
  labproxy session list         see what runs and what it has spent
  labproxy audit run -- pytest  let a sandboxed tool look at what the agent made
  labproxy pricing show         see the prices that bills are made from
  labproxy config show          see every setting and where it comes from

Exit status:
  with a program to run (after --), that program's own; 125 when labproxy itself
  failed, 126 when the program is not executable, 127 when it was not found;
  without one, 0, or 1 when it failed, or 2 when the command line or the
  configuration is wrong";

/// Runs coding agents under a hard cap, with exact bills and no key of yours in their hands
///
/// labproxy stands between an agent and the provider's API. The agent gets a worthless placeholder
/// key; labproxy swaps it for the real one, lets through only what it can price, prices every
/// answer to the last digit, and never lets a session spend more than its cap.
#[derive(Debug, Parser)]
#[command(
    name = "labproxy",
    version,
    arg_required_else_help = true,
    after_long_help = EXAMPLES
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
#[command(next_help_heading = "Options of every command")]
pub struct GlobalArgs {
    /// Read FILE in place of ./labproxy.toml
    ///
    /// A file that is named here may set everything; ./labproxy.toml in the working directory may
    /// only make things stricter.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more on stderr; twice for debugging
    ///
    /// The variable `LABPROXY_LOG` says it in more detail: `debug`, or `labproxy::proxy=trace`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// How messages on stderr are written
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
    /// Short lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// What labproxy can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an agent under a cap, and look after running sessions
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Check the way to a remote machine
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Keep a directory here and one on a remote machine the same
    #[command(subcommand)]
    Mirror(mirror::MirrorCommand),
    /// Let a tool look at what an agent made, and keep what it said
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Show, check and compare prices, and price a response
    #[command(subcommand)]
    Pricing(pricing::PricingCommand),
    /// Read, export and verify what was held and charged
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Show the configuration and where each value came from
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = manual::COMPLETION_EXAMPLES)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(manual::ManArgs),
    /// Become a program that ends with this process's parent
    #[command(name = EXEC_COMMAND, hide = true)]
    BecomeChild {
        /// The parent, two settings, the program, its argv.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Be the agent's CLI for an SDK: the session's socket, then the CLI's arguments
    #[command(name = SHIM_COMMAND, hide = true)]
    Shim {
        /// The socket, the arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Stand for ssh before an rsync of ours: a socket, then what ssh would get
    #[command(name = SHELL_COMMAND, hide = true)]
    RsyncShell {
        /// The socket, the words.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a session that another process hands over on stdin
    #[command(name = DETACHED_COMMAND, hide = true)]
    Detached,
}

/// What to do about a wrong command line where clap does not know it: a program without `--`.
pub fn tip(error: &clap::Error) -> Option<String> {
    let of = |kind| error.get(kind).map(ToString::to_string);
    let argument = of(ContextKind::InvalidArg)?;
    let usage = of(ContextKind::Usage)?;
    let what = if usage.contains("[-- <AGENT>...]") {
        "agent"
    } else if usage.contains("<TOOL>...") {
        "tool"
    } else {
        return None;
    };
    let is_program = error.kind() == ErrorKind::UnknownArgument && !argument.starts_with('-');
    is_program.then(|| {
        let argument = escape_line(&argument);
        format!("the {what} and its arguments stand after '--', as in '-- {argument}'")
    })
}

/// Does what the command line asks.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: Command, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let done = match command {
        Command::Completions { shell } => return manual::completions(shell, out),
        Command::Man(arguments) => return manual::man(&arguments, out),
        Command::BecomeChild { arguments } => return Ok(become_child(&arguments)),
        Command::Shim { arguments } => {
            return Ok(shim::client::run(&arguments, &ctx.environment().all()));
        }
        Command::RsyncShell { arguments } => {
            let led = rsync_shell::run(&arguments);
            return led
                .map(|()| Exit::SUCCESS)
                .map_err(|error| Failure::because("rsync's way is closed", &error));
        }
        Command::Detached => return detached(ctx),
        // The command that mends a refused file must not be told off for it.
        Command::Config(command @ config::ConfigCommand::Trust { .. }) => {
            return config::run(command, ctx, out);
        }
        Command::Config(command) => config::run(command, ctx, out),
        Command::Session(command) => session::run(command, ctx, out),
        Command::Host(command) => host::run(command, ctx, out),
        Command::Mirror(command) => mirror::run(command, ctx, out),
        Command::Audit(command) => audit::run(command, ctx, out),
        Command::Pricing(command) => pricing::run(command, ctx, out),
        Command::Ledger(command) => ledger::run(command, ctx, out),
    };
    ctx.warn_unless_config_was_read();
    done
}

/// Becomes a program; returns only when that is impossible.
fn become_child(arguments: &[OsString]) -> Exit {
    let (status, why) = become_program(arguments);
    let program = arguments.get(PROGRAM_AT).map(OsString::as_os_str);
    report::tell(&format!(
        "labproxy: cannot run '{}': {why}\n",
        escape(program.unwrap_or_default().as_encoded_bytes())
    ));
    Exit(status)
}

/// Runs the command that was handed over, as whoever handed it over would have.
fn detached(ctx: &Context) -> Result<Exit, Failure> {
    let handover = detach::receive()?;
    let cli = Cli::try_parse_from(&handover.arguments)
        .map_err(|error| Failure::because("the handover holds no command", &error))?;
    let ctx = ctx.handed_over(cli.global, handover.environment, handover.core);
    match cli.command {
        Command::Session(command) => session::run_detached(handover.session, command, &ctx),
        _ => Err(Failure::usage("only a session can be detached")),
    }
}
