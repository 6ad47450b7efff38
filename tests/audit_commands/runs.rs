//! `audit run`: what the tool sees, and the status of each end.

use std::fs;
use std::os::unix::fs::symlink;

use crate::place::Place;
use crate::rig::{Running, eventually};

/// The tool looks at what the host has now, byte for byte, and says it on our stdout; the workspace
/// here is left alone; the verdict is kept.
#[test]
fn a_tool_looks_at_what_the_agent_made() {
    let place = Place::new("echo two > b.txt; mkdir d; printf '\\0\\377' > d/bytes");
    fs::write(place.there("late"), "written after the session\n").unwrap();
    let script = "cat a.txt b.txt late; od -An -tx1 d/bytes; echo \"$LABPROXY_AUDIT_SESSION\"";
    let done = place.sh(script, 0);
    let session = &place.session;
    let expected = format!("one\ntwo\nwritten after the session\n 00 ff\n{session}");
    assert_eq!(done.stdout, expected);
    assert!(
        done.stderr.contains("audit 1: passed; generation"),
        "{done:?}"
    );
    assert!(
        !place.world.rig.path("work/late").exists(),
        "the workspace is left as it was"
    );
    let audits = place.audits();
    assert_eq!(audits.len(), 1);
    assert_eq!(audits[0]["sandbox"], "bubblewrap");
    assert_eq!(audits[0]["network"], false);
    assert_eq!(audits[0]["tool"][2], script);
    let shown = place.labproxy(&["session", "show", session, "--json"]);
    assert_eq!(
        shown.code,
        Some(0),
        "the receipt folds over an audit: {shown:?}"
    );
    let ledger = place.labproxy(&["ledger", "verify"]);
    assert_eq!(ledger.code, Some(0), "{ledger:?}");
    let show = place.labproxy(&["audit", "show", "1"]);
    for part in [
        "verdict     passed",
        "network     no",
        "tree        ",
        "manifest    ",
    ] {
        assert!(show.stdout.contains(part), "{show:?}");
    }
}

