//! What must hold for a ledger whose files were changed in any way: it opens or is refused with a
//! named error, and it verifies only when every entry is what it was. Used by the fuzz target and by
//! the replay of its seeds.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use labproxy::clock::ManualClock;
use labproxy::id::SessionId;
use labproxy::ledger::{Entry, Ledger, LedgerOptions, Reader, Recorded};
use rusqlite::Connection;

/// The frozen ledger that is changed.
const SCRIPT: &str = include_str!("v1/ledger.sql");
const HIGH_WATER: &[u8] = include_bytes!("v1/high-water");
const SESSION: &str = "ses_vonevonevonevonevonevonevo";
/// Bytes of one change: which file and how, where (four bytes), what.
const CHANGE: usize = 6;

struct Frozen {
    database: Vec<u8>,
    entries: Vec<Recorded>,
}

static FROZEN: LazyLock<Frozen> = LazyLock::new(|| {
    let directory = directory();
    let path = directory.path().join("ledger.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(SCRIPT).unwrap();
    drop(connection);
    Frozen {
        database: std::fs::read(&path).unwrap(),
        entries: Reader::open(&path).unwrap().session(&session()).unwrap(),
    }
});

fn session() -> SessionId {
    SESSION.parse().unwrap()
}

/// In memory where that is possible: thousands of ledgers are made.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Changes the frozen ledger's files as `input` says and checks what comes of it.
pub(crate) fn check(input: &[u8]) {
    let mut database = FROZEN.database.clone();
    let mut high_water = HIGH_WATER.to_vec();
    for change in input.chunks_exact(CHANGE) {
        let file = if change[0] & 1 == 0 {
            &mut database
        } else {
            &mut high_water
        };
        let place = u32::from_le_bytes([change[1], change[2], change[3], change[4]]);
        if file.is_empty() {
            continue;
        }
        let place = place as usize % file.len();
        match change[0] >> 1 & 3 {
            0 | 1 => file[place] = change[5],
            2 => file[place] ^= change[5],
            _ => file.truncate(place),
        }
    }
    let directory = directory();
    let path = directory.path().join("ledger.sqlite");
    let anchor = directory.path().join("high-water");
    std::fs::write(&path, &database).unwrap();
    std::fs::write(&anchor, &high_water).unwrap();
    let verified = labproxy::ledger::verify(&path, &anchor);
    if verified.is_ok_and(|verified| verified.is_sound()) {
        let entries = Reader::open(&path).unwrap().session(&session()).unwrap();
        assert_eq!(entries, FROZEN.entries, "a changed ledger verified");
    }
    open_and_append(&path, &anchor);
}

/// Opens it as a session does, and appends: any answer will do, but there must be one.
fn open_and_append(path: &Path, anchor: &Path) {
    let ledger = Ledger::open(LedgerOptions {
        path: path.to_owned(),
        anchor: anchor.to_owned(),
        daily_ceiling: None,
        clock: Arc::new(ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap())),
    });
    let Ok(ledger) = ledger else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let counted = Entry::RefusedMore {
            count: 1,
            needed: None,
        };
        let work = async {
            let appended = ledger.append(&session(), vec![counted]).await;
            let kept = ledger.keep_open_holds(&session(), "fuzz").await;
            (appended.is_ok(), kept.is_ok())
        };
        let answer = tokio::time::timeout(Duration::from_secs(20), work).await;
        assert!(answer.is_ok(), "the writer does not answer");
    });
}
