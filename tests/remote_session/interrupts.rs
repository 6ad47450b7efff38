//! Sessions that are told to end before their agent runs.

use std::time::Duration;

use crate::rig::{Done, Running, eventually, is_alive};
use crate::sshd::World;

/// Between the moments at which a start is interrupted; it takes about half a second.
const STEP: Duration = Duration::from_millis(60);

/// The end is told as what it is: by its status, and without processes that no agent left.
fn assert_interrupted(world: &World, done: &Done) {
    assert_eq!(done.code, Some(129), "{done:?}");
    for wrong in ["cannot confirm", "left running"] {
        assert!(!done.stderr.contains(wrong), "{done:?}");
    }
    let listed = world.rig.list();
    assert_eq!(listed[0]["state"], "ended", "{done:?}");
    let session = listed[0]["session"].as_str().unwrap();
    assert!(!world.rig.sockets(session).exists(), "{done:?}");
}

/// Starts a session, and waits until it is one.
fn begun(world: &World) -> Running {
    let running = Running::of(&mut world.start(&[], &["sleep", "1000"]));
    eventually("the session", || {
        let sockets = std::fs::read_dir(world.rig.path("run/labproxy")).ok()?;
        let mut live = sockets.filter(|entry| {
            let directory = entry.as_ref().unwrap().path();
            directory.join("control.sock").exists()
        });
        live.next().map(drop)
    });
    running
}

/// What ssh started to reach the host is gone with it, and is nothing that an agent left.
#[test]
fn a_signal_while_ssh_connects_ends_ssh_and_what_it_started() {
    let world = World::new();
    let path = world.rig.path("ssh/ssh_config");
    let pid = world.rig.path("pid");
    let config = std::fs::read_to_string(&path).unwrap();
    let command = format!("sh -c 'echo $$ >{}; exec sleep 1000'", pid.display());
    std::fs::write(&path, format!("{config}  ProxyCommand {command}\n")).unwrap();
    let running = begun(&world);
    let way: i32 = eventually("the way to the host", || {
        let text = std::fs::read_to_string(&pid).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    });
    running.signal("HUP");
    let done = running.finish();
    assert!(!is_alive(way));
    assert!(
        done.stderr.contains("nothing was begun on gpu1"),
        "{done:?}"
    );
    assert_interrupted(&world, &done);
}

/// Whatever the start is at, the session ends, and its host confirms it.
#[test]
fn a_signal_at_any_moment_of_a_start_ends_the_session() {
    for step in 0..10 {
        let world = World::new();
        let running = begun(&world);
        std::thread::sleep(STEP * step);
        running.signal("HUP");
        assert_interrupted(&world, &running.finish());
    }
}
