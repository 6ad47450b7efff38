//! A killed labproxy: its agent goes with it, and what was in flight is charged.

use crate::rig::{Rig, Running, eventually, is_alive};

/// Kills labproxy at each step of a request; the agent is gone, and the next command that opens the
/// ledger charges what is not known: never less than what the upstream served (threat 12).
#[test]
fn t12_a_killed_labproxy_leaves_no_agent_and_no_free_request() {
    for (step, script) in [
        ("before any request", "echo $$; exec sleep 600"),
        (
            "after a request",
            "echo $$; $CALL hello; echo done; exec sleep 600",
        ),
        (
            "in a request",
            "echo $$; exec $CALL '[[scenario: late 600000]]'",
        ),
    ] {
        let rig = Rig::new();
        let running = Running::of(&mut rig.start(&[], &["sh", "-c", script]));
        let agent: i32 = running.line().parse().unwrap();
        match step {
            "after a request" => assert_eq!(running.line(), "200done"),
            "in a request" => eventually("the request", || (rig.arrived() == 1).then_some(())),
            _ => {}
        }
        let session = rig.session();
        running.signal("KILL");
        assert_eq!(running.finish().code, None, "{step}");
        eventually("the agent's end", || (!is_alive(agent)).then_some(()));
        let listed = rig.list();
        assert_eq!(listed[0]["state"], "interrupted", "{step}");
        assert!(rig.sockets(&session).join("proxy.sock").exists(), "{step}");
        // Any command that opens the ledger for writing settles what the dead one left.
        let next = rig.run(&[], &["true"]);
        assert_eq!(next.code, Some(0), "{next:?}");
        assert!(!rig.sockets(&session).exists(), "{step}");
        let shown = rig.show(&session);
        let spent = shown["spent_pico_usd"].as_u64().unwrap();
        assert_eq!(shown["held_pico_usd"], 0, "{step}");
        assert!(spent >= rig.standin.served().pico_usd, "{step}");
        if step == "in a request" {
            assert!(next.stderr.contains("without settling"), "{next:?}");
            assert_eq!(shown["requests"][0]["outcome"], "kept");
            assert!(spent > 0);
        }
    }
}

/// An agent that ignores every signal it can is gone with a killed labproxy all the same.
#[test]
fn a_stubborn_agent_does_not_outlive_a_killed_labproxy() {
    let rig = Rig::new();
    let script = "trap '' TERM HUP INT QUIT; echo $$; while :; do sleep 0.1; done";
    let running = Running::of(&mut rig.start(&[], &["sh", "-c", script]));
    let agent: i32 = running.line().parse().unwrap();
    running.signal("KILL");
    drop(running.finish());
    eventually("the agent's end", || (!is_alive(agent)).then_some(()));
}

/// The thread that started the agent lives as long as the process: the agent's death signal is bound
/// to it, and it does not come early (threat 39).
#[test]
fn t39_the_thread_that_starts_children_stays() {
    let rig = Rig::new();
    let mut running = Running::of(&mut rig.start(&[], &["sh", "-c", "echo ready; read go"]));
    assert_eq!(running.line(), "ready");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
    let names: Vec<String> = tasks
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap())
        .collect();
    assert!(
        names.iter().any(|name| name.trim() == "children"),
        "{names:?}"
    );
    running.say("go");
    assert_eq!(running.finish().code, Some(0));
}

/// What a killed labproxy left is charged whole, and only an operator's entry with a reason changes
/// that: not for a running session, not for a request that was settled, not without a reason
/// (threat 12).
#[test]
fn t12_only_an_operator_corrects_a_kept_hold() {
    let rig = Rig::new();
    let script = "$CALL hello; echo; $CALL '[[scenario: late 600000]]'";
    let running = Running::of(&mut rig.start(&[], &["sh", "-c", script]));
    assert_eq!(running.line(), "200");
    eventually("the request", || (rig.arrived() == 2).then_some(()));
    let session = rig.session();
    let requests = rig.show(&session)["requests"].clone();
    let name = |number: usize| requests[number]["id"].as_str().unwrap().to_owned();
    let correct = |number: usize, reason: &str| {
        let request = name(number);
        rig.labproxy(&[
            "ledger", "correct", &session, &request, "0.0125", "--reason", reason,
        ])
    };
    let early = correct(1, "too early");
    assert_eq!(early.code, Some(1), "{early:?}");
    assert!(
        early.stderr.contains(&running.pid().to_string()),
        "{early:?}"
    );
    running.signal("KILL");
    assert_eq!(running.finish().code, None);
    assert_eq!(rig.run(&[], &["true"]).code, Some(0));
    let settled = rig.show(&session)["requests"][0]["charged_pico_usd"]
        .as_u64()
        .unwrap();
    assert_eq!(correct(0, "settled").code, Some(1));
    assert_eq!(correct(1, " ").code, Some(2));
    let done = correct(1, "the console says so");
    assert_eq!(done.code, Some(0), "{done:?}");
    let shown = rig.show(&session);
    assert_eq!(shown["requests"][1]["charged_pico_usd"], 12_500_000_000_u64);
    assert_eq!(
        shown["requests"][1]["reason"],
        "corrected: the console says so"
    );
    assert_eq!(shown["spent_pico_usd"], settled + 12_500_000_000);
    assert_eq!(rig.labproxy(&["ledger", "verify"]).code, Some(0));
}
