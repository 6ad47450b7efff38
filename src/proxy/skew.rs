//! The upstream's clock against this machine's: prices follow the upstream's, within a bound.

use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use http::header::DATE;
use jiff::Timestamp;

use crate::clock::Clock;

/// How far the two clocks may differ: as far as a hold looks for dearer rows either way.
const MAX_SKEW_SECONDS: i64 = 24 * 60 * 60;
/// No answer has told the upstream's time yet.
const UNKNOWN: i64 = i64::MIN;

/// What the last answer told of the upstream's clock.
#[derive(Debug)]
pub(crate) struct Skew {
    /// The upstream's seconds since 1970 minus this machine's seconds since boot: it stays right
    /// when somebody sets the wall clock.
    upstream_boot: AtomicI64,
}

impl Skew {
    pub(crate) const fn new() -> Self {
        Self {
            upstream_boot: AtomicI64::new(UNKNOWN),
        }
    }

    /// Takes note of an answer's `Date`, and gives the time it tells.
    pub(crate) fn observe(&self, headers: &HeaderMap, clock: &dyn Clock) -> Option<Timestamp> {
        let text = headers.get(DATE)?.to_str().ok()?;
        let time = httpdate::parse_http_date(text).ok()?;
        let there = Timestamp::try_from(time).ok()?;
        let boot = there.as_second().saturating_sub(since_boot(clock));
        self.upstream_boot.store(boot, Ordering::Relaxed);
        Some(there)
    }

    /// By how many seconds the upstream is ahead of this machine, when that is more than the bound:
    /// then no price row can be trusted.
    pub(crate) fn off_by(&self, clock: &dyn Clock) -> Option<i64> {
        let boot = self.upstream_boot.load(Ordering::Relaxed);
        if boot == UNKNOWN {
            return None;
        }
        let there = boot.saturating_add(since_boot(clock));
        let ahead = there.saturating_sub(clock.now().as_second());
        (ahead.saturating_abs() > MAX_SKEW_SECONDS).then_some(ahead)
    }
}

fn since_boot(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.since_boot().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn t23_a_clock_that_is_forty_days_behind_or_a_year_ahead_is_off_until_it_is_set() {
        let mut headers = HeaderMap::new();
        let date = HeaderValue::from_static("Tue, 01 Dec 2026 12:00:00 GMT");
        headers.insert(DATE, date);
        let there: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        for (here, is_off) in [
            ("2026-12-01T12:00:07Z", false),
            ("2026-11-30T12:00:00Z", false),
            ("2026-10-22T12:00:00Z", true),
            ("2027-12-01T12:00:00Z", true),
        ] {
            let skew = Skew::new();
            let clock = ManualClock::at(here.parse().unwrap());
            assert_eq!(skew.off_by(&clock), None, "nothing is known yet");
            assert_eq!(skew.observe(&headers, &clock), Some(there));
            assert_eq!(skew.off_by(&clock).is_some(), is_off, "{here}");
            clock.set(there);
            assert_eq!(skew.off_by(&clock), None, "the clock was set");
        }
    }
}
