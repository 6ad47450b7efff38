//! The only place that tells the time.
//!
//! Prices, the ledger and receipts ask a [`Clock`], so tests choose the date. Time-outs of sockets
//! use tokio's timers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// Tells the wall-clock time, and a time that only goes forward and counts suspended hours.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall-clock time; it may jump either way.
    fn now(&self) -> Timestamp;
    /// Time since boot, suspended time included; never goes back.
    fn since_boot(&self) -> Duration;
}

/// A clock that many parts share.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn since_boot(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(seconds, nanos)
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(Timestamp, Duration)>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self {
            state: Mutex::new((now, Duration::from_secs(1_000))),
        }
    }

    /// Sets the wall clock, backwards too; the time since boot stays.
    pub fn set(&self, now: Timestamp) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = now;
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = state.0.checked_add(by).unwrap_or(Timestamp::MAX);
        state.1 = state.1.saturating_add(by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn since_boot(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
