//! T26: a ledger that was cut, rolled back, copied or forged is named as such.

use std::path::Path;

use labproxy::ledger::{Ledger, LedgerError, Reader, accept_head};
use labproxy::receipt::{Receipt, check};
use rusqlite::Connection;

use crate::bench::{fill, open, paths, pico, problems, read, verify, wait_until};

/// Ends the writer, so that the file is whole and closed.
async fn close(directory: &Path, ledger: Ledger) {
    ledger.flush().await.unwrap();
    drop(ledger);
    let log = paths(directory).0.with_extension("sqlite-wal");
    wait_until("the writer closes the ledger", || !log.exists());
}

/// A database connection for a forger, who is not stopped by triggers.
fn forger(directory: &Path) -> Connection {
    let connection = Connection::open(paths(directory).0).unwrap();
    connection
        .execute_batch("DROP TRIGGER entry_is_never_changed; DROP TRIGGER entry_is_never_removed")
        .unwrap();
    connection
}

async fn ledger_of(sessions: u64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path()).unwrap();
    for charged in 1..=sessions {
        fill(&ledger, charged).await;
    }
    close(directory.path(), ledger).await;
    directory
}

/// A tail that was cut off is told by the high-water file, at the next start and by `verify`.
#[tokio::test]
async fn t26_a_cut_tail_is_named() {
    let directory = ledger_of(3).await;
    let connection = forger(directory.path());
    connection
        .execute_batch(
            "DELETE FROM entry WHERE seq > 6; DELETE FROM session WHERE first_seq > 6;
             UPDATE sum SET pico_usd = 3 WHERE name = '2026-11-30';",
        )
        .unwrap();
    drop(connection);
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(
            error,
            LedgerError::RolledBack {
                head: 6,
                high_water: 9,
                ..
            }
        ),
        "{error}"
    );
    let found = problems(directory.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("ends at entry 6 and had reached entry 9"),
        "{found:?}"
    );
}

/// An older copy of the whole file is told too; an operator who knows why may go on with it.
#[tokio::test]
async fn t26_a_rolled_back_file_is_named_and_may_be_accepted() {
    let directory = ledger_of(2).await;
    let (path, anchor) = paths(directory.path());
    let old = std::fs::read(&path).unwrap();
    let ledger = open(directory.path()).unwrap();
    fill(&ledger, 1).await;
    close(directory.path(), ledger).await;
    std::fs::write(&path, old).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(
            error,
            LedgerError::RolledBack {
                head: 6,
                high_water: 9,
                ..
            }
        ),
        "{error}"
    );
    assert!(accept_head(&path, &anchor).unwrap().is_sound());
    let ledger = open(directory.path()).unwrap();
    fill(&ledger, 1).await;
    assert_eq!(problems(directory.path()), Vec::<String>::new());
}

/// An older copy that was gone on with has another entry where the high-water file points.
#[tokio::test]
async fn t26_a_fork_is_named() {
    let directory = ledger_of(2).await;
    let (path, anchor) = paths(directory.path());
    let old = (
        std::fs::read(&path).unwrap(),
        std::fs::read(&anchor).unwrap(),
    );
    let ledger = open(directory.path()).unwrap();
    fill(&ledger, 1).await;
    close(directory.path(), ledger).await;
    let newest = std::fs::read(&anchor).unwrap();
    std::fs::write(&path, old.0).unwrap();
    std::fs::write(&anchor, old.1).unwrap();
    let ledger = open(directory.path()).unwrap();
    fill(&ledger, 2).await;
    close(directory.path(), ledger).await;
    std::fs::write(&anchor, newest).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(error, LedgerError::Forked { seq: 9, .. }),
        "{error}"
    );
}

/// The high-water file cannot be lost, damaged or exchanged in silence.
#[tokio::test]
async fn t26_a_lost_damaged_or_foreign_high_water_file_is_named() {
    let directory = ledger_of(2).await;
    let (_, anchor) = paths(directory.path());
    let whole = std::fs::read(&anchor).unwrap();
    std::fs::remove_file(&anchor).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(error, LedgerError::AnchorMissing { head: 6, .. }),
        "{error}"
    );
    std::fs::write(&anchor, [b'x'; 400]).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(error, LedgerError::AnchorDamaged { .. }),
        "{error}"
    );
    let other = ledger_of(1).await;
    std::fs::copy(paths(other.path()).1, &anchor).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(error, LedgerError::AnchorForeign { .. }),
        "{error}"
    );
    std::fs::write(&anchor, whole).unwrap();
    open(directory.path()).unwrap();
}

