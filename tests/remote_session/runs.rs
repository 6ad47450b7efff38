//! Sessions on a host that go well, and agents there that do not.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::rig::{KEY, Running, eventually, finish, is_alive};
use crate::sshd::{HOST, World};

/// The agent's call is metered here, its streams and status are its own, one line says where it runs,
/// and the host confirms that nothing is left. The key is nowhere there.
#[test]
fn an_agent_on_a_host_is_as_if_it_were_local() {
    let world = World::new();
    let call = world.rig.path("call").display().to_string();
    let script = format!("cat; echo err >&2; {call} hi >status; cat status; env >env; exit 7");
    let mut running = Running::of(&mut world.start(&[], &["sh", "-c", &script]));
    running.say("input");
    running.close_stdin();
    let done = running.finish();
    assert_eq!(done.code, Some(7), "{done:?}");
    assert_eq!(done.stdout, "input\n200");
    let me = rustix::process::geteuid().as_raw();
    let name = Command::new("id").arg("-un").output().unwrap().stdout;
    let name = String::from_utf8(name).unwrap();
    let bare = format!(
        "bare: agent runs as {} (uid {me}) on {HOST}\n",
        name.trim_end()
    );
    assert!(done.stderr.contains(&bare), "{done:?}");
    assert!(done.stderr.contains("\nerr\n"), "{done:?}");
    assert!(
        done.stderr
            .contains("nothing of the session is left on gpu1")
    );
    assert_eq!(world.rig.arrived(), 1);
    let session = world.rig.session();
    let listed = world.rig.list();
    assert_eq!(listed[0]["host"], HOST);
    let shown = world.rig.show(&session);
    assert_eq!(shown["end_reason"], "agent_exit");
    assert_eq!(shown["agent"]["host"], HOST);
    let env = std::fs::read_to_string(world.there(&session).join("workspace/env")).unwrap();
    assert!(env.contains("ANTHROPIC_API_KEY=lp-"), "{env}");
    assert!(!env.contains(KEY));
    assert_eq!(world.rig.files_with_key(), Vec::<std::path::PathBuf>::new());
}

/// An agent that is not there, or cannot be run, is named with the status that a shell gives.
#[test]
fn an_agent_that_is_missing_on_the_host_is_named() {
    let world = World::new();
    let plain = world.rig.path("plain");
    std::fs::write(&plain, "").unwrap();
    let plain = plain.display().to_string();
    for (agent, code) in [("no-such-agent", 127), (&plain, 126)] {
        let done = finish(&mut world.start(&[], &[agent]));
        assert_eq!(done.code, Some(code), "{done:?}");
        let named = done.stderr.lines().any(|line| {
            line.starts_with("error: ") && line.contains(agent) && line.contains("on gpu1")
        });
        assert!(named, "{done:?}");
    }
    let done = finish(&mut world.start(&[], &[]));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("there is no agent to run on gpu1"));
}

/// An agent that fails at once shows what it wrote, and whether it came as far as the proxy; the log
/// tells how long each step took.
#[test]
fn tb16_tb17_an_early_failure_is_told_and_each_phase_is_in_the_log() {
    let world = World::new();
    let done = finish(&mut world.start(&[], &["sh", "-c", "echo no login >&2; exit 1"]));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("no login\n"), "{done:?}");
    let told = "the agent on gpu1 ended with status 1 before it made a request; \
                the proxy was never contacted";
    assert!(done.stderr.contains(told), "{done:?}");
    let session = world.rig.session();
    let log = world.rig.path("state/labproxy/sessions").join(session);
    let log = std::fs::read_to_string(log.join("log")).unwrap();
    let mut rest = log.as_str();
    for phase in ["connect", "put", "attach", "forward", "first byte"] {
        let at = rest.find(&format!("\"phase\":\"{phase}\""));
        rest = &rest[at.unwrap_or_else(|| panic!("{phase} is not in {log}"))..];
    }
    assert!(log.contains("\"timestamp\""), "{log}");
}

