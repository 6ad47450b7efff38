//! The interactive CLI in a real terminal: tmux types, and its screen is read.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::rig::{Rig, claude};

/// A screen that does not show what it should by then is wrong.
const SCREEN_MAX: Duration = Duration::from_mins(1);
/// Between two looks at the screen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A tmux server of this test's own.
struct Tmux<'a> {
    socket: &'a Path,
}

impl Tmux<'_> {
    fn command(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.socket)
            .args(["-f", "/dev/null"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let arguments = [&["send-keys", "-t", "t"], keys].concat();
        self.command(&arguments);
    }

    fn screen(&self) -> String {
        self.command(&["capture-pane", "-p", "-t", "t"])
    }

    /// Waits until the screen is as wanted; returns it.
    fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(start.elapsed() < SCREEN_MAX, "no {what} on:\n{screen}");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}

/// The interactive CLI works as without labproxy: a turn, another window size, Ctrl-Z and `fg`,
/// and Ctrl-C twice ends it, with a receipt on the screen.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_interactive_cli_works_in_a_terminal() {
    let rig = Rig::new();
    // What the first start asks is answered beforehand: the theme, and whether to trust the folder.
    let workspace = rig.path("workspace").canonicalize().unwrap();
    let answered = serde_json::json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        "projects": {workspace.display().to_string(): {"hasTrustDialogAccepted": true}},
    });
    rig.write("home/.claude.json", &answered.to_string());
    let socket = rig.path("tmux.sock");
    let tmux = Tmux { socket: &socket };
    let mut shell = vec![
        "new-session",
        "-d",
        "-s",
        "t",
        "-x",
        "100",
        "-y",
        "30",
        "-c",
    ];
    let folder = workspace.display().to_string();
    let variables: Vec<String> = rig
        .environment()
        .into_iter()
        .filter(|(name, _)| *name != "TERM")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    shell.extend([
        folder.as_str(),
        "env",
        "-i",
        "TERM=screen-256color",
        "PS1=READY ",
    ]);
    shell.extend(variables.iter().map(String::as_str));
    shell.extend(["bash", "--norc", "--noprofile", "-i"]);
    tmux.command(&shell);
    tmux.wait("prompt", |screen| screen.contains("READY"));

    let words = rig.arguments("2").join(" ");
    let start = format!("{} {words} -- {}", env!("CARGO_BIN_EXE_labproxy"), claude());
    tmux.keys(&[&start, "Enter"]);
    tmux.wait("input field", |screen| {
        screen.contains("❯") || screen.contains("> ")
    });
    tmux.keys(&["Say hello."]);
    tmux.wait("typed text", |screen| screen.contains("Say hello."));
    tmux.keys(&["Enter"]);
    tmux.wait("answer", |screen| {
        screen.contains("The stand-in says hello")
    });

    tmux.command(&["resize-window", "-t", "t", "-x", "70", "-y", "24"]);
    tmux.wait("narrow screen", |screen| {
        let widest = screen.lines().map(|line| line.chars().count()).max();
        widest.is_some_and(|widest| widest > 50 && widest <= 70)
    });

    tmux.keys(&["C-z"]);
    tmux.wait("stopped job", |screen| screen.contains("Stopped"));
    tmux.keys(&["fg", "Enter"]);
    tmux.wait("the CLI again", |screen| {
        screen.lines().rev().take(12).any(|line| line.contains('❯'))
    });

    tmux.keys(&["C-c"]);
    tmux.wait("question", |screen| {
        screen.to_lowercase().contains("again to exit")
    });
    tmux.keys(&["C-c"]);
    tmux.wait("shell", |screen| {
        screen
            .trim_end()
            .lines()
            .last()
            .is_some_and(|line| line.trim_end().ends_with("READY"))
    });
    let receipt = rig.receipt();
    assert_eq!(
        receipt["spent_pico_usd"],
        rig.served().pico_usd,
        "{receipt:#}"
    );
    assert_eq!(receipt["end_reason"], "agent_exit", "{receipt:#}");
}
