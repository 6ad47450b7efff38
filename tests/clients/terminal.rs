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
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
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

/// A shell in a terminal of 100 by 30, in the workspace, with labproxy's environment.
fn shell<'a>(rig: &Rig, socket: &'a Path) -> Tmux<'a> {
    let tmux = Tmux { socket };
    let folder = rig.path("workspace").canonicalize().unwrap();
    let folder = folder.display().to_string();
    let variables: Vec<String> = rig
        .environment()
        .into_iter()
        .filter(|(name, _)| *name != "TERM")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut words = vec!["new-session", "-d", "-s", "t", "-x", "100", "-y", "30"];
    words.extend(["-c", &folder, "env", "-i", "TERM=screen-256color"]);
    words.extend(variables.iter().map(String::as_str));
    words.extend(["bash", "--norc", "--noprofile", "-i"]);
    tmux.command(&words);
    tmux.keys(&["PS1='READY '", "Enter"]);
    tmux.wait("prompt", at_prompt);
    tmux
}

/// What the first start would ask is answered beforehand: the theme, and whether to trust the
/// folder.
fn answer_first_questions(rig: &Rig) {
    let folder = rig.path("workspace").canonicalize().unwrap();
    let answered = serde_json::json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        "projects": {folder.display().to_string(): {"hasTrustDialogAccepted": true}},
    });
    rig.write("home/.claude.json", &answered.to_string());
}

/// The shell waits for a command.
fn at_prompt(screen: &str) -> bool {
    let last = screen.trim_end().lines().last();
    last.is_some_and(|line| line.trim_end() == "READY")
}

/// The CLI waits for input: its field stands near the bottom.
fn at_input(screen: &str) -> bool {
    let mut bottom = screen.trim_end().lines().rev().take(12);
    bottom.any(|line| line.contains('❯'))
}

/// Starts the interactive CLI in a session and waits until it can be typed into.
fn start_cli(rig: &Rig, tmux: &Tmux<'_>) {
    let words = rig.arguments("2").join(" ");
    let labproxy = env!("CARGO_BIN_EXE_labproxy");
    let start = format!("{labproxy} {words} -- {}", claude());
    tmux.keys(&[&start, "Enter"]);
    tmux.wait("input field", at_input);
}

/// Ctrl-C twice: the CLI ends, and the shell is there again.
fn leave(tmux: &Tmux<'_>) {
    tmux.keys(&["C-c"]);
    tmux.wait("question", |screen| {
        screen.to_lowercase().contains("again to exit")
    });
    tmux.keys(&["C-c"]);
    tmux.wait("shell", at_prompt);
}

/// The interactive CLI works as without labproxy: a turn, another window size, Ctrl-Z and `fg`,
/// and Ctrl-C twice ends it, with a receipt.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_interactive_cli_works_in_a_terminal() {
    let rig = Rig::new();
    answer_first_questions(&rig);
    let socket = rig.path("tmux.sock");
    let tmux = shell(&rig, &socket);

    start_cli(&rig, &tmux);
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
    tmux.wait("stopped job", |screen| {
        screen.contains("Stopped") && at_prompt(screen)
    });
    tmux.keys(&["fg", "Enter"]);
    tmux.wait("the CLI again", |screen| {
        at_input(screen) && !at_prompt(screen)
    });

    leave(&tmux);
    let receipt = rig.receipt();
    assert_eq!(
        receipt["spent_pico_usd"],
        rig.served().pico_usd,
        "{receipt:#}"
    );
    assert_eq!(receipt["end_reason"], "agent_exit", "{receipt:#}");
}

/// Esc in the middle of an answer: the CLI goes on, and the answer that nobody waits for any more is
/// read to its end and charged by what the provider says.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn d01_an_interrupted_answer_is_read_on_and_charged() {
    let rig = Rig::new();
    answer_first_questions(&rig);
    let socket = rig.path("tmux.sock");
    let tmux = shell(&rig, &socket);
    start_cli(&rig, &tmux);
    tmux.keys(&["-l", "Go on. [[scenario: slow 200]]"]);
    tmux.wait("typed text", |screen| screen.contains("slow 200"));
    tmux.keys(&["Enter"]);
    tmux.wait("first words", |screen| screen.contains("All of this"));
    tmux.keys(&["Escape"]);
    tmux.wait("interruption", |screen| screen.contains("Interrupted"));
    leave(&tmux);
    let receipt = rig.receipt();
    let request = &receipt["requests"][0];
    assert_eq!(request["client_gone"], true, "{receipt:#}");
    assert_eq!(request["outcome"], "settled", "{receipt:#}");
    assert_eq!(
        receipt["spent_pico_usd"],
        rig.served().pico_usd,
        "{receipt:#}"
    );
}
