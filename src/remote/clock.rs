//! Moments and the time between them, which goes on while the machine is suspended: a lease that
//! stood still then would keep a session's processes for as long as the lid is closed.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::ClockId;

/// A moment since the machine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    /// So much later.
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// From `earlier` to this one; nothing when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long `poll` may wait until `moment`: whole milliseconds, rounded up, so that it does not
/// return just before.
pub fn patience(now: Moment, moment: Moment) -> Timespec {
    let wait = moment.since(now).saturating_add(Duration::from_micros(999));
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_millis()) * 1_000_000,
    }
}
