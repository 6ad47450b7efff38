//! A real terminal: Ctrl-C reaches the agent once, Ctrl-Z and fg work, the window's size is shared.

use std::process::Command;

use crate::rig::{LOOK_EVERY, PATIENCE, Rig};

/// A tmux server of this test's own.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn start(rig: &Rig) -> Self {
        let tmux = Self {
            socket: rig.path("tmux").display().to_string(),
        };
        tmux.run(&["new-session", "-d", "-s", "t", "-x", "91", "-y", "31", "sh"]);
        tmux
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket, "-f", "/dev/null"])
            .args(arguments)
            .env("LANG", "C.UTF-8")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn line(&self, text: &str) {
        self.run(&["send-keys", "-t", "t", "-l", text]);
        self.run(&["send-keys", "-t", "t", "Enter"]);
    }

    fn key(&self, key: &str) {
        self.run(&["send-keys", "-t", "t", key]);
    }

    fn wait_for(&self, text: &str) {
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

/// The command line for a shell in the terminal, as a script of its own.
fn in_terminal(rig: &Rig, agent: &str) -> String {
    let agent = rig.write_program("agent", agent);
    let receipt = rig.path("receipt.json").display().to_string();
    let command = rig.start(&["--receipt", &receipt], &[agent.to_str().unwrap()]);
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

/// Ctrl-C goes to the agent once and does not end labproxy; the agent goes on and ends by itself.
#[test]
fn t39_ctrl_c_is_the_agents() {
    let rig = Rig::new();
    let agent = "#!/bin/bash\ncount=0\ntrap 'count=$((count+1)); echo \"caught $count\"' INT\n\
                 echo ready-$(stty size | tr ' ' x)\nuntil read -t 0.1 line; do :; done\nexit 5\n";
    let tmux = Tmux::start(&rig);
    let script = in_terminal(&rig, agent);
    tmux.line(&format!("{script}; echo status=$?"));
    tmux.wait_for("ready-31x91");
    tmux.key("C-c");
    tmux.wait_for("caught 1");
    tmux.key("C-c");
    tmux.wait_for("caught 2");
    tmux.line("end");
    tmux.wait_for("status=5");
    assert_eq!(rig.receipt()["end_reason"], "agent_exit");
}

/// Ctrl-Z stops both and gives the shell back, fg continues both; also when the agent stops itself
/// alone, as a full-screen program does.
#[test]
fn ctrl_z_stops_both_and_fg_continues_both() {
    for agent in [
        "#!/bin/sh\necho ready\nread line\necho \"went on with $line\"\n",
        "#!/bin/sh\necho ready\nkill -STOP $$\nread line\necho \"went on with $line\"\n",
    ] {
        let rig = Rig::new();
        let tmux = Tmux::start(&rig);
        let script = in_terminal(&rig, agent);
        tmux.line(&script);
        tmux.wait_for("ready");
        if !agent.contains("STOP") {
            tmux.key("C-z");
        }
        tmux.line("echo shell-$((40+2))");
        tmux.wait_for("shell-42");
        tmux.line("fg; echo status=$?");
        tmux.line("word");
        tmux.wait_for("went on with word");
        tmux.wait_for("status=0");
        assert_eq!(rig.receipt()["agent"]["exit_code"], 0);
    }
}

/// An agent that dies with the terminal in raw mode leaves it as it was.
#[test]
fn a_killed_agents_raw_mode_is_undone() {
    let rig = Rig::new();
    let tmux = Tmux::start(&rig);
    let script = in_terminal(&rig, "#!/bin/sh\nstty raw -echo\nkill -KILL $$\n");
    tmux.line(&format!(
        "{script}; echo status=$?; stty -a | grep -o '[ -]icanon' | tr -d ' '"
    ));
    tmux.wait_for("status=137");
    tmux.wait_for("icanon");
}
