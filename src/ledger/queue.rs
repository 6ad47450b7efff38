//! What waits for the writer: batches of entries in the order they were handed in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::effect::Effect;
use super::{Entry, LedgerError, body};
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

/// Batches somebody may wait for at once: far above the 256 connections a proxy serves, far below
/// what would matter in memory. Settlements are not counted: each belongs to a hold that was.
pub(super) const QUEUE_LIMIT: usize = 8_192;

/// Batches somebody waits for in one commit from which on the next commit lets more gather: then
/// several requests are under way at once, and the price of a commit is better shared.
const COMPANY_FROM: usize = 4;
/// How long they gather: about as long as the disk takes for a commit.
const COMPANY_WAIT: Duration = Duration::from_micros(200);
/// Batches that are enough for one commit; its price is shared well by then.
const COMPANY_ENOUGH: usize = 32;

/// How long a batch that nobody waits for may stay for company: a settlement usually shares the
/// commit of the client's next hold.
const LINGER: Duration = Duration::from_millis(2);

/// An entry ready to be written.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) body: Vec<u8>,
    pub(super) effect: Effect,
}

impl Prepared {
    pub(super) fn new(entry: Entry) -> Result<Self, LedgerError> {
        Ok(Self {
            body: body::write(&entry)?,
            effect: entry.into_effect(),
        })
    }
}

/// Where the outcome of a batch goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Arc<LedgerError>>>;

/// One thing for the writer to do.
#[derive(Debug)]
pub(super) enum Work {
    /// Appends these entries, all or none.
    Append {
        session: SessionId,
        entries: Vec<Prepared>,
        /// `None`: nobody waits, and it is tried until it succeeds or the ledger is poisoned.
        reply: Option<Reply<()>>,
    },
    /// Keeps every open hold of the session.
    Keep {
        session: SessionId,
        reason: String,
        reply: Reply<PicoUsd>,
    },
    /// Corrects a kept hold.
    Correct {
        session: SessionId,
        request: RequestId,
        charged: PicoUsd,
        reason: String,
        reply: Reply<()>,
    },
    /// Stores a price file's text under its digest.
    StorePrices {
        digest: String,
        text: String,
        reply: Reply<()>,
    },
    /// Nothing: tells that everything before is durable.
    Flush { reply: Reply<()> },
}

/// One thing for the writer to do, and when it was handed in.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) at: Timestamp,
    pub(super) work: Work,
}

impl Job {
    /// Whether somebody waits for it.
    pub(super) fn is_waited_for(&self) -> bool {
        !matches!(self.work, Work::Append { reply: None, .. })
    }

    /// Tells whoever waits that it failed.
    pub(super) fn fail(self, error: &Arc<LedgerError>) {
        let error = Arc::clone(error);
        // Whoever waited may have left; that is no trouble of the ledger's.
        match self.work {
            Work::Append { reply: None, .. } => {}
            Work::Append {
                reply: Some(reply), ..
            }
            | Work::Correct { reply, .. }
            | Work::StorePrices { reply, .. }
            | Work::Flush { reply } => drop(reply.send(Err(error))),
            Work::Keep { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// Why a job was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    Poisoned,
    Full,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    waited_for: usize,
    /// Batches somebody waited for that were taken last.
    taken: usize,
    /// The writer waits for `arrived`; telling it otherwise would cost a system call for nothing.
    asleep: bool,
    closing: bool,
}

impl State {
    /// Whether more batches will soon come that had better share the next commit.
    fn expects_company(&self) -> bool {
        let few = 1..COMPANY_ENOUGH;
        !self.closing && self.taken >= COMPANY_FROM && few.contains(&self.waited_for)
    }
}

/// The queue between the handles and the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    poisoned: AtomicBool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, or gives it back.
    pub(super) fn push(&self, job: Job) -> Result<(), Box<(Job, Rejected)>> {
        let waited_for = job.is_waited_for();
        let mut state = self.state();
        if self.is_poisoned() {
            return Err(Box::new((job, Rejected::Poisoned)));
        }
        if waited_for && state.waited_for >= QUEUE_LIMIT {
            return Err(Box::new((job, Rejected::Full)));
        }
        state.waited_for += usize::from(waited_for);
        state.jobs.push_back(job);
        let wakes = (waited_for || state.jobs.len() == 1) && std::mem::take(&mut state.asleep);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Everything that is queued; waits until there is something, and returns `None` once the last
    /// handle is gone and nothing is left.
    pub(super) fn take(&self) -> Option<Vec<Job>> {
        let mut state = self.state();
        let mut lingered = false;
        let mut gathered = false;
        loop {
            if state.jobs.is_empty() {
                if state.closing {
                    return None;
                }
                state.asleep = true;
                state = self
                    .arrived
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.asleep = false;
            } else if state.expects_company() && !gathered {
                gathered = true;
                drop(state);
                // Not on `arrived`: those who come must not wake the writer one by one.
                thread::sleep(COMPANY_WAIT);
                state = self.state();
            } else if state.waited_for > 0 || state.closing || lingered {
                state.taken = std::mem::take(&mut state.waited_for);
                return Some(state.jobs.drain(..).collect());
            } else {
                state.asleep = true;
                let (back, timeout) = self
                    .arrived
                    .wait_timeout(state, LINGER)
                    .unwrap_or_else(PoisonError::into_inner);
                state = back;
                state.asleep = false;
                lingered = timeout.timed_out();
            }
        }
    }

    /// Puts jobs that nobody waits for back, before everything that came since.
    pub(super) fn put_back(&self, jobs: Vec<Job>) {
        let mut state = self.state();
        for job in jobs.into_iter().rev() {
            state.waited_for += usize::from(job.is_waited_for());
            state.jobs.push_front(job);
        }
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    /// Takes no more jobs, and gives back those that are queued.
    pub(super) fn poison(&self) -> Vec<Job> {
        let mut state = self.state();
        self.poisoned.store(true, Ordering::Release);
        state.waited_for = 0;
        state.jobs.drain(..).collect()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// No handle is left: the writer ends when it has written what is queued.
    pub(super) fn close(&self) {
        self.state().closing = true;
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(taken: usize, waited_for: usize, closing: bool) -> State {
        State {
            waited_for,
            taken,
            closing,
            ..State::default()
        }
    }

    /// A commit is delayed for company only where the one before had some, never for a lone
    /// request, never for settlements alone, and never at the end.
    #[test]
    fn a_commit_waits_for_company_only_under_load() {
        assert!(state(COMPANY_FROM, 1, false).expects_company());
        assert!(state(COMPANY_ENOUGH, COMPANY_ENOUGH - 1, false).expects_company());
        assert!(!state(COMPANY_FROM - 1, 1, false).expects_company());
        assert!(!state(COMPANY_FROM, 0, false).expects_company());
        assert!(!state(COMPANY_FROM, COMPANY_ENOUGH, false).expects_company());
        assert!(!state(COMPANY_FROM, 1, true).expects_company());
    }
}
