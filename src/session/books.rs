//! What a session writes into the ledger and reads from it.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use super::owner::OwnerLock;
use super::slot::{Slot, clear_dead_sockets, make_private, opened_entry};
use super::start::Plan;
use crate::clock::SharedClock;
use crate::config::{Config, Paths};
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Ledger, LedgerError, LedgerOptions, Reader, Recorded};
use crate::money::PicoUsd;
use crate::receipt::Receipt;
use crate::report::Failure;

/// Why a hold is kept when its owner died.
const OWNER_GONE: &str = "labproxy ended without settling it";

/// Opens the ledger.
///
/// # Errors
/// When it cannot be trusted or written.
pub fn open(paths: &Paths, config: &Config, clock: SharedClock) -> Result<Ledger, Failure> {
    Ledger::open(LedgerOptions {
        path: paths.ledger(),
        anchor: paths.anchor(),
        daily_ceiling: config.limits.daily_usd.as_ref().map(|usd| usd.value),
        clock,
    })
    .map_err(|error| Failure::because("the ledger cannot be used, so nothing is sent", &error))
}

/// Keeps the open holds of every session whose owner is gone, and removes such sessions' sockets.
///
/// # Errors
/// When the ledger cannot be read or written.
pub fn recover(ledger: &Ledger, paths: &Paths) -> Result<Vec<(SessionId, PicoUsd)>, Failure> {
    clear_dead_sockets(paths);
    let open = Reader::open(ledger.path())
        .and_then(|reader| reader.sessions_with_open_holds())
        .map_err(|error| Failure::because("the ledger cannot be read", &error))?;
    let mut kept = Vec::new();
    for session in open {
        // A session whose directory is gone has no owner either; its lock is made for the moment.
        let directory = paths.session(&session);
        let was_there = directory.exists();
        if !was_there {
            make_private(&directory)?;
        }
        // Held: its owner lives and settles its own.
        let Ok(lock) = OwnerLock::take(&directory) else {
            continue;
        };
        let amount = keep(ledger, &session)?;
        if !was_there {
            let _empty_but_for_the_lock = std::fs::remove_dir_all(&directory);
        }
        drop(lock);
        if amount > PicoUsd::ZERO {
            kept.push((session, amount));
        }
    }
    Ok(kept)
}

/// Keeps the open holds of one session, whose lock the caller has.
///
/// # Errors
/// When the ledger cannot be read or written.
pub fn keep(ledger: &Ledger, session: &SessionId) -> Result<PicoUsd, Failure> {
    wait(ledger.keep_open_holds(session, OWNER_GONE))?
        .map_err(|error| Failure::because("open holds cannot be settled", &*error))
}

/// Waits for the ledger's writer, from outside any runtime.
fn wait<T>(outcome: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::because("the runtime cannot be started", &error))?;
    Ok(runtime.block_on(outcome))
}

/// Writes the entry that opens a session, and waits until it is durable.
///
/// # Errors
/// When the ledger does not take it.
pub async fn opened(
    ledger: &Ledger,
    slot: &Slot,
    cap: PicoUsd,
    plan: &Plan,
) -> Result<(), Failure> {
    let refused = |error: Arc<LedgerError>| {
        Failure::because(
            "the ledger does not take the session, so nothing is sent",
            &*error,
        )
    };
    ledger
        .store_price_file(&plan.book.digest().0, plan.book.effective_toml())
        .await
        .map_err(refused)?;
    ledger
        .append(&slot.session, vec![opened_entry(slot, cap, plan)])
        .await
        .map_err(refused)
}
/// Appends one entry and waits until it is durable, from outside any runtime.
///
/// # Errors
/// When the ledger does not take it.
pub fn append_now(ledger: &Ledger, session: &SessionId, entry: Entry) -> Result<(), Failure> {
    wait(ledger.append(session, vec![entry]))?
        .map_err(|error| Failure::because("the ledger does not take the entry", &*error))
}

/// Charges a request whose whole hold was kept with `charged` instead, from outside any runtime.
///
/// # Errors
/// When the hold was not kept, or the ledger does not take the entry.
pub fn correct(
    ledger: &Ledger,
    session: &SessionId,
    request: RequestId,
    charged: PicoUsd,
    reason: &str,
) -> Result<(), Failure> {
    wait(ledger.correct(session, request, charged, reason))?
        .map_err(|error| Failure::because("the charge is not corrected", &*error))
}

/// Every entry of a session, in order.
///
/// # Errors
/// When the ledger cannot be read or has no such session.
pub fn entries(path: &Path, session: &SessionId) -> Result<Vec<Recorded>, Failure> {
    Reader::open(path)
        .and_then(|reader| reader.session(session))
        .map_err(|error| Failure::because("the session cannot be read from the ledger", &error))
}

/// A session's receipt as it stands in the ledger.
///
/// # Errors
/// When the ledger cannot be read or has no such session.
pub fn receipt(path: &Path, session: &SessionId) -> Result<Receipt, Failure> {
    Receipt::fold(session, &entries(path, session)?)
        .ok_or_else(|| Failure::failed(format!("the ledger has no entry of session {session}")))
}
