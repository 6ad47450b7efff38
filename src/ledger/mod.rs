//! The ledger: every hold and charge, durable before a request is sent, chained, append-only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::SharedClock;
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;
use crate::usage::CloseReason;

/// What is known of a request when it is held or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFacts {
    /// When it arrived.
    pub at: Timestamp,
    /// Whether events were asked for.
    pub stream: Option<bool>,
    /// The model asked for.
    pub model: Option<String>,
    /// `max_tokens` as asked.
    pub max_tokens_asked: Option<u64>,
}

/// What is known of a request when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnd {
    /// The status the client got.
    pub status: Option<u16>,
    /// The model that served it.
    pub served_model: Option<String>,
    /// Merged raw usage.
    pub usage: Option<serde_json::Map<String, serde_json::Value>>,
    /// The provider's `request-id`.
    pub upstream_request_id: Option<String>,
    /// Milliseconds from arrival to the first body byte.
    pub ttfb_ms: Option<u64>,
    /// Milliseconds from arrival to the end.
    pub duration_ms: u64,
    /// The client left before the end.
    pub client_gone: bool,
    /// `stop_reason`.
    pub stop_reason: Option<String>,
}

/// One entry. Entries are appended, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
pub enum Entry {
    /// A session began, or began again (`resumed`).
    Opened {
        /// Its cap.
        cap: PicoUsd,
        /// `clamp`, `refuse` or `soft`.
        on_cap: crate::cap::OnCap,
        /// Digest of the price file, and the file's text is stored once beside the entries.
        pricing_digest: String,
        /// The agent's argv\[0\].
        argv0: Option<String>,
        /// labproxy's version.
        version: String,
        /// Whether it goes on with an earlier session of this id.
        resumed: bool,
    },
    /// Room was reserved; durable before the first byte is sent.
    Held {
        /// The request.
        request: RequestId,
        /// What is known of it.
        facts: RequestFacts,
        /// `max_tokens` as sent.
        max_tokens_sent: u64,
        /// How much.
        amount: PicoUsd,
    },
    /// The answer was priced.
    Settled {
        /// The request.
        request: RequestId,
        /// What it was charged; 0 with `free`.
        charged: PicoUsd,
        /// A provider's error that costs nothing.
        free: bool,
        /// The bill's lines.
        lines: Vec<serde_json::Value>,
        /// How it ended.
        end: RequestEnd,
        /// What was odd.
        note: Option<String>,
    },
    /// The hold was given back: nothing was sent.
    Released {
        /// The request.
        request: RequestId,
        /// Why.
        reason: String,
    },
    /// The whole hold is charged.
    Kept {
        /// The request.
        request: RequestId,
        /// How much.
        charged: PicoUsd,
        /// Why.
        reason: String,
        /// How it ended, where that is known.
        end: Option<RequestEnd>,
    },
    /// A request was refused; nothing was held.
    Refused {
        /// The request.
        request: RequestId,
        /// What is known of it.
        facts: RequestFacts,
        /// The status the client got.
        status: u16,
        /// Why.
        reason: String,
    },
    /// Refusals beyond the first 1,000, counted only.
    RefusedMore {
        /// How many since the last such entry.
        count: u64,
    },
    /// A charge above its hold.
    Overrun {
        /// The request.
        request: RequestId,
        /// How much above.
        by: PicoUsd,
    },
    /// The cap was raised.
    ToppedUp {
        /// By how much.
        by: PicoUsd,
        /// To what.
        cap: PicoUsd,
    },
    /// The session takes no more requests.
    Closed {
        /// Why.
        reason: CloseReason,
    },
    /// The session's process ended in order.
    Ended {
        /// `agent_exit`, `cap`, `stopped`, `overrun` or `error`.
        end_reason: String,
        /// The agent's exit code.
        exit_code: Option<i32>,
        /// The agent's signal.
        signal: Option<String>,
        /// Calls that cost nothing (count_tokens, models).
        free_requests: u64,
    },
    /// An operator's correction of a kept hold, with a reason.
    Corrected {
        /// The request.
        request: RequestId,
        /// What it is charged after all.
        charged: PicoUsd,
        /// Why.
        reason: String,
    },
}

/// How to open a ledger.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// The SQLite file.
    pub path: PathBuf,
    /// The high-water file.
    pub anchor: PathBuf,
    /// Ceiling per user and day over all sessions.
    pub daily_ceiling: Option<PicoUsd>,
    /// The clock.
    pub clock: SharedClock,
}

/// Why the ledger cannot be used. Filled in by the ledger module.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The daily ceiling leaves no room for this hold.
    #[error("daily ceiling {ceiling} reached: {spent} today over all sessions")]
    Daily {
        /// The ceiling.
        ceiling: PicoUsd,
        /// Charged and held today.
        spent: PicoUsd,
    },
    /// Something failed before; nothing is appended any more.
    #[error("the ledger failed before and takes nothing more until labproxy is started again")]
    Poisoned,
    /// Placeholder for the module's own situations.
    #[error("{path}: {what}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What happened.
        what: String,
    },
}

/// A handle to the ledger's one writer thread; clones share it.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<LedgerOptions>,
}

impl Ledger {
    /// Opens or creates the ledger, checks its head against the anchor, starts the writer.
    ///
    /// # Errors
    /// When the file cannot be trusted or written.
    pub fn open(options: LedgerOptions) -> Result<Self, LedgerError> {
        Ok(Self {
            inner: Arc::new(options),
        })
    }

    /// Queues entries for one session; the returned future resolves when they are durable.
    /// Dropping the future does not take the entries back.
    pub fn append(
        &self,
        session: &SessionId,
        entries: Vec<Entry>,
    ) -> impl Future<Output = Result<(), Arc<LedgerError>>> + Send + 'static {
        let _ = (&self.inner, session, entries);
        async { todo!() }
    }

    /// Whether the writer has failed for good.
    pub fn is_poisoned(&self) -> bool {
        todo!()
    }

    /// Turns every open hold of a session without a living owner into `Kept`. The caller holds the
    /// session's lock.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub fn keep_open_holds(
        &self,
        session: &SessionId,
        reason: &str,
    ) -> Result<PicoUsd, LedgerError> {
        let _ = (session, reason);
        todo!()
    }
}

/// Every entry of a session with its time, in order.
///
/// # Errors
/// When the ledger cannot be read.
pub fn read_session(
    path: &Path,
    session: &SessionId,
) -> Result<Vec<(Timestamp, Entry)>, LedgerError> {
    let _ = (path, session);
    todo!()
}
