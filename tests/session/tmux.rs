//! A real terminal: a tmux of a test's own, and what is typed into it.

use std::process::Command;

use crate::rig::{LOOK_EVERY, PATIENCE, Rig};

/// What is known of its terminal an agent tells: `ready-31x91`, `caught 1`, `size 25x77`, `read LINE`.
pub(crate) const AGENT: &str = include_str!("terminal_agent.py");

/// A tmux server of this test's own.
pub(crate) struct Tmux {
    socket: String,
}

impl Tmux {
    pub(crate) fn start(rig: &Rig) -> Self {
        let tmux = Self {
            socket: rig.path("tmux").display().to_string(),
        };
        tmux.run(&["new-session", "-d", "-s", "t", "-x", "91", "-y", "31", "sh"]);
        tmux
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket, "-f", "/dev/null"])
            .args(arguments)
            // Cargo's own variables would be taken for settings of labproxy.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("LANG", "C.UTF-8")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn line(&self, text: &str) {
        self.run(&["send-keys", "-t", "t", "-l", text]);
        self.run(&["send-keys", "-t", "t", "Enter"]);
    }

    pub(crate) fn key(&self, key: &str) {
        self.run(&["send-keys", "-t", "t", key]);
    }

    /// Waits for a line that ends so.
    pub(crate) fn wait_for(&self, text: &str) {
        let mut last = String::new();
        let begun = std::time::Instant::now();
        while !last.lines().any(|line| line.trim().ends_with(text)) {
            assert!(begun.elapsed() < PATIENCE, "'{text}' did not come:\n{last}");
            std::thread::sleep(LOOK_EVERY);
            last = self.run(&["capture-pane", "-p", "-t", "t"]);
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// A command with its environment as a script, for a shell in a terminal.
pub(crate) fn script(rig: &Rig, command: &Command) -> String {
    let exports = command.get_envs().filter_map(|(name, value)| {
        Some(format!("export {}='{}'", name.display(), value?.display()))
    });
    let program = format!("exec '{}'", command.get_program().display());
    let arguments = command.get_args().map(|one| format!("'{}'", one.display()));
    let words: Vec<_> = std::iter::once(program).chain(arguments).collect();
    let lines: Vec<_> = std::iter::once("#!/bin/sh".to_owned())
        .chain(exports)
        .chain([
            format!("cd '{}'", rig.path("work").display()),
            words.join(" "),
        ])
        .collect();
    let script = lines.join("\n");
    rig.write_program("in-terminal", &format!("{script}\n"))
        .display()
        .to_string()
}
