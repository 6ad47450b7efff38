//! Old ledgers open, newer ones are refused, other files are not touched.

use std::path::Path;

use labproxy::ledger::{Entry, LedgerError, Reader};
use labproxy::receipt::Receipt;
use rusqlite::Connection;

use crate::bench::{fill, open, paths, pico, problems, read};
use crate::receipts::{SESSION, every_kind, name};

/// Ledgers that versions 1 and 2 wrote open, verify, and give their receipts; they can be gone on
/// with. What both of them write is the same but for audits.
#[tokio::test]
async fn ledgers_of_older_versions_open() {
    for version in [1, 2] {
        an_older_ledger_opens(version).await;
    }
}

async fn an_older_ledger_opens(version: i64) {
    let directory = tempfile::tempdir().unwrap();
    let (path, anchor) = paths(directory.path());
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger/v1");
    let script = std::fs::read_to_string(frozen.join("ledger.sql")).unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&script).unwrap();
    connection
        .pragma_update(None, "user_version", version)
        .unwrap();
    drop(connection);
    std::fs::copy(frozen.join("high-water"), &anchor).unwrap();
    let ledger = open(directory.path()).unwrap();
    assert_eq!(problems(directory.path()), Vec::<String>::new());
    let session = SESSION.parse().unwrap();
    let receipt = Receipt::fold(&session, &read(directory.path(), &session)).unwrap();
    let expected = std::fs::read_to_string(frozen.join("receipt.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(serde_json::to_value(&receipt).unwrap(), expected);
    fill(&ledger, 1).await;
    assert_eq!(problems(directory.path()), Vec::<String>::new());
    assert_eq!(receipt.spent_pico_usd, pico(1_127));
}

/// Not a test: writes a ledger of today's version where the variable says, to be frozen.
#[tokio::test]
#[ignore = "run by hand when the schema gets a new version"]
async fn freeze() {
    let Some(directory) = std::env::var_os("LABPROXY_TEST_FREEZE") else {
        return;
    };
    let directory = Path::new(&directory);
    let ledger = open(directory).unwrap();
    let session = SESSION.parse().unwrap();
    ledger.store_price_file("d1", "# prices").await.unwrap();
    let mut entries = every_kind();
    let correction = 9;
    assert!(matches!(entries[correction], Entry::Corrected { .. }));
    let rest = entries.split_off(correction + 1);
    entries.pop();
    ledger.append(&session, entries).await.unwrap();
    let reason = "the provider's console shows it";
    ledger
        .correct(&session, name('d'), pico(100), reason)
        .await
        .unwrap();
    ledger.append(&session, rest).await.unwrap();
    let receipt = Receipt::fold(&session, &read(directory, &session)).unwrap();
    let text = serde_json::to_string_pretty(&receipt).unwrap();
    std::fs::write(directory.join("receipt.json"), text + "\n").unwrap();
}

/// A ledger of a newer schema is refused and left as it is.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fill(&open(directory.path()).unwrap(), 1).await;
    let connection = Connection::open(paths(directory.path()).0).unwrap();
    connection.pragma_update(None, "user_version", 4).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(
            error,
            LedgerError::NewerSchema {
                found: 4,
                known: 3,
                ..
            }
        ),
        "{error}"
    );
}

/// Another program's database is refused and left as it is.
#[test]
fn another_database_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = paths(directory.path());
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE mine(x)").unwrap();
    drop(connection);
    let before = std::fs::read(&path).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, LedgerError::NotALedger { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// Whoever looks while the first ledger is made sees none yet, or a whole one; never somebody else's.
#[test]
fn a_ledger_that_is_being_made_is_not_taken_for_anothers() {
    for _ in 0..100 {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = paths(directory.path());
        std::thread::scope(|scope| {
            let made = scope.spawn(|| open(directory.path()).unwrap());
            loop {
                match Reader::open(&path) {
                    Ok(_) => break,
                    Err(LedgerError::Empty { .. }) => {}
                    Err(LedgerError::NotALedger { what, .. }) => panic!("{what}"),
                    // The file is not there, or is locked for a moment.
                    Err(_) => std::thread::yield_now(),
                }
            }
            drop(made.join().unwrap());
        });
    }
}
