//! What is generated from the command line: completions, manual pages, help.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use clap::CommandFactory as _;
use labproxy::cli::Cli;

use super::User;

fn every_command(command: &clap::Command, found: &mut Vec<clap::Command>) {
    if command.is_hide_set() {
        return;
    }
    found.push(command.clone());
    for inner in command.get_subcommands() {
        every_command(inner, found);
    }
}

/// Every command and every option says what it does.
#[test]
fn every_command_and_option_has_help() {
    let mut command = Cli::command();
    command.build();
    let mut all = Vec::new();
    every_command(&command, &mut all);
    for command in all {
        let name = command.get_display_name().unwrap_or("labproxy").to_owned();
        assert!(command.get_about().is_some(), "{name} has no help");
        for argument in command.get_arguments() {
            let id = argument.get_id();
            // A command's help for the `help` command's own word comes from clap.
            assert!(
                argument.get_help().is_some() || id == "subcommand",
                "{name}: {id}"
            );
        }
    }
}

/// Completion scripts come out for the usual shells and know the commands; bash takes its own.
#[test]
fn completions_are_generated() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = user.run(&format!("completions {shell}"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        for word in ["session", "pricing", "ledger", "config", "trust"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
        assert!(
            !ran.stdout.contains("__detached"),
            "{shell}: an internal command"
        );
    }
    let script = user.path("completions.bash");
    std::fs::write(&script, user.run("completions bash").stdout).unwrap();
    let checked = Command::new("bash")
        .arg("-n")
        .arg(&script)
        .status()
        .unwrap();
    assert!(checked.success());
}

/// There is a manual page for every command, printed or written to a directory.
#[test]
fn manual_pages_are_generated() {
    let user = User::new();
    let page = user.run("man");
    assert_eq!((page.code, page.stderr.as_str()), (0, ""));
    assert!(page.stdout.contains(".TH labproxy 1"), "{}", page.stdout);
    let page = user.run("man config trust").stdout;
    assert!(page.contains("labproxy\\-config\\-trust"), "{page}");
    assert!(
        page.contains("labproxy config trust ./labproxy.toml"),
        "{page}"
    );

    let pages = user.path("man1");
    let mut command = user.command(["man", "--dir"]);
    assert!(
        command
            .arg(&pages)
            .stderr(Stdio::inherit())
            .status()
            .unwrap()
            .success()
    );
    let written: BTreeSet<String> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["labproxy.1", "labproxy-config.1", "labproxy-config-show.1"] {
        assert!(written.contains(name), "{written:?}");
    }
    assert!(
        !written.iter().any(|name| name.contains("__")),
        "{written:?}"
    );
}
