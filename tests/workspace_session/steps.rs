//! Who dies at a step of a session that moves no tree: its beginning, and the agent's work.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::gate::{
    Direction, Victim, gated, held, ledger_holds, money, nothing_is_left, stop_after, work,
};
use crate::place::{here, listed, read, resume, run, world};
use crate::rig::{KEY_VARIABLE, Running, finish, kill};
use crate::sshd::{HOST, World};

/// Bytes of a connection that come before the helper's end: it is larger.
const IN_THE_HELPER: u64 = 300_000;

/// The session that was begun last goes on, its agent in the whole workspace.
fn goes_on(world: &World, session: &str) {
    assert_eq!(work(world, session), "unchanged");
    assert_eq!(money(world, session), (0, 0));
    let script = format!("cat sub/b.txt; echo made >{session}");
    let done = resume(world, session, Some(&script));
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "two"),
        "{done:?}"
    );
    assert!(here(world, session).exists());
    nothing_is_left(world);
    ledger_holds(world);
}

/// labproxy is killed before its ssh has a server, and while it sends its program: nothing runs on the host,
/// nothing was spent, and each session goes on.
#[test]
fn a_controller_that_dies_before_the_host_is_ready_leaves_nothing() {
    let world = gated();
    let mut sessions = Vec::new();
    for bytes in [0, IN_THE_HELPER] {
        stop_after(&world, Direction::Up, bytes);
        let running = Running::of(&mut world.start(&["--workspace", "."], &["touch", "ran"]));
        let held = held(&world);
        held.kill(&world, &running, Victim::Controller);
        assert_eq!(running.finish().code, None);
        held.is_gone(&world);
        nothing_is_left(&world);
        let all = world.rig.list();
        let new = all
            .iter()
            .map(|one| one["session"].as_str().unwrap().to_owned());
        let new = new
            .filter(|one| !sessions.contains(one))
            .collect::<Vec<_>>();
        assert_eq!(listed(&world, &new[0])["state"], "interrupted", "{bytes}");
        sessions.extend(new);
    }
    for session in &sessions {
        goes_on(&world, session);
    }
    assert_eq!(read(&world, "ran"), None);
}

/// ssh is killed at the same moments: the session ends with the step, and goes on later.
#[test]
fn an_ssh_that_dies_before_the_host_is_ready_ends_the_session() {
    let world = gated();
    let mut sessions = Vec::new();
    for bytes in [0, IN_THE_HELPER] {
        stop_after(&world, Direction::Up, bytes);
        let running = Running::of(&mut world.start(&["--workspace", "."], &["touch", "ran"]));
        let held = held(&world);
        held.kill(&world, &running, Victim::Ssh);
        let done = running.finish();
        assert_eq!(done.code, Some(125), "{done:?}");
        for told in ["there is no link to gpu1: ", "nothing was begun on gpu1"] {
            assert!(done.stderr.contains(told), "{bytes} {done:?}");
        }
        held.is_gone(&world);
        let all = world.rig.list();
        let new = all
            .iter()
            .find(|one| !sessions.contains(&one["session"]))
            .unwrap();
        assert_eq!(new["state"], "ended", "{new}");
        sessions.push(new["session"].clone());
    }
    for session in &sessions {
        goes_on(&world, session.as_str().unwrap());
    }
    assert_eq!(read(&world, "ran"), None);
}

/// labproxy is killed when it says that it begins the next step; wherever that finds it, nothing is left on
/// the host once the lease is over, and the session goes on.
#[test]
fn a_controller_that_dies_at_a_step_leaves_nothing_after_the_lease() {
    let world = world();
    world.lease("2s");
    for told in ["phase=\"attach\"", "phase=\"forward\"", "first push: "] {
        let mut command = world.start(&["--workspace", "."], &["touch", "ran"]);
        command
            .env("LABPROXY_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut labproxy = command.stderr(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(labproxy.id()).unwrap();
        let (mut said, mut is_killed) = (String::new(), false);
        for line in BufReader::new(labproxy.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.contains(told) && !is_killed {
                kill("KILL", pid);
                is_killed = true;
            }
            said += &(line + "\n");
        }
        assert_eq!(labproxy.wait().unwrap().code(), None, "{told}: {said}");
        nothing_is_left(&world);
        let all = world.rig.list();
        let dead = all
            .iter()
            .find(|one| one["state"] == "interrupted")
            .unwrap();
        goes_on(&world, dead["session"].as_str().unwrap());
    }
}

/// The agent is killed while it works: what it did comes here, what it asked is charged, and the status says
/// how it ended.
#[test]
fn an_agent_that_is_killed_has_its_work_pulled_and_its_calls_charged() {
    let world = world();
    let call = world.rig.path("call").display().to_string();
    let receipt = world.rig.path("receipt.json").display().to_string();
    let script = format!("echo work >made; {call} hi; echo; echo $$; exec sleep 1000");
    let options = ["--workspace", ".", "--receipt", &receipt];
    let running = Running::of(&mut world.start(&options, &["sh", "-c", &script]));
    assert_eq!(running.line(), "200");
    kill("KILL", running.line().parse().unwrap());
    let done = running.finish();
    assert_eq!(done.code, Some(137), "{done:?}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    let (receipt, served) = (world.rig.receipt(), world.rig.standin.served().pico_usd);
    assert_eq!(receipt["spent_pico_usd"], served);
    assert_eq!(receipt["workspace"]["unpulled"], false, "{receipt}");
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "pulled");
    assert_eq!(money(&world, &session), (served, 0));
    nothing_is_left(&world);
    ledger_holds(&world);
}

/// The upstream takes no connection: the agent gets a retryable 502, nothing is charged or held, and its work
/// comes here.
#[test]
fn an_upstream_that_is_gone_costs_nothing_and_no_work() {
    let world = world();
    // A port that was free just now; nothing here listens on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}");
    let call = world.rig.path("call").display().to_string();
    let script = format!("{call} hi; echo; echo work >made");
    let credential = format!("env:{KEY_VARIABLE}");
    let mut words = vec![
        "session",
        "start",
        "--host",
        HOST,
        "--workspace",
        ".",
        "--cap",
        "2",
    ];
    words.extend(["--upstream", &url, "--credential", &credential, "--"]);
    words.extend(["sh", "-c", &script]);
    let done = finish(&mut world.rig.command(&words));
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "502"),
        "{done:?}"
    );
    let session = world.rig.session();
    assert_eq!(money(&world, &session), (0, 0));
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    assert_eq!(work(&world, &session), "pulled");
    nothing_is_left(&world);
    ledger_holds(&world);
}

/// The upstream dies after it took a request: the whole hold is kept, and the agent's work comes here.
#[test]
fn an_upstream_that_dies_in_a_request_keeps_the_hold_and_no_work() {
    let world = world();
    let call = world.rig.path("call").display().to_string();
    let script = format!("{call} '[[scenario: reset]]'; echo; echo work >made");
    let done = run(&world, &[], &script);
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = world.rig.session();
    let (spent, still_held) = money(&world, &session);
    assert!(spent > 0 && still_held == 0, "{spent} {still_held}");
    let requests: Value = world.rig.show(&session)["requests"].clone();
    assert_eq!(requests[0]["outcome"], "kept", "{requests}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    assert_eq!(work(&world, &session), "pulled");
    nothing_is_left(&world);
    ledger_holds(&world);
}
