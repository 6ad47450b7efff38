//! T20: the daily ceiling over all sessions of a user.

use labproxy::ledger::LedgerError;

use crate::bench::{clock, held, open_at, opened, pico, request, session, settled};

/// Two processes with a session each cannot pass the ceiling together: charges of the day and open
/// holds count, and the next day begins at zero.
#[tokio::test]
async fn t20_two_sessions_cannot_pass_the_daily_ceiling() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock("2026-11-30T23:00:00Z");
    let open = || open_at(directory.path(), clock.clone(), Some(pico(100))).unwrap();
    let (one, other) = (open(), open());
    let (first, second) = (session(), session());
    let charged = request();
    let begin = vec![opened(1_000), held(&charged, 60)];
    one.append(&first, begin).await.unwrap();
    other.append(&second, vec![opened(1_000)]).await.unwrap();
    let error = other
        .append(&second, vec![held(&request(), 41)])
        .await
        .unwrap_err();
    assert!(
        matches!(*error, LedgerError::Daily { ceiling, spent }
            if (ceiling, spent) == (pico(100), pico(60))),
        "{error}"
    );
    let open_hold = request();
    other
        .append(&second, vec![held(&open_hold, 40)])
        .await
        .unwrap();
    // Charged less than was held: there is room for that again.
    one.append(&first, vec![settled(&charged, 50)])
        .await
        .unwrap();
    let late = request();
    one.append(&first, vec![held(&late, 10)]).await.unwrap();
    let error = one
        .append(&first, vec![held(&request(), 1)])
        .await
        .unwrap_err();
    assert!(matches!(*error, LedgerError::Daily { .. }), "{error}");
    // On the next UTC day only what is still held counts.
    clock.set("2026-12-01T00:00:00Z".parse().unwrap());
    other
        .append(&second, vec![held(&request(), 50)])
        .await
        .unwrap();
    let error = other
        .append(&second, vec![held(&request(), 1)])
        .await
        .unwrap_err();
    assert!(
        matches!(*error, LedgerError::Daily { spent, .. } if spent == pico(100)),
        "{error}"
    );
    // A refused hold leaves nothing behind, and the ledger goes on.
    assert!(!other.is_poisoned());
}
