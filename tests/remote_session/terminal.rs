//! A real terminal here and one on the host: keys, sizes, and the shell's terminal afterwards.

use crate::losses::ssh_of;
use crate::rig::{eventually, kill};
use crate::sshd::World;
use crate::tmux::{self, Tmux};

/// The command line of a session on the host, and then what the terminal is like.
fn in_terminal(world: &World, agent: &str) -> String {
    let agent = world.rig.write_program("agent", agent);
    let command = world.start(&[], &[agent.to_str().unwrap()]);
    let script = tmux::script(&world.rig, &command);
    format!("{script}; echo status=$?; stty -a | grep -o '[ -]icanon' | tr -d ' '")
}

/// Keys go to the agent as they are, the window's size follows, and the terminal is the shell's again.
#[test]
fn an_agent_on_a_host_has_the_terminal() {
    let world = World::new();
    let tmux = Tmux::start(&world.rig);
    tmux.line(&in_terminal(&world, tmux::AGENT));
    tmux.wait_for("ready-31x91");
    tmux.key("C-c");
    tmux.wait_for("caught 1");
    tmux.key("C-c");
    tmux.wait_for("caught 2");
    tmux.run(&["resize-window", "-t", "t", "-x", "77", "-y", "25"]);
    tmux.wait_for("size 25x77");
    tmux.line("a word");
    tmux.wait_for("read a word");
    tmux.wait_for("status=5");
    tmux.wait_for("icanon");
}

/// While no link works Ctrl-C is ours: it ends the session here, and the terminal is the shell's again.
#[test]
fn ctrl_c_without_a_link_ends_the_session() {
    let mut world = World::new();
    let agent = "#!/bin/sh\ntrap '' INT\necho ready\nexec sleep 1000\n";
    let tmux = Tmux::start(&world.rig);
    world.lease("20s");
    tmux.line(&in_terminal(&world, agent));
    tmux.wait_for("ready");
    let owner = i32::try_from(world.rig.list()[0]["pid"].as_i64().unwrap()).unwrap();
    world.stop_sshd();
    kill("KILL", ssh_of(owner).unwrap());
    tmux.wait_for("link to gpu1 lost, reconnecting …");
    tmux.key("C-c");
    // How many seconds the lease has left.
    tmux.wait_for(" s");
    let screen = tmux.run(&["capture-pane", "-p", "-t", "t"]);
    assert!(screen.contains("gpu1 cannot be reached"), "{screen}");
    tmux.key("C-c");
    tmux.wait_for("status=130");
    tmux.wait_for("icanon");
    world.start_sshd();
    let session = world.rig.session();
    eventually("the end there", || {
        let done = world.rig.labproxy(&["session", "stop", &session]);
        (done.code == Some(0)).then_some(())
    });
}
