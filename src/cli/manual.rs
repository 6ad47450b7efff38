//! What is generated from the command line itself: completion scripts and manual pages.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory as _};

use super::Cli;
use crate::config::key::did_you_mean;
use crate::report::{Exit, Failure, Output};

pub(super) const COMPLETION_EXAMPLES: &str = "\
Examples:
  labproxy completions bash > ~/.local/share/bash-completion/completions/labproxy
  labproxy completions zsh  > ~/.zfunc/_labproxy
  labproxy completions fish > ~/.config/fish/completions/labproxy.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  labproxy man | man -l -
  labproxy man session start | man -l -
  labproxy man --dir ~/.local/share/man/man1";

/// Which manual page.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command whose page is printed, such as `session start`
    command: Vec<String>,
    /// Write the pages of all commands into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// The command line without the commands that labproxy starts itself with.
fn visible() -> Command {
    let whole = Cli::command();
    let inner = whole.get_subcommands().filter(|inner| !inner.is_hide_set());
    let mut visible = Command::new("labproxy")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments())
        .subcommands(inner);
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        visible = visible.long_about(about.clone());
    }
    if let Some(help) = whole.get_after_long_help() {
        visible = visible.after_long_help(help.clone());
    }
    visible
}

/// Prints a completion script.
pub(super) fn completions(shell: clap_complete::Shell, out: &mut Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "labproxy", &mut script);
    out.raw(&script)?;
    Ok(Exit::SUCCESS)
}

/// Prints a manual page, or writes all of them.
pub(super) fn man(arguments: &ManArgs, out: &mut Output) -> Result<Exit, Failure> {
    if let Some(directory) = &arguments.dir {
        let failed = |error: std::io::Error| {
            let shown = directory.display();
            Failure::because(format!("cannot write manual pages into {shown}"), &error)
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        clap_mangen::generate_to(visible(), directory).map_err(failed)?;
        return Ok(Exit::SUCCESS);
    }
    let mut command = visible();
    // Gives every command its whole name and the options of all commands.
    command.build();
    let mut page = &command;
    for word in &arguments.command {
        page = page.find_subcommand(word).ok_or_else(|| {
            let known = page.get_subcommands().map(Command::get_name);
            let like = did_you_mean(word, known);
            Failure::usage(format!("there is no command '{word}'{like}"))
        })?;
    }
    let name = page.get_display_name().unwrap_or("labproxy").to_owned();
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone().name(name))
        .render(&mut text)
        .map_err(|error| Failure::because("the page cannot be made", &error))?;
    out.raw(&text)?;
    Ok(Exit::SUCCESS)
}
