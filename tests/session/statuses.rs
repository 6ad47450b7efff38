//! Exit statuses: the agent's own, and labproxy's when there is none.

use crate::rig::{Rig, finish};

/// The agent's status is passed on, and 128+n when a signal ended it; the receipt says the same.
#[test]
fn the_agents_end_is_passed_on() {
    let rig = Rig::new();
    for (script, code, signal) in [
        ("exit 0", 0, None),
        ("exit 1", 1, None),
        ("exit 7", 7, None),
        ("exit 255", 255, None),
        ("kill -KILL $$", 137, Some("SIGKILL")),
        ("kill -TERM $$", 143, Some("SIGTERM")),
    ] {
        let done = rig.run(&[], &["sh", "-c", script]);
        assert_eq!(done.code, Some(code), "{script}: {done:?}");
        let receipt = rig.receipt();
        assert_eq!(receipt["end_reason"], "agent_exit", "{script}");
        assert_eq!(receipt["agent"]["argv0"], "sh");
        match signal {
            None => assert_eq!(receipt["agent"]["exit_code"], code, "{script}"),
            Some(name) => assert_eq!(receipt["agent"]["signal"], name, "{script}"),
        }
    }
}

/// An absent agent is 127 and one without the right to run 126; nothing is spent and no session is
/// left behind. One whose interpreter is missing is 127, after a session that spent nothing.
#[test]
fn an_agent_that_cannot_run_costs_nothing() {
    let rig = Rig::new();
    let plain = rig.path("plain");
    std::fs::write(&plain, "text").unwrap();
    for (agent, code) in [
        ("no-such-agent", 127),
        ("/no/such/agent", 127),
        (plain.to_str().unwrap(), 126),
        (rig.path("work").to_str().unwrap(), 126),
    ] {
        let done = rig.run(&[], &[agent]);
        assert_eq!(done.code, Some(code), "{agent}: {done:?}");
        assert!(done.stderr.contains("nothing was spent"), "{done:?}");
        assert!(rig.list().is_empty());
    }
    let script = rig.write_program("script", "#!/no/such/interpreter\n");
    let done = rig.run(&[], &[script.to_str().unwrap()]);
    assert_eq!(done.code, Some(127), "{done:?}");
    assert_eq!(rig.receipt()["spent_pico_usd"], 0);
}

/// labproxy's own failures are 125 when there was a program to run, else 2.
#[test]
fn labproxys_own_failures_are_told_from_the_agents() {
    let rig = Rig::new();
    let bad = ["--on-cap", "never"];
    assert_eq!(finish(&mut rig.start(&bad, &["true"])).code, Some(125));
    assert_eq!(finish(&mut rig.start(&bad, &[])).code, Some(2));
}

/// The agent's stdin, stdout and arguments are exactly its own.
#[test]
fn stdio_and_arguments_are_the_agents_own() {
    let rig = Rig::new();
    let mut running = crate::rig::Running::of(&mut rig.start(
        &[],
        &[
            "sh",
            "-c",
            "cat; printf '%s|' \"$@\"",
            "zero",
            "--cap",
            "",
            "a b",
            "--",
            "-x",
        ],
    ));
    running.say("through");
    running.close_stdin();
    let done = running.finish();
    assert_eq!(done.stdout, "through\n--cap||a b|--|-x|");
}

/// A session that makes no request says so loudly; one that makes a request does not.
#[test]
fn a_session_without_a_request_says_so() {
    let rig = Rig::new();
    let warning = "not one request of the agent came through the proxy";
    let done = rig.run(&[], &["true"]);
    assert!(done.stderr.contains(warning), "{done:?}");
    let done = rig.run(&[], &["sh", "-c", "$CALL hello"]);
    assert_eq!(done.stdout, "200", "{done:?}");
    assert!(!done.stderr.contains(warning), "{done:?}");
    assert!(done.stderr.contains("claude-haiku-4-5"), "{done:?}");
}
