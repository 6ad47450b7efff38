//! `--detach`: the command returns when the session is ready, and the session runs on.

use crate::rig::{Rig, eventually, finish};

/// The id is on stdout, the agent reads nothing and writes two files, and it ends by itself.
#[test]
fn a_detached_session_runs_on_and_ends() {
    let rig = Rig::new();
    let receipt = rig.path("receipt.json").display().to_string();
    let script =
        "cat; echo out; echo err >&2; $CALL hello; while [ ! -e go ]; do sleep 0.05; done; exit 7";
    let done = finish(&mut rig.start(&["--detach", "--receipt", &receipt], &["sh", "-c", script]));
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = done.stdout;
    assert_eq!(rig.list()[0]["state"], "running");
    assert_eq!(rig.list()[0]["session"], session);
    std::fs::write(rig.path("work/go"), "").unwrap();
    eventually("the end", || {
        (rig.list()[0]["state"] == "ended").then_some(())
    });
    let receipt = rig.receipt();
    assert_eq!(receipt["agent"]["exit_code"], 7);
    assert_eq!(receipt["requests"].as_array().unwrap().len(), 1);
    let file = |name: &str| {
        let path = format!("state/labproxy/sessions/{session}/{name}");
        std::fs::read_to_string(rig.path(&path)).unwrap()
    };
    assert_eq!(file("agent.out"), "out\n200");
    assert_eq!(file("agent.err"), "err\n");
    assert!(file("labproxy.err").contains("agent_exit"));
}

/// Without an agent the exports are printed, they work, and the session runs until it is stopped.
#[test]
fn a_detached_session_without_an_agent_prints_exports() {
    let rig = Rig::new();
    let done = finish(&mut rig.start(&["--detach"], &[]));
    assert_eq!(done.code, Some(0), "{done:?}");
    let script = format!("{}\n$CALL hello", done.stdout);
    let call = finish(
        std::process::Command::new("sh")
            .args(["-c", &script])
            .env("CALL", rig.path("call")),
    );
    assert_eq!(call.stdout, "200", "{call:?}");
    let session = rig.session();
    let stopped = rig.labproxy(&["session", "stop", &session]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(rig.show(&session)["end_reason"], "stopped");
}

/// What stops a detached session before it is ready is told where the user is, with the status that
/// it would have had.
#[test]
fn a_detached_session_that_cannot_start_says_so() {
    let rig = Rig::new();
    let done = finish(&mut rig.start(&["--detach"], &["no-such-agent"]));
    assert_eq!(done.code, Some(127), "{done:?}");
    let blocked = rig.path("state/labproxy");
    std::fs::create_dir_all(&blocked).unwrap();
    std::fs::create_dir(blocked.join("ledger.sqlite3")).unwrap();
    let done = finish(&mut rig.start(&["--detach"], &["true"]));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("ledger"), "{done:?}");
}
