//! What a proxy counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Counters;

/// The counters while the proxy runs.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    messages: AtomicU64,
    refused: AtomicU64,
    free: AtomicU64,
    credential_refused: AtomicU64,
    unauthenticated: AtomicU64,
}

impl Counted {
    pub(crate) fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn free(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn credential_refused(&self) {
        self.credential_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unauthenticated(&self) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Counters {
        Counters {
            messages: self.messages.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            free: self.free.load(Ordering::Relaxed),
            credential_refused: self.credential_refused.load(Ordering::Relaxed),
            unauthenticated: self.unauthenticated.load(Ordering::Relaxed),
        }
    }
}
