//! Disks that fail: the process takes nothing more, and what it told stays true.

use std::path::Path;
use std::process::Command;

use labproxy::ledger::LedgerError;

use crate::bench::{fill, open, open_at, paths, problems, read, request, session};
use crate::child::{Work, command, told};
use crate::disk::library;

/// Requests the child tries.
const REQUESTS: u32 = 20;

/// Runs the child on a disk that fails; returns what it told.
fn run_on_failing_disk(directory: &Path, fault: &str) -> Vec<Vec<String>> {
    let output = command(directory, Work::Requests(REQUESTS), 3)
        .env("LD_PRELOAD", library(directory))
        .env("DISK_FAIL", fault)
        .env("DISK_DIR", directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    told(&String::from_utf8(output.stdout).unwrap())
}

fn count(lines: &[Vec<String>], word: &str) -> usize {
    lines.iter().filter(|line| line[0] == word).count()
}

/// What was told as served is in the ledger after a restart, and the chain is sound.
fn assert_told_is_kept(directory: &Path, lines: &[Vec<String>]) {
    let session = &lines.iter().find(|line| line[0] == "session").unwrap()[1];
    let entries = format!("{:?}", read(directory, &session.parse().unwrap()));
    for line in lines.iter().filter(|line| line[0] == "served") {
        assert!(entries.contains(&line[1]), "{line:?}");
    }
    drop(open(directory).unwrap());
    assert_eq!(problems(directory), Vec::<String>::new());
}

/// L04: after a failed sync nobody knows which pages are on the disk, so nothing is tried again:
/// each later request is refused until labproxy is started again.
#[test]
fn l04_a_failed_sync_poisons_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let lines = run_on_failing_disk(directory.path(), "sync:-wal:9:5");
    let served = count(&lines, "served");
    assert!((1..20).contains(&served), "{lines:?}");
    assert_eq!(count(&lines, "refused"), 1, "{lines:?}");
    assert_eq!(
        count(&lines, "denied"),
        1,
        "the account is closed then: {lines:?}"
    );
    assert!(lines.contains(&vec!["poisoned".into(), "true".into()]));
    assert_told_is_kept(directory.path(), &lines);
}

/// K14: a full disk (`ENOSPC`), a broken one (`EIO`) and a read-only one (`EROFS`) refuse requests;
/// none is granted without a durable hold.
#[test]
fn k14_a_write_error_refuses_and_grants_nothing() {
    for fault in ["write:-wal:60:28", "write:-wal:45:5", "write:-wal:30:30"] {
        let directory = tempfile::tempdir().unwrap();
        let lines = run_on_failing_disk(directory.path(), fault);
        assert!(count(&lines, "served") < 20, "{fault}: {lines:?}");
        assert_eq!(count(&lines, "refused"), 1, "{fault}: {lines:?}");
        assert!(
            lines.contains(&vec!["poisoned".into(), "true".into()]),
            "{fault}"
        );
        assert_told_is_kept(directory.path(), &lines);
    }
}

/// A high-water file that cannot be written poisons too: a rollback could not be told any more.
#[test]
fn a_high_water_file_that_cannot_be_written_poisons() {
    let directory = tempfile::tempdir().unwrap();
    let lines = run_on_failing_disk(directory.path(), "write:high-water:6:5");
    assert!(count(&lines, "served") < 20, "{lines:?}");
    assert!(
        lines.contains(&vec!["poisoned".into(), "true".into()]),
        "{lines:?}"
    );
    assert_told_is_kept(directory.path(), &lines);
}

/// A ledger that cannot even be opened is an error that names the file.
#[test]
fn a_ledger_that_cannot_be_written_does_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = open(&file.join("below")).unwrap_err();
    assert!(
        matches!(&error, LedgerError::Io { path, .. } if path.starts_with(&file)),
        "{error}"
    );
    let (path, _) = paths(directory.path());
    std::fs::write(
        &path,
        "this is not a database, and long enough to be looked at",
    )
    .unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, LedgerError::NotALedger { .. }), "{error}");
}

/// T25: when the disk is nearly full no new hold is taken, and those in flight are still settled.
///
/// Needs a small disk: a tmpfs in a mount namespace of its own, where this machine allows one.
#[test]
fn t25_a_nearly_full_disk_refuses_holds_and_takes_settlements() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=40m none "$0" && exec "$@""#;
    let status = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "faults::small_disk", "--ignored", "--nocapture"])
        .env("LABPROXY_TEST_SMALL_DISK", directory.path())
        .output();
    match status {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare") => {
            eprintln!("not shown here: this machine allows no mount namespace");
        }
        other => panic!("{other:?}"),
    }
}

/// Not a test by itself: runs on the small disk.
#[tokio::test]
#[ignore = "started by another test on a small disk"]
async fn small_disk() {
    let Some(directory) = std::env::var_os("LABPROXY_TEST_SMALL_DISK") else {
        return;
    };
    let directory = Path::new(&directory);
    let ledger = open(directory).unwrap();
    fill(&ledger, 5).await;
    let (session, early) = (session(), request());
    let begin = vec![crate::bench::opened(1_000), crate::bench::held(&early, 10)];
    ledger.append(&session, begin).await.unwrap();
    std::fs::write(directory.join("ballast"), vec![1; 30 << 20]).unwrap();
    let late = crate::bench::held(&request(), 10);
    let error = ledger
        .append(&session, vec![late.clone()])
        .await
        .unwrap_err();
    assert!(matches!(*error, LedgerError::LowSpace { .. }), "{error}");
    let settled = crate::bench::settled(&early, 10);
    ledger.append(&session, vec![settled]).await.unwrap();
    assert!(!ledger.is_poisoned());
    std::fs::remove_file(directory.join("ballast")).unwrap();
    ledger.append(&session, vec![late]).await.unwrap();
}

/// An entry that another process's lock keeps out for too long fails alone; the ledger goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_locked_by_another_process_is_waited_for_and_does_not_poison() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open_at(
        directory.path(),
        crate::bench::clock(crate::bench::NOON),
        None,
    )
    .unwrap();
    let known = fill(&ledger, 5).await;
    let (session, early) = (session(), request());
    let begin = vec![crate::bench::opened(1_000), crate::bench::held(&early, 10)];
    ledger.append(&session, begin).await.unwrap();
    let other = rusqlite::Connection::open(paths(directory.path()).0).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // A settlement that nobody waits for, and a hold that somebody waits for.
    ledger.append_later(&session, vec![crate::bench::settled(&early, 10)]);
    let late = request();
    let error = ledger
        .append(&session, vec![crate::bench::held(&late, 10)])
        .await
        .unwrap_err();
    assert!(matches!(*error, LedgerError::Busy { .. }), "{error}");
    // The client of the hold that failed leaves: there is nothing to release.
    let released = labproxy::ledger::Entry::Released {
        request: late,
        reason: "gone".into(),
        end: None,
    };
    ledger.append_later(&session, vec![released]);
    other.execute_batch("ROLLBACK").unwrap();
    ledger.flush().await.unwrap();
    assert!(!ledger.is_poisoned());
    assert_eq!(read(directory.path(), &session).len(), 3);
    assert_eq!(read(directory.path(), &known).len(), 3);
    assert_eq!(problems(directory.path()), Vec::<String>::new());
}
