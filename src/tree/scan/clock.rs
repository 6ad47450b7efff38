//! When a file's change time can be trusted to tell the next change.
//!
//! The kernel stamps changes with a clock that ticks every few milliseconds: two changes within one
//! tick may have the same stamp. A file whose change time lies before the tick at which it was
//! looked at is safe: any later change is stamped with that tick or a later one. For another one
//! the tick is waited for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

/// Longest tick of a kernel's clock: 100 in a second.
const TICK: Duration = Duration::from_millis(10);
/// Longest that one write is expected to take.
const UNFINISHED: Duration = Duration::from_secs(1);
/// Ticks between two readings of what may be unfinished: longer than a writer in the middle of a
/// write waits for a busy processor.
const UNFINISHED_TICKS: u32 = 3;
/// Seconds between two stamps of the coarsest file systems.
const SECONDS_KEPT: i64 = 2;
/// Ticks of a file system that keeps every second second, and one more.
const SECONDS_TICKS: u32 = 301;
/// How often one scan waits for a tick, 5 s in all: a tree whose files are all written to at every
/// moment must not hold it up for hours.
const NAPS_MAX: u32 = 500;

/// A moment: seconds, nanoseconds.
pub(super) type Moment = (i64, u64);

/// The clock that stamps changes.
#[cfg(target_os = "linux")]
const STAMPS: ClockId = ClockId::RealtimeCoarse;
#[cfg(not(target_os = "linux"))]
const STAMPS: ClockId = ClockId::Realtime;

/// The moment that a change would be stamped with now, or a later one. Ask before looking.
pub(super) fn now() -> Moment {
    let now = rustix::time::clock_gettime(STAMPS);
    (now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Whether something that was last `changed` could have changed again after it was looked at
/// without having another stamp; `asked` is the moment before that look.
///
/// A stamp that is further ahead than a tick was made by another clock, or before this one was set
/// back: a new change does not get it.
pub(super) fn may_hide_a_change(changed: Moment, asked: Moment) -> bool {
    if changed.1 == 0 {
        // Whole seconds: some file systems keep no more, the coarsest even fewer.
        return changed.0 <= asked.0 && asked.0.saturating_sub(changed.0) <= SECONDS_KEPT;
    }
    nanoseconds(changed) >= nanoseconds(asked)
        && nanoseconds(changed) - nanoseconds(asked) <= i128::try_from(TICK.as_nanos()).unwrap_or(0)
}

/// Whether something was `changed` more than a tick before a moment, by a clock of fractions.
pub(super) fn is_older(changed: Moment, moment: Moment) -> bool {
    let tick = i128::try_from(TICK.as_nanos()).unwrap_or(0);
    changed.1 != 0 && nanoseconds(moment) - nanoseconds(changed) > tick
}

/// Whether something was `changed` so shortly before it was `asked` for that what changed it may not
/// have ended: the stamp of a write is that of its beginning.
pub(super) fn may_be_unfinished(changed: Moment, asked: Moment) -> bool {
    let age = nanoseconds(asked) - nanoseconds(changed);
    age <= i128::try_from(UNFINISHED.as_nanos()).unwrap_or(0)
        && -age <= i128::try_from(TICK.as_nanos()).unwrap_or(0)
}

fn nanoseconds(moment: Moment) -> i128 {
    i128::from(moment.0) * 1_000_000_000 + i128::from(moment.1)
}

/// The waits of one scan.
#[derive(Debug, Default)]
pub(super) struct Naps(AtomicU32);

impl Naps {
    /// Waits until a new change of what was `changed` gets another stamp, unless the scan has
    /// waited too often.
    pub(super) fn take(&self, changed: Moment) {
        self.wait(if changed.1 == 0 { SECONDS_TICKS } else { 1 });
    }

    /// Waits until a write that was under way has gone on.
    pub(super) fn let_finish(&self) {
        self.wait(UNFINISHED_TICKS);
    }

    fn wait(&self, ticks: u32) {
        let taken = self.0.fetch_add(ticks, Ordering::Relaxed);
        if taken < NAPS_MAX {
            std::thread::sleep(TICK * ticks);
        } else {
            self.0.store(NAPS_MAX, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a stamp of the present tick can hide a change.
    #[test]
    fn an_older_stamp_tells_the_next_change() {
        let asked = (1_000, 500_000_000);
        assert!(may_hide_a_change(asked, asked));
        assert!(may_hide_a_change((1_000, 509_000_000), asked));
        assert!(!may_hide_a_change((1_000, 499_999_999), asked));
        assert!(!may_hide_a_change((4_000, 1), asked));
        assert!(may_hide_a_change((1_000, 0), asked));
        assert!(may_hide_a_change((998, 0), asked));
        assert!(!may_hide_a_change((997, 0), asked));
        assert!(!may_hide_a_change((1_001, 0), asked));
    }
}
