//! Looking at, topping up and stopping a session from outside, and not from inside.

use std::os::unix::fs::PermissionsExt as _;

use crate::rig::{Rig, Running, eventually, is_alive, is_empty};

/// An agent that makes one call, says so, and waits.
const WAITS: [&str; 3] = ["sh", "-c", "$CALL hello; echo; echo ready; read go"];

fn ready(running: &Running) {
    while running.line() != "ready" {}
}

/// While it runs a session is listed, shown with what it spent, and topped up; stop ends it, and
/// what is shown then is the receipt that was written.
#[test]
fn a_running_session_is_looked_after() {
    let rig = Rig::new();
    let receipt = rig.path("receipt.json").display().to_string();
    let running = Running::of(&mut rig.start(&["--receipt", &receipt], &WAITS));
    ready(&running);
    let listed = rig.list();
    let session = listed[0]["session"].as_str().unwrap();
    assert_eq!(listed[0]["state"], "running");
    assert_eq!(listed[0]["agent"], "sh");
    assert_eq!(listed[0]["pid"], running.pid());
    let shown = rig.show(&session[4..10]);
    assert_eq!(shown["requests"].as_array().unwrap().len(), 1);
    assert_eq!(shown["ended_at"], serde_json::Value::Null);
    assert_eq!(shown["agent"]["exit_code"], serde_json::Value::Null);
    assert!(shown["spent_pico_usd"].as_u64().unwrap() > 0);
    let done = rig.labproxy(&["session", "topup", session, "0.50"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("$2.50"), "{done:?}");
    assert_eq!(rig.show(session)["cap_pico_usd"], 2_500_000_000_000_u64);
    let stopped = rig.labproxy(&["session", "stop", session]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("has ended"), "{stopped:?}");
    let done = running.finish();
    assert_eq!(done.code, Some(143), "{done:?}");
    assert_eq!(rig.receipt()["end_reason"], "stopped");
    assert_eq!(rig.show(session), rig.receipt());
    assert_eq!(rig.list()[0]["state"], "ended");
    assert!(is_empty(&rig.path("run/labproxy")), "sockets are removed");
    let again = rig.labproxy(&["session", "stop", session]);
    assert!(again.stdout.contains("was not running"), "{again:?}");
}

/// Over its socket a session without a workspace pulls and pushes nothing, and says why; what is no call is
/// none; its audits are those that the command lists.
#[test]
fn a_session_here_answers_what_it_can() {
    let rig = Rig::new();
    let mut running = Running::of(&mut rig.start(&[], &WAITS));
    ready(&running);
    let session = rig.session();
    for path in ["/v1/pull", "/v1/push"] {
        let (status, answer) = rig.ask(&session, "POST", path, "");
        assert_eq!(status, 409, "{answer}");
        let why = format!("session {session} has no workspace that is mirrored");
        assert_eq!(answer["error"], why, "{answer}");
        let hint = answer["hints"][0].as_str().unwrap();
        assert!(hint.contains("--workspace DIR"), "{answer}");
        let (status, answer) = rig.ask(&session, "POST", path, "{\"force\":true}");
        assert_eq!(status, 400, "{answer}");
        assert_eq!(rig.ask(&session, "POST", path, "{}").0, 409);
    }
    let (status, answer) = rig.ask(&session, "GET", "/v1/status", "");
    assert_eq!((status, answer["state"].as_str()), (200, Some("running")));
    assert_eq!(answer["workspace"], serde_json::Value::Null);
    let (status, answer) = rig.ask(&session, "GET", "/v1/audits", "");
    assert_eq!(status, 200, "{answer}");
    let listed = rig.labproxy(&["audit", "list", "--session", &session, "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(answer, listed);
    for (method, path) in [
        ("GET", "/v1/audits/1"),
        ("GET", "/v1/audits/first"),
        ("GET", "/v1/pull"),
        ("POST", "/v1/status"),
        ("GET", "/v2/status"),
        ("GET", "/"),
    ] {
        let (status, answer) = rig.ask(&session, method, path, "");
        assert_eq!(status, 404, "{method} {path} {answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    running.say("go");
    assert_eq!(running.finish().code, Some(0));
}

/// Sockets are 0600 in 0700 directories, the session's directory is 0700.
#[test]
fn sockets_and_directories_are_private() {
    let rig = Rig::new();
    let mut running = Running::of(&mut rig.start(&[], &WAITS));
    ready(&running);
    let session = rig.session();
    let mode = |path: &str| {
        let meta = std::fs::symlink_metadata(rig.path(path)).unwrap();
        meta.permissions().mode() & 0o777
    };
    let sockets = format!("run/labproxy/{session}");
    let directory = format!("state/labproxy/sessions/{session}");
    assert_eq!(mode("run/labproxy"), 0o700);
    assert_eq!(mode(&sockets), 0o700);
    assert_eq!(mode(&format!("{sockets}/proxy.sock")), 0o600);
    assert_eq!(mode(&format!("{sockets}/control.sock")), 0o600);
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&format!("{directory}/lock")), 0o600);
    running.say("go");
    assert_eq!(running.finish().code, Some(0));
}

/// From inside a session no session is topped up, stopped, resumed, discarded or started, no
/// configuration is trusted, no head of the ledger accepted and no charge corrected, not even by an orphan that left its
/// parents; the cap stays, and the end tells of the attempts (threat 20, X11).
#[test]
fn t20_x11_a_session_is_not_controlled_from_inside() {
    let rig = Rig::new();
    std::fs::write(rig.path("work/labproxy.toml"), "# nothing\n").unwrap();
    let program = env!("CARGO_BIN_EXE_labproxy");
    let script = format!(
        "id=$(ls $XDG_STATE_HOME/labproxy/sessions); \
         for c in \"session topup $id 5\" \"session stop $id\" \"session resume $id\" \
           \"session discard $id\" \"session start --cap 9\" \"config trust labproxy.toml\" \
           \"ledger verify --accept-head\" \
           \"ledger correct $id req_aaaaaaaaaaaaaaaaaaaaaaaaaa 0 --reason none\"; do \
           {program} $c >/dev/null 2>>refused; echo $?; done; \
         s=$XDG_RUNTIME_DIR/labproxy/$id/control.sock; \
         curl -s --unix-socket $s -X POST -d '{{\"pico_usd\":5}}' http://localhost/v1/topup -w '%{{http_code}}\\n'; \
         (setsid sh -c \"sleep 0.2; curl -s --unix-socket $s -X POST http://localhost/v1/stop \
           -w '%{{http_code}}' > orphan.partial; mv orphan.partial orphan\" &) ; \
         for c in session status audits audits/1 events; do \
           curl -s --unix-socket $s http://localhost/v1/$c -w ' %{{http_code}}\n'; done; \
         for c in pull push; do \
           curl -s --unix-socket $s -X POST http://localhost/v1/$c -w ' %{{http_code}}\n'; done; \
         while [ ! -e orphan ]; do sleep 0.05; done; cat orphan; $CALL hello"
    );
    let done = rig.run(&[], &["sh", "-c", &script]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    for status in &lines[..8] {
        assert_eq!(*status, "2", "{done:?}");
    }
    // Behind its text: the number of a process may have these digits, too.
    let statuses = ["}403", "} 403"].map(|status| done.stdout.matches(status).count());
    assert_eq!(statuses.iter().sum::<usize>(), 9, "{done:?}");
    let refused = std::fs::read_to_string(rig.path("work/refused")).unwrap();
    assert_eq!(
        refused.matches("runs inside session").count(),
        8,
        "{refused}"
    );
    assert!(
        done.stderr.contains("refused 9 control calls from inside"),
        "{done:?}"
    );
    assert_eq!(rig.receipt()["cap_pico_usd"], 2_000_000_000_000_u64);
    assert_eq!(rig.list().len(), 1);
    assert!(!rig.path("state/labproxy/trusted").exists());
}

/// A top-up lets a request through that waits for room.
#[test]
fn a_top_up_wakes_a_waiting_request() {
    let rig = Rig::new();
    let script = "$CALL '[[scenario: late 3000]]' 60000 & first=$!; \
                  while ! $CALL hello 1 >/dev/null; do :; done; \
                  echo asking; OUT=second $CALL hello 60000; echo; wait $first";
    let mut running = Running::of(&mut rig.start(&["--cap", "0.31"], &["sh", "-c", script]));
    while running.line() != "asking" {}
    let session = rig.session();
    eventually("the request", || {
        let shown = rig.show(&session);
        (shown["requests"].as_array().unwrap().len() >= 2).then_some(())
    });
    let done = rig.labproxy(&["session", "topup", &session, "5"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    running.close_stdin();
    let done = running.finish();
    assert!(done.stdout.contains("200"), "{done:?}");
}

/// A dead session is topped up in the ledger, and the next run has the room.
#[test]
fn a_dead_session_is_topped_up_in_the_ledger() {
    let rig = Rig::new();
    assert_eq!(rig.run(&[], &["true"]).code, Some(0));
    let session = rig.session();
    let done = rig.labproxy(&["session", "topup", &session, "1"]);
    assert!(done.stdout.contains("$3.00"), "{done:?}");
    assert_eq!(rig.show(&session)["cap_pico_usd"], 3_000_000_000_000_u64);
    let nothing = rig.labproxy(&["session", "topup", &session, "0"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
}

/// A mistyped name gets a suggestion, and a table a line for each session.
#[test]
fn a_wrong_name_gets_a_suggestion() {
    let rig = Rig::new();
    let none = rig.labproxy(&["session", "show", "ses_x"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert_eq!(rig.run(&[], &["true"]).code, Some(0));
    let session = rig.session();
    let mut wrong = session.clone();
    wrong.pop();
    wrong.push(if session.ends_with('a') { 'b' } else { 'a' });
    let done = rig.labproxy(&["session", "show", &wrong]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.stderr.contains(&format!("did you mean {session}")),
        "{done:?}"
    );
    let table = rig.labproxy(&["session", "list"]);
    assert_eq!(table.stdout.lines().count(), 2, "{table:?}");
}

/// A discarded session is gone from the list; its entries stay in the ledger.
#[test]
fn a_discarded_session_leaves_its_entries() {
    let rig = Rig::new();
    assert_eq!(rig.run(&[], &["sh", "-c", "$CALL hello"]).stdout, "200");
    let session = rig.session();
    let running = Running::of(&mut rig.start(&[], &WAITS));
    ready(&running);
    let other = rig.list();
    let live = other.iter().find(|one| one["state"] == "running").unwrap()["session"]
        .as_str()
        .unwrap();
    let refused = rig.labproxy(&["session", "discard", live]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(
        refused.stderr.contains(&running.pid().to_string()),
        "{refused:?}"
    );
    let done = rig.labproxy(&["session", "discard", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        !rig.path(&format!("state/labproxy/sessions/{session}"))
            .exists()
    );
    assert_eq!(rig.list().len(), 1);
    drop(rig.labproxy(&["session", "stop", live]));
    assert_eq!(running.finish().code, Some(143));
    let ledger =
        labproxy::ledger::Reader::open(&rig.path("state/labproxy/ledger.sqlite3")).unwrap();
    let sessions = ledger.sessions().unwrap();
    assert!(sessions.iter().any(|row| row.session.as_str() == session));
}

/// What an agent leaves running ends with the session, also when it left its process group.
#[test]
fn what_the_agent_leaves_behind_is_ended() {
    let rig = Rig::new();
    let script = "setsid sleep 601 & (sleep 602 &) ; sh -c 'trap \"\" TERM; echo $$ > stubborn; \
                  while :; do sleep 0.1; done' & while [ ! -s stubborn ]; do sleep 0.01; done; $CALL hello";
    let done = rig.run(&[], &["sh", "-c", script]);
    assert_eq!(done.stdout, "200", "{done:?}");
    assert!(
        done.stderr.contains("that the agent left running"),
        "{done:?}"
    );
    let stubborn = std::fs::read_to_string(rig.path("work/stubborn")).unwrap();
    assert!(!is_alive(stubborn.trim().parse().unwrap()));
}

/// Thirty callers behind one listener share one cap; each that is refused is refused at once, with
/// the provider's shape of a refusal, and the end says that the cap was reached.
#[test]
fn k20_thirty_callers_share_one_cap() {
    let rig = Rig::new();
    let script = "for i in $(seq 30); do (OUT=answer.$i $CALL hello 20000; echo) & done; wait";
    let done = rig.run(
        &["--cap", "0.35", "--on-cap", "refuse"],
        &["sh", "-c", &format!("{script}; exit 4")],
    );
    assert_eq!(done.code, Some(4), "{done:?}");
    let receipt = rig.receipt();
    // Lines of thirty writers may run together.
    let refused = done.stdout.matches("402").count();
    let served = done.stdout.matches("200").count();
    assert_eq!(refused + served, 30, "{done:?}");
    assert!(refused > 0 && served > 0, "{done:?}");
    assert_eq!(receipt["end_reason"], "cap", "{receipt:#}");
    assert_eq!(receipt["cap_reached"], true);
    assert!(receipt["spent_pico_usd"].as_u64() <= receipt["cap_pico_usd"].as_u64());
    for request in receipt["requests"].as_array().unwrap() {
        if request["outcome"] == "refused" {
            assert!(request["duration_ms"].as_u64().unwrap_or(0) < 5_000);
        }
    }
}

/// Two sessions cannot pass the user's daily ceiling together, and a top-up does not lift it.
#[test]
fn t20_a_daily_ceiling_holds_over_all_sessions() {
    let rig = Rig::new();
    let with_ceiling = |cap: &str, script: &str| {
        let mut command = rig.start(&["--cap", cap], &["sh", "-c", script]);
        command.env("LABPROXY_LIMITS_DAILY_USD", "0.007");
        crate::rig::finish(&mut command)
    };
    let first = with_ceiling("2", "$CALL '[[scenario: long 400]]' 500");
    assert_eq!(first.stdout, "200", "{first:?}");
    let second = with_ceiling("2", "$CALL '[[scenario: long 400]]' 500");
    assert_eq!(second.stdout, "402", "{second:?}");
    assert_eq!(rig.arrived(), 1);
}