/// A ledger that was made on another machine is refused, with what to do.
#[tokio::test]
async fn t26_a_copy_from_another_machine_is_refused() {
    let directory = ledger_of(1).await;
    let (path, _) = paths(directory.path());
    Connection::open(&path)
        .unwrap()
        .execute(
            "INSERT OR REPLACE INTO meta VALUES ('machine', 'another')",
            [],
        )
        .unwrap();
    match open(directory.path()) {
        Err(LedgerError::ForeignMachine { .. }) => {}
        Ok(_) => assert!(
            !Path::new("/etc/machine-id").exists(),
            "a machine with a name must refuse"
        ),
        Err(other) => panic!("{other}"),
    }
}

/// Every single change of any column of any entry is named by `verify`, at that entry.
#[tokio::test]
async fn t26_a_forged_entry_is_named() {
    let forgeries = [
        // Behind the kind and the request's name stands what was charged.
        "UPDATE entry SET body = CAST(substr(body, 1, 32) || x'01' || substr(body, 34) AS BLOB)
         WHERE seq = 6 AND hex(substr(body, 33, 1)) = '02'",
        "UPDATE entry SET body = CAST(body || ' ' AS BLOB) WHERE seq = 6",
        "UPDATE entry SET at = at + 1 WHERE seq = 6",
        "UPDATE entry SET session = 1 WHERE seq = 6",
        "UPDATE entry SET hash = zeroblob(32) WHERE seq = 6",
        "DELETE FROM entry WHERE seq = 6",
    ];
    for forgery in forgeries {
        let directory = ledger_of(3).await;
        assert!(verify(directory.path()).is_sound());
        assert_eq!(forger(directory.path()).execute(forgery, []).unwrap(), 1);
        let found = problems(directory.path());
        let names_it = |text: &String| text.starts_with("entry 6:") || text.starts_with("entry 7:");
        assert!(found.iter().any(names_it), "{forgery}: {found:?}");
    }
}

/// Entries cannot even be changed by accident.
#[tokio::test]
async fn entries_are_never_changed_or_removed() {
    let directory = ledger_of(1).await;
    let connection = Connection::open(paths(directory.path()).0).unwrap();
    for change in ["UPDATE entry SET at = 0", "DELETE FROM entry"] {
        let error = connection.execute(change, []).unwrap_err();
        assert!(error.to_string().contains("never"), "{error}");
    }
}

/// A forged sum, which would open the daily ceiling, is named.
#[tokio::test]
async fn t26_a_forged_sum_is_named() {
    let directory = ledger_of(2).await;
    forger(directory.path())
        .execute("UPDATE sum SET pico_usd = 1 WHERE name = '2026-11-30'", [])
        .unwrap();
    let found = problems(directory.path());
    assert_eq!(
        found,
        ["the sum '2026-11-30' says $0.000000000001, its entries $0.000000000003"]
    );
}

/// A receipt is checked against the ledger: the true one passes, a forged amount, a forged hash and
/// a receipt of another ledger do not.
#[tokio::test]
async fn t26_a_forged_receipt_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path()).unwrap();
    let session = fill(&ledger, 77).await;
    let (path, _) = paths(directory.path());
    let receipt = Receipt::fold(&session, &read(directory.path(), &session)).unwrap();
    assert_eq!(receipt.spent_pico_usd, pico(77));
    // Later entries of other sessions do not matter.
    fill(&ledger, 1).await;
    assert_eq!(check(&Reader::open(&path).unwrap(), &receipt).unwrap(), []);
    let mut forged = receipt.clone();
    forged.spent_pico_usd = pico(7);
    let found = check(&Reader::open(&path).unwrap(), &forged).unwrap();
    assert_eq!(
        found[0].to_string(),
        "the receipt says spent_pico_usd is 7, and the ledger says 77"
    );
    let other = tempfile::tempdir().unwrap();
    fill(&open(other.path()).unwrap(), 77).await;
    let found = check(&Reader::open(&paths(other.path()).0).unwrap(), &receipt).unwrap();
    assert!(found[0].what.contains("another hash"), "{found:?}");
    let short = Reader::open(&path).unwrap().head().unwrap();
    let mut beyond = receipt;
    beyond.ledger.seq = short.seq + 1;
    let found = check(&Reader::open(&path).unwrap(), &beyond).unwrap();
    assert!(found[0].what.contains("does not have"), "{found:?}");
}
