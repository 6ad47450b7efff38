//! How far a mirror is, for whoever waits.

use std::fmt;

use crate::tree::directory::Totals;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Both ends read their trees.
    Reading,
    /// Contents come from the other end.
    Receiving,
    /// Contents go to the other end.
    Sending,
    /// A tree is brought to what it shall be.
    Applying,
    /// What was applied is read again.
    Verifying,
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Reading => "reading",
            Self::Receiving => "receiving",
            Self::Sending => "sending",
            Self::Applying => "applying",
            Self::Verifying => "verifying",
        })
    }
}

/// An amount of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, entries or steps.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Hears how far a mirror is.
pub trait Progress: Sync {
    /// This begins; `all` is what it comes to, where that is known.
    fn begin(&self, phase: Phase, all: Option<Amount>);
    /// So much of it is done.
    fn at(&self, done: Amount);
    /// A first push is about to begin, of so much.
    fn first_push(&self, _all: Totals) {}
}

/// Nobody waits.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn begin(&self, _phase: Phase, _all: Option<Amount>) {}
    fn at(&self, _done: Amount) {}
}
