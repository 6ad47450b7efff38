//! The command line from outside: the real program in a home directory of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

mod configuration;
mod generated;
mod hostile;
mod hosts;
mod status;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a command line left behind.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// A user with a home and a working directory of their own, and nothing in the environment.
struct User {
    root: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["home/.config/labproxy", "work", "run"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        Self { root }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.root.path().join(inside)
    }

    fn user_config(&self) -> PathBuf {
        self.path("home/.config/labproxy/config.toml")
    }

    /// Writes the user's own file.
    fn configure(&self, text: &str) {
        std::fs::write(self.user_config(), text).unwrap();
    }

    /// Writes the working directory's file.
    fn work_file(&self, text: &str) {
        std::fs::write(self.path("work/labproxy.toml"), text).unwrap();
    }

    fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_labproxy")));
        command
            .args(words)
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line of words without spaces.
    fn run(&self, line: &str) -> Ran {
        ran(self.command(line.split_whitespace()))
    }
}

fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().expect("it ended by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
