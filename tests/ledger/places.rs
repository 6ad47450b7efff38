//! `labproxy ledger` on disks that are full or read-only, and with files it may not or cannot read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use labproxy::ledger::{Ledger, LedgerOptions};

use crate::bench::{NOON, clock, fill};

const BINARY: &str = env!("CARGO_BIN_EXE_labproxy");
const FILE: &str = "labproxy/ledger.sqlite3";

async fn ledger(state: &Path) -> (Ledger, String) {
    let ledger = Ledger::open(LedgerOptions {
        path: state.join(FILE),
        anchor: state.join("labproxy/ledger.anchor"),
        daily_ceiling: None,
        clock: clock(NOON),
    })
    .unwrap();
    let session = fill(&ledger, 77).await.to_string();
    (ledger, session)
}

/// A state directory whose ledger nobody has open.
async fn at_rest() -> (tempfile::TempDir, String) {
    let state = tempfile::tempdir().unwrap();
    let (ledger, session) = ledger(state.path()).await;
    drop(ledger);
    let begun = Instant::now();
    while state.path().join(format!("{FILE}-wal")).exists() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (state, session)
}

/// A state directory as a power cut leaves it: entries wait in the log. With or without the log's
/// shared memory.
async fn waiting(with_memory: bool) -> (tempfile::TempDir, String) {
    let made = tempfile::tempdir().unwrap();
    let (open, session) = ledger(made.path()).await;
    let state = tempfile::tempdir().unwrap();
    fs::create_dir(state.path().join("labproxy")).unwrap();
    let memory = format!("{FILE}-shm");
    let files = [
        FILE,
        "labproxy/ledger.anchor",
        &format!("{FILE}-wal"),
        &memory,
    ];
    for name in &files[..if with_memory { 4 } else { 3 }] {
        fs::copy(made.path().join(name), state.path().join(name)).unwrap();
    }
    drop(open);
    (state, session)
}

fn labproxy(program: &mut Command, state: &Path) -> Output {
    program
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", state)
        .env("XDG_STATE_HOME", state)
        .current_dir("/")
        .output()
        .unwrap()
}

/// Runs a command with a copy of `state` on a disk of its own, which `how` prepares: `ro` or `full`.
/// `None` where this machine allows no mount namespace.
#[expect(clippy::print_stderr, reason = "a test tells what it could not show")]
fn on_disk(how: &str, state: &Path, line: &str) -> Option<Output> {
    const SCRIPT: &str = r#"set -e
        mount -t tmpfs -o size=2m none /mnt
        cp -a "$1/." /mnt
        if [ "$0" = full ]; then cat /dev/zero > /mnt/ballast 2> /dev/null || true
        else mount -o remount,ro /mnt; fi
        shift
        HOME=/mnt XDG_STATE_HOME=/mnt exec "$@""#;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-r", "-m", "sh", "-c", SCRIPT, how])
        .arg(state);
    unshare.arg(BINARY).args(line.split(' '));
    let output = labproxy(&mut unshare, state);
    let is_refused = String::from_utf8_lossy(&output.stderr).contains("unshare:");
    if is_refused {
        eprintln!("not shown here: this machine allows no mount namespace");
    }
    (!is_refused).then_some(output)
}

/// That the command failed and names the file, what is wrong and what helps, in clear sentences.
fn assert_told(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ledger.sqlite3"), "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn reading(session: &str) -> [String; 4] {
    let show = format!("ledger show {session}");
    ["ledger list", "ledger export", "ledger verify", &show].map(str::to_owned)
}

/// Reading needs no writable disk: neither with a ledger at rest nor with a whole log beside it.
#[tokio::test]
async fn b09_a_ledger_on_a_full_or_read_only_disk_is_read() {
    for (state, session) in [at_rest().await, waiting(true).await] {
        for how in ["ro", "full"] {
            for line in reading(&session) {
                let usual = labproxy(Command::new(BINARY).args(line.split(' ')), state.path());
                assert!(usual.status.success(), "{usual:?}");
                let Some(output) = on_disk(how, state.path(), &line) else {
                    return;
                };
                assert!(output.status.success(), "{how} {line}: {output:?}");
                assert_eq!(output.stdout, usual.stdout, "{how} {line}");
            }
        }
    }
}

/// Where entries wait in a log that cannot be read there, nothing is left out in silence.
#[tokio::test]
async fn b09_what_cannot_be_read_on_a_full_or_read_only_disk_says_why() {
    let (state, session) = waiting(false).await;
    for line in reading(&session) {
        let Some(output) = on_disk("ro", state.path(), &line) else {
            return;
        };
        assert_told(&output, &["its disk is read-only. Mount it for writing"]);
        let output = on_disk("full", state.path(), &line).unwrap();
        assert_told(&output, &["its disk is full. Free some space"]);
    }
}

/// A file of another user, and a damaged one.
#[tokio::test]
async fn b09_a_foreign_or_damaged_ledger_says_what_to_do() {
    let (state, _session) = at_rest().await;
    let file = state.path().join(FILE);
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--clear-groups", BINARY]);
        other
    } else {
        Command::new(BINARY)
    };
    let output = labproxy(command.args(["ledger", "list"]), state.path());
    assert_told(&output, &["this user may not do that. Use the user whose"]);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100..4096].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    let output = labproxy(Command::new(BINARY).args(["ledger", "list"]), state.path());
    assert_told(&output, &["the file is damaged. Keep it as it is"]);
}