/// A host that was never reached, or whose directory cannot be used, holds nothing of the session: it
/// has ended, and can be discarded.
#[test]
fn a_session_that_was_never_begun_there_can_be_discarded() {
    let mut world = World::new();
    let workdir = world.rig.path("there");
    std::fs::write(&workdir, "no directory").unwrap();
    never_begun(&world, "gpu1 cannot be used");
    world.stop_sshd();
    never_begun(&world, "there is no link to gpu1");
}

fn never_begun(world: &World, why: &str) {
    let done = finish(&mut world.start(&[], &["true"]));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains(why), "{done:?}");
    assert!(
        done.stderr.contains("nothing was begun on gpu1"),
        "{done:?}"
    );
    let session = world.rig.session();
    assert_eq!(world.rig.list()[0]["state"], "ended");
    let done = world.rig.labproxy(&["session", "discard", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(world.rig.list().is_empty());
}

/// A stop ends what the agent started and is confirmed by the host; one that cannot be confirmed is a
/// failure, and is asked again.
#[test]
fn tb19_a_stop_is_confirmed_or_fails() {
    let mut world = World::new();
    let script = "setsid sleep 1000 & echo $! >left; wait";
    let session = world.detached(&[], &["sh", "-c", script]);
    let left = world.number(&session, "left");
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .contains("nothing of the session is left on gpu1")
    );
    assert!(!is_alive(left));

    let session = world.detached(&[], &["sh", "-c", script]);
    let left = world.number(&session, "left");
    let listed = world.rig.list();
    let owner = listed[1]["pid"].as_i64().unwrap();
    world.stop_sshd();
    crate::rig::kill("KILL", i32::try_from(owner).unwrap());
    eventually("the owner's end", || {
        (world.rig.list()[1]["state"] == "interrupted").then_some(())
    });
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("cannot confirm"), "{done:?}");
    assert!(is_alive(left));
    assert_eq!(world.rig.list()[1]["state"], "unconfirmed");
    world.start_sshd();
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    eventually("the end", || (!is_alive(left)).then_some(()));
    assert_eq!(world.rig.list()[1]["state"], "ended");
}

/// `… | head -1`: the agent hears that nobody reads any more, and ends as it would here.
#[test]
fn a_reader_that_leaves_ends_the_agent() {
    let world = World::new();
    let mut child = world
        .start(&[], &["yes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "y\n");
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(141), "{done:?}");
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(
        told.contains("nothing of the session is left on gpu1"),
        "{told}"
    );
}

/// Nobody sees what a detached agent writes: its last words stand in the session's own error file.
#[test]
fn tb16_a_detached_agent_that_fails_early_is_quoted() {
    let world = World::new();
    let script =
        "head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; printf 'no \\033[31mlogin' >&2; exit 1";
    let session = world.detached(&[], &["sh", "-c", script]);
    eventually("the end", || {
        (world.rig.list()[0]["state"] == "ended").then_some(())
    });
    let directory = world.rig.path("state/labproxy/sessions").join(session);
    let told = std::fs::read_to_string(directory.join("labproxy.err")).unwrap();
    let (_, words) = told.split_once("the proxy was never contacted\n").unwrap();
    let quoted = format!("labproxy: the end of {}/agent.err:\n", directory.display());
    let words = words.strip_prefix(&quoted).unwrap();
    assert!(words.starts_with('x'));
    assert!(words.contains("\nno \\x1b[31mlogin\n"));
    assert!(words.find("login").unwrap() < 4_200);
}

/// A session goes on where its files are, without being told again, and nowhere else.
#[test]
fn a_resumed_session_is_on_its_host_again() {
    let world = World::new();
    let done = finish(&mut world.start(&[], &["sh", "-c", "echo work >file"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = world.rig.session();
    let url = world.rig.standin.url();
    let credential = format!("env:{}", crate::rig::KEY_VARIABLE);
    let resume = |host: &[&str]| {
        let resume = ["session", "resume", &session, "--upstream", &url];
        let agent = ["--credential", &credential, "--", "cat", "file"];
        world.rig.labproxy(&[&resume, host, &agent].concat())
    };
    let done = resume(&[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "work");
    assert!(done.stderr.contains("on gpu1, as before"), "{done:?}");
    let done = resume(&["--host", "gpu2"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("has its files on gpu1"), "{done:?}");
    assert!(done.stderr.contains("leave --host out"), "{done:?}");
}
