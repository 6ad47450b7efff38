//! The one thread that writes: takes all queued jobs, commits them as one transaction, and only
//! then tells those who wait.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::anchor::Anchor;
use super::chain::EntryHash;
use super::queue::{Job, Queue, Work};
use super::schema::{self, failed};
use super::transaction::{Cache, Outcome, Transaction};
use super::{LedgerError, LedgerOptions};

/// Bytes in the write-ahead log after which an idle writer moves them into the database.
const CHECKPOINT_BYTES_IDLE: usize = 4 * 1024 * 1024;
/// Bytes in the write-ahead log after which a busy writer does so too.
const CHECKPOINT_BYTES_BUSY: usize = 32 * 1024 * 1024;

/// The writer's own state.
pub(super) struct Writer {
    pub(super) options: Arc<LedgerOptions>,
    pub(super) directory: PathBuf,
    pub(super) connection: Connection,
    pub(super) genesis: EntryHash,
    pub(super) anchor: Anchor,
    pub(super) queue: Arc<Queue>,
    pub(super) cache: Cache,
    pub(super) log_bytes: usize,
}

impl Writer {
    /// Works until no handle is left, or until something fails for good.
    pub(super) fn run(mut self) {
        while let Some(jobs) = self.queue.take() {
            if !self.commit(jobs) {
                // Every handle sees the poison; the thread has nothing more to do.
                return;
            }
            self.checkpoint();
        }
    }

    /// One transaction for all jobs; says whether the ledger may be written again.
    fn commit(&mut self, jobs: Vec<Job>) -> bool {
        let (outcomes, head) = match self.write(&jobs) {
            Ok(written) => written,
            Err(error @ LedgerError::Busy { .. }) => {
                self.give_up(jobs, &Arc::new(error));
                return true;
            }
            Err(error) => {
                self.poison(&Arc::new(error), jobs);
                return false;
            }
        };
        let anchored = self.anchor.advance(&head);
        let is_anchored = anchored.is_ok();
        if let Err(error) = anchored {
            // What follows could not be proven against a rolled-back file. These entries are
            // durable, and whoever waits for them is told so.
            self.poison(&Arc::new(error), Vec::new());
        }
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            reply(job, outcome);
        }
        is_anchored
    }

    /// Takes nothing more; whoever is told of the failure finds the ledger poisoned already.
    fn poison(&self, error: &Arc<LedgerError>, jobs: Vec<Job>) {
        tracing::error!(error = %error, cause = ?error, "the ledger failed and takes nothing more");
        let queued = self.queue.poison();
        for job in jobs.into_iter().chain(queued) {
            job.fail(error);
        }
    }

    fn write(&mut self, jobs: &[Job]) -> Result<(Vec<Outcome>, super::Head), LedgerError> {
        let path = &self.options.path;
        let failed = failed(path, "entries cannot be written");
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let head = schema::head(path, &transaction, self.genesis)?;
        let mut writing = Transaction::begin(
            &self.options,
            &self.directory,
            &transaction,
            &self.cache,
            head,
        )?;
        let mut outcomes = Vec::with_capacity(jobs.len());
        for job in jobs {
            outcomes.push(writing.apply(job)?);
        }
        let done = writing.finish()?;
        transaction.commit().map_err(failed)?;
        self.log_bytes = self.log_bytes.saturating_add(done.log_bytes);
        self.cache.merge(done.changes);
        Ok((outcomes, done.head))
    }

    /// Another process kept the lock: those who wait are told, the rest is tried again.
    fn give_up(&self, jobs: Vec<Job>, error: &Arc<LedgerError>) {
        let (waited_for, kept): (Vec<Job>, Vec<Job>) =
            jobs.into_iter().partition(Job::is_waited_for);
        // Nobody waits for a hold any more that is not in the ledger, so what ends such a hold has
        // nothing to end; `Transaction::apply` leaves it out.
        self.queue.put_back(kept);
        for job in waited_for {
            job.fail(error);
        }
    }

    /// Moves the write-ahead log into the database, when it is large and nobody waits.
    fn checkpoint(&mut self) {
        let due = self.log_bytes >= CHECKPOINT_BYTES_BUSY
            || (self.log_bytes >= CHECKPOINT_BYTES_IDLE && self.queue.is_empty());
        if !due {
            return;
        }
        self.log_bytes = 0;
        // A checkpoint that fails loses nothing: the log stays, and the next commit meets the same
        // disk and reports it.
        let result = self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = result {
            tracing::warn!(%error, "the ledger's write-ahead log could not be moved");
        }
    }
}

fn reply(job: Job, outcome: Outcome) {
    match (job.work, outcome) {
        (Work::Append { reply: None, .. }, Outcome::Refused(error)) => {
            tracing::error!(%error, "an entry that nobody waits for was not taken");
        }
        (Work::Append { reply: None, .. }, _) => {}
        (
            Work::Append {
                reply: Some(reply), ..
            }
            | Work::Correct { reply, .. }
            | Work::StorePrices { reply, .. }
            | Work::Flush { reply },
            outcome,
        ) => drop(reply.send(match outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(error) => Err(Arc::new(error)),
        })),
        (Work::Keep { reply, .. }, outcome) => drop(reply.send(match outcome {
            Outcome::Done(kept) => Ok(kept),
            Outcome::Refused(error) => Err(Arc::new(error)),
        })),
    }
}
