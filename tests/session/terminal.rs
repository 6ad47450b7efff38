//! A real terminal: Ctrl-C reaches the agent once, Ctrl-Z and fg work, the window's size is shared.

use crate::rig::Rig;
use crate::tmux::{self, Tmux};

/// The command line for a shell in the terminal.
fn in_terminal(rig: &Rig, agent: &str) -> String {
    let agent = rig.write_program("agent", agent);
    let receipt = rig.path("receipt.json").display().to_string();
    let command = rig.start(&["--receipt", &receipt], &[agent.to_str().unwrap()]);
    tmux::script(rig, &command)
}

/// Ctrl-C goes to the agent once and does not end labproxy; the agent goes on and ends by itself.
#[test]
fn t39_ctrl_c_is_the_agents() {
    let rig = Rig::new();
    let tmux = Tmux::start(&rig);
    let script = in_terminal(&rig, tmux::AGENT);
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
