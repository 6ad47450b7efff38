//! What goes wrong while a session runs: a disk that takes nothing more, a key that the provider
//! refuses, files that change under it.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::rig::{KEY_VARIABLE, Rig, Running, eventually, finish, prices};

/// K14, seen from outside: when the disk takes nothing more in the middle of a session, each further
/// request is a 503 that says why, none is forwarded, labproxy says so at the end, and what was
/// charged before is still there. A limit on the size of files stands in for the full disk.
#[test]
fn k14_a_disk_that_fails_in_the_middle_of_a_session_stops_all_requests() {
    let rig = Rig::new();
    let script = "$CALL hello; echo; echo ready; read go; \
                  OUT=one $CALL hello; echo; OUT=two $CALL hello; echo";
    let inner = rig.start(&[], &["sh", "-c", script]);
    let mut ignoring = std::process::Command::new("sh");
    ignoring
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(rig.path("work"))
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let mut running = Running::of(&mut ignoring);
    assert_eq!(running.line(), "200");
    assert_eq!(running.line(), "ready");
    let session = rig.session();
    let spent = eventually("the settlement", || {
        let shown = rig.show(&session);
        (shown["requests"][0]["outcome"] == "settled").then(|| shown["spent_pico_usd"].clone())
    });
    assert!(spent.as_u64().unwrap() > 0);
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    prlimit(Pid::from_raw(running.pid()), Resource::Fsize, nothing).unwrap();
    running.say("go");
    let done = running.finish();
    assert_eq!(done.stdout, "503\n503", "{done:?}");
    for name in ["work/one", "work/two"] {
        let body = std::fs::read_to_string(rig.path(name)).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["type"], "error", "{body}");
        let text = body["error"]["message"].as_str().unwrap();
        assert!(
            text.starts_with("labproxy: the ledger cannot") && text.ends_with("(disk I/O error)"),
            "{text}"
        );
    }
    assert_eq!(rig.arrived(), 1);
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in [
        "the session's last entry was not written",
        "the ledger could not be written (disk I/O error): no request was forwarded",
    ] {
        assert!(done.stderr.contains(told), "{done:?}");
    }
    let verified = rig.labproxy(&["ledger", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert_eq!(rig.show(&session)["spent_pico_usd"], spent);
    let again = rig.run(&[], &["sh", "-c", "$CALL hello"]);
    assert_eq!(again.stdout, "200", "the next session works: {again:?}");
}

/// A key that the provider refuses: the agent sees the provider's own error, and the receipt says,
/// as JSON and as text, that it was the real credential.
#[test]
fn an_upstream_401_is_the_providers_own_and_the_receipt_says_whose_key_it_was() {
    let rig = Rig::new();
    let receipt = rig.path("receipt.json").display().to_string();
    let agent = ["sh", "-c", "OUT=body $CALL hello"];
    let mut command = rig.start(&["--receipt", &receipt], &agent);
    let done = finish(command.env(KEY_VARIABLE, "sk-ant-api03-revoked"));
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "401"));
    let body = std::fs::read_to_string(rig.path("work/body")).unwrap();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"]["type"], "authentication_error");
    assert!(!body.to_string().contains("labproxy"), "{body}");
    let receipt = rig.receipt();
    let request = &receipt["requests"][0];
    assert_eq!(request["status"], 401);
    assert_eq!(request["outcome"], "free");
    let sentence = "the provider refused the real credential";
    assert_eq!(request["reason"], sentence);
    assert_eq!(receipt["spent_pico_usd"], 0);
    let line = format!("{sentence} 1 time");
    assert!(done.stderr.contains(&line), "{done:?}");
    let shown = rig.labproxy(&["session", "show", receipt["session"].as_str().unwrap()]);
    assert!(shown.stdout.contains(&line), "{shown:?}");
}

/// A price file that changes during a session: the session charges by the prices that it started
/// with, and its end names the file.
#[test]
fn a_changed_price_file_does_not_reach_a_running_session() {
    let rig = Rig::new();
    let file = rig.path("prices.toml");
    std::fs::write(&file, prices("5")).unwrap();
    std::fs::write(rig.path("dearer.toml"), prices("50")).unwrap();
    let run = |script: &str| {
        let receipt = rig.path("receipt.json").display().to_string();
        let mut command = rig.start(&["--receipt", &receipt], &["sh", "-c", script]);
        let done = finish(command.env("LABPROXY_PRICING_FILE", &file));
        assert_eq!(done.stdout, "200", "{done:?}");
        (done, rig.receipt())
    };
    let (done, before) = run("$CALL hello");
    assert!(!done.stderr.contains("changed during"), "{done:?}");
    let (done, changed) = run("cp ../dearer.toml ../prices.toml; $CALL hello");
    let note = format!("{} changed during the session", file.display());
    assert!(done.stderr.contains(&note), "{done:?}");
    let (_, after) = run("$CALL hello");
    for field in ["pricing_digest", "spent_pico_usd"] {
        assert_eq!(changed[field], before[field], "{field}");
        assert_ne!(after[field], before[field], "{field}");
    }
}

/// A file that `--config` names is watched in the same way.
#[test]
fn a_changed_given_configuration_is_named_at_the_end() {
    let rig = Rig::new();
    let file = rig.path("given.toml");
    std::fs::write(&file, "[session]\non_cap = \"refuse\"\n").unwrap();
    let given = file.display().to_string();
    let script = "echo 'broken = ' > ../given.toml; $CALL hello";
    let done = rig.run(&["--config", &given], &["sh", "-c", script]);
    assert_eq!(done.stdout, "200", "{done:?}");
    let note = format!("{given} changed during the session");
    assert!(done.stderr.contains(&note), "{done:?}");
    assert_eq!(rig.receipt()["on_cap"], "refuse");
}