/// An agent that is at work is audited as it is, and works on; the directory here is left alone.
#[test]
fn a_session_that_runs_is_audited() {
    let place = Place::live("echo early > made; exec sleep 600");
    eventually("the agent's file", || {
        let text = fs::read_to_string(place.there("made")).ok()?;
        (text == "early\n").then_some(())
    });
    let done = place.sh("cat a.txt made", 0);
    assert_eq!(done.stdout, "one\nearly");
    assert!(!place.world.rig.path("work/made").exists());
    assert_eq!(place.world.rig.list()[0]["state"], "running");
    let done = place.labproxy(&["session", "stop", &place.session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        place.world.rig.path("work/made").exists(),
        "the end brings it"
    );
    assert_eq!(place.audits().len(), 1);
}

/// Each end has its status, and each that began has its record.
#[test]
fn every_end_has_its_status() {
    let place = Place::new("true");
    place.sh("exit 7", 7);
    assert_eq!(place.verdict(), "failed");
    place.sh("kill -9 $$", 137);
    let alters = ["sh", "-c", "echo x >> a.txt"];
    let done = place.run(&["--no-sandbox"], &alters);
    assert_eq!(done.code, Some(123), "{done:?}");
    assert_eq!(place.verdict(), "altered_input");
    let done = place.run(&[], &alters);
    assert_eq!(
        done.code,
        Some(2),
        "the sandbox's copy is read-only: {done:?}"
    );
    let done = place.run(&["--timeout", "500ms"], &["sleep", "61.5"]);
    assert_eq!(done.code, Some(124), "{done:?}");
    assert_eq!(place.verdict(), "timed_out");
    let begun = place.audits().len();
    let done = place.run(&[], &["no-such-tool"]);
    assert_eq!(done.code, Some(127), "{done:?}");
    assert!(
        done.stderr
            .contains("'no-such-tool' was not found in the sandbox"),
        "{done:?}"
    );
    let done = place.run(&["--timeout", "soon"], &["true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    let done = place.run(&["--session", "ses_zzz"], &["true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    let done = place.labproxy(&["audit", "run", "true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains("no tool is named 'true'")
            && done
                .stderr
                .contains("the tool and its arguments stand after '--'"),
        "{done:?}"
    );
    assert_eq!(place.audits().len(), begun, "none of these began");
    symlink("/etc/passwd", place.there("link")).unwrap();
    let done = place.sh("echo ran", 123);
    assert_eq!(done.stdout, "");
    let line = "finding: link: a symlink to '/etc/passwd' (audit.symlinks)";
    assert!(done.stderr.contains(line), "{done:?}");
    assert_eq!(place.verdict(), "findings");
}

/// A host that cannot be reached is a record too: that nobody looked is not forgotten.
#[test]
fn t13_what_cannot_be_pulled_is_recorded() {
    let mut place = Place::new("true");
    place.world.stop_sshd();
    let done = place.run(&[], &["true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert_eq!(place.verdict(), "not_pulled");
    assert!(place.there("a.txt").exists());
}

/// An agent's git configuration, hooks and programs of the workspace do not run by an audit: nothing
/// of labproxy's reads them.
#[test]
fn t02_nothing_of_the_workspace_runs_by_itself() {
    let place = Place::new(
        "git init -q . && git config user.email a@b && git config user.name a \
         && git add a.txt && git commit -qm one",
    );
    let canary = place.world.rig.path("canary");
    let hook = format!("#!/bin/sh\ntouch {}\n", canary.display());
    let program = place.there(".git/evil");
    fs::write(&program, hook).unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let config = place.there(".git/config");
    let mut text = fs::read_to_string(&config).unwrap();
    text.push_str("[core]\n\tfsmonitor = ");
    fs::write(&config, text + program.to_str().unwrap() + "\n").unwrap();
    let done = place.sh("grep -q fsmonitor .git/config", 0);
    assert!(!canary.exists(), "{done:?}");
}

/// A tool that calls labproxy in its sandbox finds no session to top up, and the cap stays.
#[test]
fn t03_t20_a_tool_cannot_control_labproxy() {
    let place = Place::new("true");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_labproxy"));
    let shown = program.parent().unwrap();
    place.configure(&format!("[audit]\nread = [{shown:?}]"));
    let cap = |place: &Place| place.world.rig.show(&place.session)["cap_pico_usd"].clone();
    let before = cap(&place);
    let (program, session) = (program.display(), &place.session);
    let script = format!(
        "test -x {program}; for what in 'topup {session} 5' 'resume {session} -- true' \
         'stop {session}' 'show {session}'; do {program} session $what && exit 9; done; exit 0"
    );
    place.sh(&script, 0);
    assert_eq!(cap(&place), before);
    let at = |name: &str| place.world.rig.path(name).display().to_string();
    let (state, config, run) = (at("state"), at("config"), at("run"));
    let topup = format!(
        "XDG_STATE_HOME={state} XDG_CONFIG_HOME={config} XDG_RUNTIME_DIR={run} \
         {program} session topup {session} 5"
    );
    let done = place.run(&["--no-sandbox"], &["sh", "-c", &topup]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("inside an audit of session"),
        "{done:?}"
    );
    assert_eq!(cap(&place), before);
    let bare = format!(
        "env | grep -c '^LABPROXY_AUDIT_' | grep -qx 3; test -z \"${}\"",
        "ANTHROPIC_API_KEY"
    );
    let done = place.run(&["--no-sandbox"], &["sh", "-c", &bare]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr
            .contains("no sandbox: the tool has your own power"),
        "{done:?}"
    );
    assert!(done.stderr.contains("NO SANDBOX"), "{done:?}");
    assert_eq!(place.audits().last().unwrap()["sandbox"], "none");
}

/// An audit that is told to end ends its tool first, and says so.
#[test]
fn an_interrupted_audit_ends_its_tool() {
    let place = Place::new("true");
    let script = "trap '' TERM; echo ready; exec sleep 61.75";
    let running = Running::of(&mut place.command(&[], &["sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(143), "{done:?}");
    assert_eq!(place.verdict(), "interrupted");
    let left = labproxy::processes::all().filter(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.stamp.pid));
        !process.zombie && line.is_ok_and(|line| line == b"sleep\x0061.75\0")
    });
    assert_eq!(left.count(), 0);
}

/// A second audit of a session says that it waits, and comes when the first is over.
#[test]
fn two_audits_are_made_one_after_the_other() {
    let place = Place::new("true");
    let gate = place.world.rig.path("gate");
    fs::create_dir(&gate).unwrap();
    place.configure(&format!("[audit]\nread = [{gate:?}]"));
    let script = format!(
        "echo ready; until test -e {}/open; do sleep 0.05; done",
        gate.display()
    );
    let first = Running::of(&mut place.command(&[], &["sh", "-c", &script]));
    assert_eq!(first.line(), "ready");
    let second = Running::of(&mut place.command(&[], &["true"]));
    let lock = place
        .world
        .rig
        .path("state/labproxy/audits")
        .join(&place.session)
        .join("lock");
    eventually("the second one waits", || {
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&lock).ok()?);
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let waits = |line: &str| line.contains("->") && line.contains(&format!(":{inode} "));
        locks.lines().any(waits).then_some(())
    });
    fs::write(gate.join("open"), "").unwrap();
    assert_eq!(first.finish().code, Some(0));
    let done = second.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("another audit of ses_"), "{done:?}");
    let numbers: Vec<_> = place
        .audits()
        .iter()
        .map(|audit| audit["number"].clone())
        .collect();
    assert_eq!(numbers, [1, 2]);
}
