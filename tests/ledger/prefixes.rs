//! Every prefix of the recorded writes is a ledger that can be gone on with.

use labproxy::id::SessionId;
use labproxy::ledger::{Reader, Recorded};

use crate::bench::{Numbers, open, paths, problems};
use crate::child::{Work, command, told};
use crate::disk::{Change, Files, Names, library, read_log};

/// Requests of the recorded run: two commits each.
const REQUESTS: u32 = 12;

fn record() -> Vec<Change> {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let output = command(&directory.path().join("state"), Work::Requests(REQUESTS), 7)
        .env("LD_PRELOAD", library(directory.path()))
        .env("DISK_LOG", &log)
        .env("DISK_DIR", directory.path().join("state"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    read_log(&log)
}

/// What the process had told its parent by then.
fn told_before(changes: &[Change]) -> Vec<Vec<String>> {
    let lines: String = changes
        .iter()
        .filter_map(|change| match change {
            Change::Told(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    told(&lines)
}

/// Opens what a crash left, as the next start does, and checks that it holds what was told.
async fn check(files: &Files, told: &[Vec<String>], what: &str) {
    let directory = tempfile::tempdir().unwrap();
    files.write_to(directory.path());
    let ledger = open(directory.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let reader = Reader::open(&paths(directory.path()).0).unwrap();
    for session in reader.sessions_with_open_holds().unwrap() {
        ledger.keep_open_holds(&session, "crash").await.unwrap();
    }
    assert_eq!(problems(directory.path()), Vec::<String>::new(), "{what}");
    let session = told.iter().find(|line| line[0] == "session");
    let entries: Vec<Recorded> = session.map_or_else(Vec::new, |line| {
        let session: SessionId = line[1].parse().unwrap();
        reader.session(&session).unwrap()
    });
    let text = format!("{entries:?}");
    for line in told.iter().filter(|line| line[0] == "served") {
        assert!(text.contains(&line[1]), "{what}: {} is lost", line[1]);
    }
}

/// The recorded run has what a run on a disk has: syncs, a checkpoint into the database, and the
/// high-water file; and each told line stands behind a sync of the log.
#[tokio::test]
async fn every_prefix_of_the_recorded_writes_reopens_with_all_that_was_told() {
    let changes = record();
    let writes_to = |name: &str| {
        let is_it = |change: &&Change| matches!(change, Change::Write { file, .. } if file == name);
        changes.iter().filter(is_it).count()
    };
    assert!(writes_to("ledger.sqlite-wal") > 50);
    assert!(writes_to("ledger.sqlite") > 5);
    assert!(writes_to("high-water") > 12);
    for length in 0..=changes.len() {
        let prefix = &changes[..length];
        let told = told_before(prefix);
        check(
            &Files::after(prefix),
            &told,
            &format!("after {length} changes"),
        )
        .await;
    }
    let told = told_before(&changes);
    assert_eq!(told.iter().filter(|line| line[0] == "served").count(), 12);
}

/// A power cut may also lose writes that were not synced, in any combination: what was told is
/// there all the same.
#[tokio::test]
async fn a_power_cut_that_loses_unsynced_writes_loses_nothing_told() {
    let changes = record();
    for length in (0..=changes.len()).step_by(3) {
        for seed in 0..3 {
            let prefix = &changes[..length];
            let mut numbers = Numbers(seed + 1_000 * length as u64);
            let choose = &mut || numbers.below(2) == 1;
            let files = Files::after_power_cut(prefix, Names::Stay, choose);
            let what = format!("after {length} changes, seed {seed}");
            check(&files, &told_before(prefix), &what).await;
        }
    }
}
