//! The ledger: every hold and charge, durable before a request is sent, chained, append-only.
//!
//! One SQLite file per user, shared by all of the user's labproxy processes. Each process has one
//! writer thread; what several requests hand in meanwhile goes into one commit. The order of entries
//! is that of their numbers; the clock may jump. `docs/ledger.md` describes the format.
//!
//! What is absent: an entry is never changed or removed, an error is never tried again on a file
//! that may have lost data, and nothing here reads or writes bodies, headers or keys.

mod anchor;
mod audit;
mod body;
mod chain;
mod effect;
mod entry;
mod error;
mod holds;
mod place;
mod queue;
mod reader;
mod schema;
mod sum;
mod transaction;
mod trouble;
mod verify;
mod writer;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use crate::clock::SharedClock;
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

pub use audit::{Audit, AuditFinding, AuditedGeneration, SandboxKind, ToolLimits, Verdict};
pub use chain::{EntryHash, Head, ParseHashError};
pub use entry::{ChargedLine, Entry, RequestEnd, RequestFacts, WorkspaceEnd};
pub use error::LedgerError;
pub use reader::{Reader, Recorded, SessionRow, read_session};
pub use schema::BUSY_WAIT;
pub use trouble::Trouble;
pub use verify::{Problem, Verified, accept_head, verify};

use anchor::Anchor;
use queue::{Job, Prepared, Queue, Rejected, Work};
use transaction::Cache;
use writer::Writer;

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

/// A handle to the ledger's one writer thread; clones share it.
///
/// When the last handle is dropped the writer ends by itself after writing what is queued; whoever
/// must know that it is written calls [`Ledger::flush`] first.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Arc<LedgerOptions>,
    queue: Arc<Queue>,
}

