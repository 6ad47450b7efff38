//! Launches through the shim, the tunnel and sshd.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;

use crate::rig::{World, until};

/// Every exit status is the remote program's own, also to a shell that looks at `$?`, and a signal is a
/// signal.
#[test]
fn tu09_statuses_are_told_apart_through_the_tunnel() {
    let world = World::new();
    let session = world.waiting(&[]);
    for status in [0, 1, 7, 126, 127, 137, 143, 255] {
        let text = format!("exit {status}");
        let output = world.launch(&["run", "sh", "-c", &text]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
    for signal in [9, 15] {
        let text = format!("kill -{signal} $$");
        let output = world.launch(&["run", "sh", "-c", &text]).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    }
    assert_eq!(session.end().code, Some(0));
    assert!(!world.shim().exists());
    world.host.assert_quiet();
}

/// Long lines pass, both ways at once, through all of it.
#[test]
fn tb01_tb02_tu08_long_lines_pass_the_tunnel() {
    let world = World::new();
    let session = world.waiting(&[]);
    for length in [70_000_usize, 10 << 20, 16 << 20] {
        let mut sent = vec![b'x'; length - 1];
        sent.push(b'\n');
        let mut shim = world.launch(&["run", "cat"]).spawn().unwrap();
        let mut stdin = shim.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stdin.write_all(&sent).unwrap();
                drop(stdin);
            });
            let output = shim.wait_with_output().unwrap();
            assert!(output.stdout == sent, "{length}");
        });
    }
    session.end();
}

/// A killed shim takes its whole tree on the host with it, also one that ignores TERM, and the session
/// and its other launches go on.
#[test]
fn tu05_a_killed_shim_leaves_nothing_on_the_host() {
    let world = World::new();
    let session = world.waiting(&[]);
    let mut other = world.launch(&["run", "cat"]).spawn().unwrap();
    let text =
        "trap '' TERM HUP; sleep 7001 & sh -c 'trap \"\" TERM; sleep 7002' & echo ready; wait";
    let mut shim = world.launch(&["run", "sh", "-c", text]).spawn().unwrap();
    let mut ready = [0; 6];
    shim.stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let there = |what: &str| {
        world
            .host
            .processes()
            .iter()
            .any(|line| line.contains(what))
    };
    until("both run", || there("sleep 7001") && there("sleep 7002"));
    shim.kill().unwrap();
    shim.wait().unwrap();
    until("both are gone", || !there("sleep 700"));
    let mut stdin = other.stdin.take().unwrap();
    stdin.write_all(b"still here").unwrap();
    drop(stdin);
    assert_eq!(other.wait_with_output().unwrap().stdout, b"still here");
    session.end();
    world.host.assert_quiet();
}

/// The agent runs here and its CLI there: each is where it should be, and several at once.
#[test]
fn an_agent_here_uses_a_cli_there() {
    let world = World::new();
    let text = "echo here: $(cat /proc/1/comm); for n in 1 2 3; do \
                \"$SHIM\" run sh -c \"echo there $n: \\$(cat /proc/1/comm) \\$(pwd)\" & done; wait";
    let done = world.run(text);
    assert_eq!(done.code, Some(0), "{done:?}");
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert!(!lines[0].contains("sshd"), "{done:?}");
    assert_eq!(lines.len(), 4, "{done:?}");
    for line in &lines[1..] {
        assert!(
            line.contains(": sshd /") && line.ends_with("/workspace"),
            "{done:?}"
        );
    }
    assert!(
        done.stderr
            .contains("bare: agent runs as tbash (uid 30003) on rig"),
        "{done:?}"
    );
    assert!(!world.shim().exists());
    world.host.assert_quiet();
}

/// An SDK that is started elsewhere is refused with both directories.
#[test]
fn a_directory_outside_the_workspace_is_refused() {
    let world = World::new();
    let session = world.waiting(&[]);
    let mut launch = world.launch(&["run", "true"]);
    let output = launch.current_dir("/usr").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("/usr is not inside the workspace"),
        "{stderr}"
    );
    session.end();
}
