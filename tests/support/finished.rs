//! Waiting until a change of a file counts as finished.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use labproxy::tree::stamp::Stamp;

/// Waits until the last change of what stands at a path is so old that a scan reads it once: before that,
/// whatever changed it may still be at it.
pub(crate) fn finished(at: &Path) {
    let (seconds, nanoseconds) = Stamp::of(&rustix::fs::lstat(at).expect("it is there")).changed;
    let seconds = Duration::from_secs(seconds.unsigned_abs());
    let changed = seconds + Duration::from_nanos(nanoseconds);
    let age = || UNIX_EPOCH.elapsed().map(|now| now.saturating_sub(changed));
    while age().is_ok_and(|age| age < Duration::from_millis(1_100)) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
