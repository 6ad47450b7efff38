//! Threat 40 and case X07: a recognisable key is searched for wherever it must not be.

use crate::rig::{KEY, KEY_VARIABLE, Rig, Running, descendants, eventually, holds_key, is_alive};

/// The environment and arguments of a process, as others see them.
fn shown(pid: i32) -> Vec<u8> {
    let mut bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.extend(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default());
    bytes
}

/// The key is in no log at the loudest level, no error, ledger, receipt, file or environment of
/// anything that labproxy starts, and it did reach the upstream.
#[test]
fn x07_t40_the_key_is_nowhere_but_at_the_upstream() {
    let rig = Rig::new();
    let receipt = rig.path("receipt.json").display().to_string();
    let mut command = rig.start(
        &["-vvv", "--receipt", &receipt],
        &[
            "sh",
            "-c",
            "env; $CALL hello; $CALL '[[scenario: error 400]]'; $CALL '[[scenario: html-502]]'; \
             echo ready; read go",
        ],
    );
    command
        .env("LABPROXY_LOG", "trace")
        .env("ANTHROPIC_API_KEY", KEY)
        .env("OPENAI_API_KEY", KEY)
        .env("SOME_HEADERS", format!("x-api-key: {KEY}"));
    let mut running = Running::of(&mut command);
    let mut said = Vec::new();
    while !said
        .last()
        .is_some_and(|line: &String| line.ends_with("ready"))
    {
        said.push(running.line());
    }
    let started = descendants(running.pid());
    assert!(!started.is_empty());
    for pid in started {
        assert!(!holds_key(&shown(pid)), "process {pid} shows the key");
    }
    running.say("go");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    said.push(done.stdout);
    assert!(!holds_key(said.join("\n").as_bytes()), "{said:?}");
    assert!(!holds_key(done.stderr.as_bytes()), "{}", done.stderr);
    assert!(
        done.stderr
            .contains("SOME_HEADERS holds the real credential")
    );
    assert_eq!(rig.files_with_key(), Vec::<std::path::PathBuf>::new());
    let seen = rig.standin.requests();
    assert!(seen.iter().all(|seen| seen.credential == "expected"));
    assert_eq!(rig.arrived(), 3);
}

/// A detached session gets the key over a pipe: neither its own environment nor arguments, nor any
/// file, shows it.
#[test]
fn t40_detach_hands_the_key_over_by_pipe() {
    let rig = Rig::new();
    let mut command = rig.start(&["--detach"], &["sh", "-c", "$CALL hello; sleep 600"]);
    command.env("ANTHROPIC_API_KEY", KEY);
    let done = crate::rig::finish(&mut command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = done.stdout;
    let pid = i32::try_from(rig.list()[0]["pid"].as_i64().unwrap()).unwrap();
    eventually("the request", || (rig.arrived() == 1).then_some(()));
    for process in std::iter::once(pid).chain(descendants(pid)) {
        let shown = shown(process);
        // The one that made the call may just have ended.
        assert!(!shown.is_empty() || !is_alive(process));
        assert!(!holds_key(&shown), "process {process} shows the key");
    }
    let names = String::from_utf8_lossy(&shown(pid)).into_owned();
    assert!(!names.contains("ANTHROPIC_API_KEY"), "{names}");
    assert!(!names.contains(KEY_VARIABLE), "{names}");
    let stopped = rig.labproxy(&["session", "stop", &session]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(rig.standin.requests()[0].credential, "expected");
    assert_eq!(rig.files_with_key(), Vec::<std::path::PathBuf>::new());
}

/// labproxy dumps no core; its agent may, as it could without labproxy.
#[test]
fn t40_labproxy_dumps_no_core_and_the_agent_is_free_to() {
    let rig = Rig::new();
    let mut running =
        Running::of(&mut rig.start(&[], &["sh", "-c", "grep core /proc/self/limits; read go"]));
    let of_agent = running.line();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
    let own = limits.lines().find(|line| line.contains("core")).unwrap();
    let ours = std::fs::read_to_string("/proc/self/limits").unwrap();
    let ours = ours.lines().find(|line| line.contains("core")).unwrap();
    assert!(own.starts_with("Max core file size        0 "), "{own}");
    assert_eq!(of_agent.trim(), ours.trim());
    running.say("go");
    assert_eq!(running.finish().code, Some(0));
}
