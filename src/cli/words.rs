//! Whether a command line names a program to run, known even when the rest of it is wrong.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::Cli;
use crate::report::Job;

/// The commands that run programs.
const RUN_PROGRAMS: [&str; 2] = ["session", "audit"];

/// Whether a command line, the program's own name first, names a program to run: something stands
/// after `--`, and the command is not one that runs none.
///
/// It decides the exit status of a command line that is otherwise wrong, so it looks at words only:
/// a misspelt command with `-- claude` behind it had a program to run.
pub fn job_of(arguments: &[OsString]) -> Job {
    let mut words = arguments.iter().skip(1);
    let before: Vec<&OsString> = words.by_ref().take_while(|word| *word != "--").collect();
    let has_program = words.next().is_some() || names_tool(&before);
    let command = command_word(&before);
    let known = |name: &str| Cli::command().find_subcommand(name).is_some() || name == "help";
    let runs_none = command.is_some_and(|name| !RUN_PROGRAMS.contains(&name) && known(name));
    if has_program && !runs_none {
        Job::Program
    } else {
        Job::Own
    }
}

/// Whether it is an `audit run` of a tool that has a name.
fn names_tool(words: &[&OsString]) -> bool {
    let mut words = words.iter().filter_map(|word| word.to_str());
    if !words.any(|word| word == "audit") || words.next() != Some("run") {
        return false;
    }
    while let Some(word) = words.next() {
        match word {
            // Their values are the next word.
            "--session" | "--timeout" | "--allow-secret" | "--config" | "--log-format" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            _ => return true,
        }
    }
    false
}

/// The first word that is no option of every command.
fn command_word<'a>(words: &[&'a OsString]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            // Their values are the next word.
            Some("--config" | "--log-format") => {
                words.next();
            }
            Some(option) if option.starts_with('-') => {}
            other => return other,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program after `--` makes it the program's job, whatever else is wrong.
    #[test]
    fn a_program_to_run_is_recognised_in_a_wrong_command_line() {
        for (line, job) in [
            ("session start -- claude", Job::Program),
            ("session start --bogus -- claude", Job::Program),
            ("sesion start -- claude", Job::Program),
            ("--config pricing session start -- claude", Job::Program),
            (
                "-v --config=x session resume ses_x -- claude -p x",
                Job::Program,
            ),
            ("session start --receipt ledger -- claude", Job::Program),
            ("audit run --session x -- pytest -q", Job::Program),
            ("audit run --timeout 5m tests", Job::Program),
            ("--config x audit run tests", Job::Program),
            ("audit run --session x", Job::Own),
            ("audit show run", Job::Own),
            ("audit run", Job::Own),
            ("session start", Job::Own),
            ("session start --", Job::Own),
            ("session start --bogus", Job::Own),
            ("pricing show -- model", Job::Own),
            ("--config x pricing show -- model", Job::Own),
            ("", Job::Own),
        ] {
            let line: Vec<OsString> = std::iter::once("labproxy")
                .chain(line.split_whitespace())
                .map(OsString::from)
                .collect();
            assert_eq!(job_of(&line), job, "{line:?}");
        }
    }
}
