//! Whether the kernel has ended processes for want of memory lately.

use std::time::Duration;

use crate::remote::cgroup::{Group, out_of_memory_kills};
use crate::remote::clock::Moment;

/// How often the count is read: it may be the whole machine's, so that an old change must not be
/// taken for this program's end.
const REFRESH_EVERY: Duration = Duration::from_secs(2);

/// Counts of such ends, as they were read.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    /// What to compare with: at least one interval old, so that the count that came with an end
    /// is not it.
    before: Option<u64>,
    last: Option<u64>,
    read: Moment,
}

impl MemoryWatch {
    pub(super) fn new(group: Option<&Group>) -> Self {
        let now = out_of_memory_kills(group);
        Self {
            before: now,
            last: now,
            read: Moment::now(),
        }
    }

    /// Reads the count again, when that is due.
    pub(super) fn refresh(&mut self, group: Option<&Group>, now: Moment) {
        if now.since(self.read) >= REFRESH_EVERY {
            self.before = self.last;
            self.last = out_of_memory_kills(group);
            self.read = now;
        }
    }

    /// Whether the count has grown of late; what cannot be read has not.
    pub(super) fn has_grown(&self, group: Option<&Group>) -> bool {
        match (self.before, out_of_memory_kills(group)) {
            (Some(before), Some(now)) => now > before,
            _ => false,
        }
    }
}
