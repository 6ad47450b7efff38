//! What whoever watches an account hears of it, when somebody does.

use tokio::sync::broadcast;

use super::Balance;
use super::balance::Purse;
use crate::ledger::Entry;

/// Notices that are kept for a watcher who is slow; older ones are lost to it, and it is told how many.
const NOTICES_KEPT: usize = 256;

/// Something that became of an account.
#[derive(Clone, Debug)]
pub enum Notice {
    /// This of a request goes into the ledger: that it is held, or how it ended.
    Entry(Box<Entry>),
    /// The money changed, and is this now.
    Money(Balance),
}

/// Tells those who watch. While nobody does, it costs a look at how many there are.
#[derive(Debug)]
pub(super) struct Notices(broadcast::Sender<Notice>);

impl Notices {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(NOTICES_KEPT))
    }

    /// Hears of everything from now on.
    pub(super) fn watch(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }

    /// Copies of entries, to be told with [`Self::tell`]; none while nobody watches.
    pub(super) fn copy(&self, entries: &[Entry]) -> Vec<Entry> {
        if self.0.receiver_count() == 0 {
            return Vec::new();
        }
        let of_requests = entries.iter().filter(|entry| is_of_a_request(entry));
        of_requests.cloned().collect()
    }

    /// Tells what goes into the ledger.
    pub(super) fn tell(&self, entries: Vec<Entry>) {
        for entry in entries {
            // Whoever left meanwhile needs it no more.
            let _heard = self.0.send(Notice::Entry(Box::new(entry)));
        }
    }

    /// Tells the money; the caller has the lock on it, so that what is told last is what is.
    pub(super) fn money(&self, purse: &Purse) {
        if self.0.receiver_count() > 0 {
            let _heard = self.0.send(Notice::Money(purse.snapshot()));
        }
    }
}

/// Whether an entry says that a request began or ended.
const fn is_of_a_request(entry: &Entry) -> bool {
    match entry {
        Entry::Held { .. }
        | Entry::Settled { .. }
        | Entry::Released { .. }
        | Entry::Kept { .. }
        | Entry::Refused { .. } => true,
        Entry::Opened { .. }
        | Entry::RefusedMore { .. }
        | Entry::Overrun { .. }
        | Entry::ToppedUp { .. }
        | Entry::Closed { .. }
        | Entry::Ended { .. }
        | Entry::Audited { .. }
        | Entry::Corrected { .. } => false,
    }
}
