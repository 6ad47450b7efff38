//! What `.ci/run` looks for at its end: processes that its steps left. The script that looks is tried
//! with programs that leave some, in the ways that the host's programs and ssh start.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "test code"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a shell script under the watch, which gives what is ending that many seconds.
fn watched(script: &str, grace: &str) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/alone.py");
    Command::new("python3")
        .arg(program)
        .args(["--grace", grace])
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The watch fails and names that program, and the program is gone afterwards.
fn is_found(script: &str, name: &str) {
    let output = watched(script, "0.5");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("left behind by sh:"), "{said}");
    let lines: Vec<&str> = lines.map(str::trim).collect();
    assert!(lines.iter().any(|line| line.contains(name)), "{said}");
    for line in lines {
        let pid = line.split(' ').next().unwrap();
        assert!(!Path::new("/proc").join(pid).exists(), "{said}");
    }
}

/// Started by another shell in a session of its own, with nothing in its environment, and its parent
/// is dead: as a guard of a session on a host.
#[test]
fn an_orphan_in_a_session_of_its_own_is_found() {
    is_found("(env -i setsid sleep 611 >/dev/null 2>&1 &)", "sleep 611");
}

/// As `labproxy-remote`: started from a descriptor without a path, under a name that tells nothing.
#[test]
fn a_program_without_a_file_is_found() {
    let script = "python3 -c '\
        import os\n\
        held = os.memfd_create(\"held\")\n\
        os.write(held, open(\"/bin/sleep\", \"rb\").read())\n\
        if os.fork() == 0:\n \
        os.setsid()\n \
        os.dup2(os.open(\"/dev/null\", os.O_RDWR), 1)\n \
        os.dup2(1, 2)\n \
        os.execve(held, [\"nameless\", \"612\"], {})\n'";
    is_found(script, "memfd:held");
}

/// What ends while it is waited for was not left, and the program's own status is passed on.
#[test]
fn what_ends_soon_was_not_left() {
    let output = watched("(setsid sleep 0.2 >/dev/null 2>&1 &) ; exit 7", "60");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
}

/// A failed program keeps its status, whatever it left.
#[test]
fn a_failure_is_not_hidden_by_what_was_left() {
    let output = watched("(setsid sleep 613 >/dev/null 2>&1 &) ; exit 7", "0.5");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(output.stderr.starts_with(b"left behind"), "{output:?}");
}

/// `.ci/run` goes its steps under this watch.
#[test]
fn the_run_is_watched() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run");
    let text = std::fs::read_to_string(run).unwrap();
    assert!(text.contains("\n.ci/alone.py .ci/run steps\n"), "{text}");
}