/// Ends the writer once it has written what is queued; does not wait for that.
impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Ledger {
    /// Opens or creates the ledger, checks its head against the anchor, starts the writer.
    ///
    /// # Errors
    /// When the file cannot be trusted or written.
    pub fn open(options: LedgerOptions) -> Result<Self, LedgerError> {
        let directory = place::make_directory(&options.path)?;
        place::refuse_network(&directory)?;
        let machine = place::machine_name();
        let (connection, identity) = schema::open_for_writing(&options.path, machine.as_deref())?;
        place::sync_directory(&directory).map_err(|source| LedgerError::Io {
            path: directory.clone(),
            doing: "the ledger's directory cannot be made durable",
            source,
        })?;
        let genesis = identity.genesis();
        let head = anchor::check(&options.anchor, &options.path, &connection, &identity)?;
        let anchor = Anchor::open(&options.anchor, &identity.ledger_id)?;
        anchor.advance(&head)?;
        // After a power cut the file is not empty, whatever became of later writes.
        anchor.sync()?;
        let options = Arc::new(options);
        let queue = Arc::new(Queue::default());
        let writer = Writer {
            options: Arc::clone(&options),
            directory,
            connection,
            genesis,
            anchor,
            queue: Arc::clone(&queue),
            cache: Cache::default(),
            log_bytes: 0,
        };
        thread::Builder::new()
            .name("ledger".into())
            .spawn(move || writer.run())
            .map_err(|source| LedgerError::Io {
                path: options.path.clone(),
                doing: "the writer's thread cannot be started",
                source,
            })?;
        Ok(Self {
            inner: Arc::new(Inner { options, queue }),
        })
    }

    /// The SQLite file.
    pub fn path(&self) -> &std::path::Path {
        &self.inner.options.path
    }

    /// Queues entries for one session, all or none; the returned future resolves when they are
    /// durable. Dropping the future does not take the entries back.
    pub fn append(
        &self,
        session: &SessionId,
        entries: Vec<Entry>,
    ) -> impl Future<Output = Result<(), Arc<LedgerError>>> + Send + 'static + use<> {
        let (reply, outcome) = oneshot::channel();
        match prepare(entries) {
            Ok(entries) => self.push(Work::Append {
                session: session.clone(),
                entries,
                reply: Some(reply),
            }),
            Err(error) => drop(reply.send(Err(Arc::new(error)))),
        }
        outcome_of(outcome)
    }

    /// Queues entries that nobody waits for: what ends a hold. They are written in order, with the
    /// next commit, and tried again while the ledger is locked by another process. If they are lost
    /// with this process, the hold that they end is kept at the next start.
    pub fn append_later(&self, session: &SessionId, entries: Vec<Entry>) {
        match prepare(entries) {
            Ok(entries) => self.push(Work::Append {
                session: session.clone(),
                entries,
                reply: None,
            }),
            Err(error) => tracing::error!(%error, "an entry cannot be written down"),
        }
    }

    /// Resolves when everything queued before is durable.
    ///
    /// # Errors
    /// When it is not.
    pub fn flush(
        &self,
    ) -> impl Future<Output = Result<(), Arc<LedgerError>>> + Send + 'static + use<> {
        let (reply, outcome) = oneshot::channel();
        self.push(Work::Flush { reply });
        outcome_of(outcome)
    }

    /// Stores the text of a price file once under its digest, which `Opened` entries name.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn store_price_file(
        &self,
        digest: &str,
        text: &str,
    ) -> impl Future<Output = Result<(), Arc<LedgerError>>> + Send + 'static + use<> {
        let (reply, outcome) = oneshot::channel();
        self.push(Work::StorePrices {
            digest: digest.to_owned(),
            text: text.to_owned(),
            reply,
        });
        outcome_of(outcome)
    }

    /// Charges a hold that was kept whole with `charged` instead, by an operator's word.
    ///
    /// # Errors
    /// When the request's hold was not kept, or the ledger does not take it.
    pub fn correct(
        &self,
        session: &SessionId,
        request: RequestId,
        charged: PicoUsd,
        reason: &str,
    ) -> impl Future<Output = Result<(), Arc<LedgerError>>> + Send + 'static + use<> {
        let (reply, outcome) = oneshot::channel();
        self.push(Work::Correct {
            session: session.clone(),
            request,
            charged,
            reason: reason.to_owned(),
            reply,
        });
        outcome_of(outcome)
    }

    /// Whether the writer has failed for good.
    pub fn is_poisoned(&self) -> bool {
        self.inner.queue.is_poisoned()
    }

    /// Turns every open hold of a session without a living owner into `Kept`; returns their sum.
    /// The caller holds the session's lock.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub fn keep_open_holds(
        &self,
        session: &SessionId,
        reason: &str,
    ) -> impl Future<Output = Result<PicoUsd, Arc<LedgerError>>> + Send + 'static + use<> {
        let (reply, outcome) = oneshot::channel();
        self.push(Work::Keep {
            session: session.clone(),
            reason: reason.to_owned(),
            reply,
        });
        outcome_of(outcome)
    }

    fn push(&self, work: Work) {
        let job = Job {
            at: self.inner.options.clock.now(),
            work,
        };
        if let Err(refused) = self.inner.queue.push(job) {
            let (job, rejected) = *refused;
            job.fail(&Arc::new(match rejected {
                Rejected::Poisoned => LedgerError::Poisoned,
                Rejected::Full => LedgerError::QueueFull {
                    path: self.inner.options.path.clone(),
                },
            }));
        }
    }
}

fn prepare(entries: Vec<Entry>) -> Result<Vec<Prepared>, LedgerError> {
    entries.into_iter().map(Prepared::new).collect()
}

async fn outcome_of<T>(
    outcome: oneshot::Receiver<Result<T, Arc<LedgerError>>>,
) -> Result<T, Arc<LedgerError>> {
    // The writer answers every job; it is gone without an answer only when it panicked.
    outcome
        .await
        .unwrap_or_else(|_| Err(Arc::new(LedgerError::Poisoned)))
}