/// U05: a model that came out after this version is refused until the user writes a row for it; the
/// session that is resumed with that row forwards it, under the same cap.
#[test]
fn u05_a_new_model_is_let_through_by_a_row_of_the_users() {
    let rig = Rig::new();
    let call = std::fs::read_to_string(rig.path("call")).unwrap();
    rig.write_program("new", &call.replace("claude-haiku-4-5", "claude-haiku-9"));
    let agent = ["sh", "-c", "OUT=body ../new hello"];
    let done = rig.run(&[], &agent);
    assert_eq!(done.stdout, "402", "{done:?}");
    let body = std::fs::read_to_string(rig.path("work/body")).unwrap();
    assert!(body.contains("claude-haiku-9"), "{body}");
    assert_eq!(rig.arrived(), 0);
    let row = prices("5").replace("claude-haiku-4-5-20251001", "claude-haiku-9");
    std::fs::write(rig.path("prices.toml"), row).unwrap();
    let url = rig.standin.url();
    let credential = format!("env:{KEY_VARIABLE}");
    let session = rig.session();
    let resume = ["session", "resume", &session, "--upstream", &url];
    let arguments = [&resume[..], &["--credential", &credential, "--"], &agent].concat();
    let mut command = rig.command(&arguments);
    let done = finish(command.env("LABPROXY_PRICING_FILE", rig.path("prices.toml")));
    // The stand-in does not serve it, which its own error says.
    assert_eq!(done.stdout, "404", "{done:?}");
    let body = std::fs::read_to_string(rig.path("work/body")).unwrap();
    assert!(body.contains("not_found_error"), "{body}");
    assert_eq!(rig.arrived(), 1);
    let shown = rig.show(&session);
    let requests = shown["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0]["outcome"], "refused");
    assert_eq!(requests[1]["outcome"], "free");
}

/// A ledger that was rolled back, one that is no database, and one that somebody else has locked: the
/// start says which, no agent starts, and nothing is forwarded.
#[test]
fn a_ledger_that_cannot_be_trusted_stops_the_start() {
    let rig = Rig::new();
    let ledger = rig.path("state/labproxy/ledger.sqlite3");
    // The file as it is when everything in its log was carried over.
    let whole = || {
        let connection = rusqlite::Connection::open(&ledger).unwrap();
        let carry = "PRAGMA wal_checkpoint(TRUNCATE)";
        connection.query_row(carry, [], |_| Ok(())).unwrap();
        drop(connection);
        std::fs::read(&ledger).unwrap()
    };
    let replace = |bytes: &[u8]| {
        for beside in ["-wal", "-shm"] {
            let path = rig.path(&format!("state/labproxy/ledger.sqlite3{beside}"));
            let _absent = std::fs::remove_file(path);
        }
        std::fs::write(&ledger, bytes).unwrap();
    };
    assert_eq!(rig.run(&[], &["sh", "-c", "$CALL hello"]).stdout, "200");
    let early = whole();
    assert_eq!(rig.run(&[], &["sh", "-c", "$CALL hello"]).stdout, "200");
    let late = whole();
    let assert_stopped = |what: &str| {
        let done = rig.run(&[], &["sh", "-c", "touch started; $CALL hello"]);
        assert_eq!(done.code, Some(125), "{done:?}");
        assert!(done.stderr.contains(what), "{what}: {done:?}");
        assert!(!rig.path("work/started").exists());
        assert_eq!(rig.arrived(), 2);
    };
    replace(&early);
    assert_stopped("was rolled back or cut");
    replace(&[b'x'; 8192]);
    assert_stopped("is not a labproxy ledger");
    replace(&late);
    let other = rusqlite::Connection::open(&ledger).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_stopped("another process has locked the ledger");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let done = rig.run(&[], &["sh", "-c", "$CALL hello"]);
    assert_eq!(done.stdout, "200", "{done:?}");
}

/// A session that is told to end while the ledger takes its first entry: the entry gets its end, and no
/// agent starts.
#[test]
fn a_signal_during_the_first_entry_leaves_no_open_session() {
    let rig = Rig::new();
    assert_eq!(rig.run(&[], &["true"]).code, Some(0));
    let ledger = rig.path("state/labproxy/ledger.sqlite3");
    let other = rusqlite::Connection::open(&ledger).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = rig.list().len();
    let session = Running::of(&mut rig.start(&[], &["sh", "-c", "touch started; sleep 100"]));
    // The owner is written down last before the entry.
    let sessions = rig.path("state/labproxy/sessions");
    eventually("the owner", || {
        let all = std::fs::read_dir(&sessions).unwrap();
        let mut locks = all.map(|entry| entry.unwrap().path().join("lock"));
        let is_owned = |lock: &std::path::PathBuf| {
            let text = std::fs::read_to_string(lock).unwrap_or_default();
            text.contains(&format!("\"pid\":{}", session.pid()))
        };
        locks.find(is_owned)
    });
    session.signal("TERM");
    other.execute_batch("ROLLBACK").unwrap();
    let done = session.finish();
    assert_eq!(done.code, Some(143), "{done:?}");
    assert!(!rig.path("work/started").exists());
    let list = rig.list();
    // Either no entry was asked for yet, or it has its end.
    assert!(list.iter().all(|one| one["state"] == "ended"), "{list:?}");
    assert!(list.len() <= before + 1, "{list:?}");
    let verified = rig.labproxy(&["ledger", "list", "--json"]);
    let sessions: Vec<serde_json::Value> = serde_json::from_str(&verified.stdout).unwrap();
    assert_eq!(sessions.len(), list.len(), "{verified:?}");
}
