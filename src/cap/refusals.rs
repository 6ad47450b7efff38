//! Refusals of one session: itemised at first, then counted, so that a flood does not fill the disk.

use std::collections::HashMap;

use crate::id::RequestId;
use crate::ledger::{Entry, RequestFacts};
use crate::money::PicoUsd;

/// Refusals that are written down one by one: enough to see what a client did, about 300 kB.
pub const REFUSALS_LISTED: u64 = 1_000;
/// Further refusals that share one entry while the session runs.
const REFUSALS_PER_ENTRY: u64 = 1_000;
/// Requests that were denied and whose refusal is still to be recorded: one per open connection,
/// with room to spare.
const DENIED_LIMIT: usize = 4_096;

/// A request that did not fit.
#[derive(Clone, Copy, Debug)]
struct Denied {
    arrival: u64,
    needs: PicoUsd,
}

/// What was refused so far.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    listed: u64,
    counted: u64,
    counted_needed: Option<PicoUsd>,
    /// Requests that were denied for want of room, until their refusal is recorded.
    denied: HashMap<RequestId, Denied>,
}

impl Refusals {
    /// Remembers that `request` did not fit, until its refusal is recorded.
    pub(super) fn was_denied(&mut self, request: RequestId, arrival: u64, needs: PicoUsd) {
        if self.denied.len() < DENIED_LIMIT {
            self.denied.insert(request, Denied { arrival, needs });
        }
    }

    /// The entry to write, where one is due; `arrival` is for a request that never asked for room.
    pub(super) fn record(
        &mut self,
        request: RequestId,
        facts: RequestFacts,
        arrival: u64,
        status: u16,
        reason: String,
    ) -> Option<Entry> {
        let denied = self.denied.remove(&request);
        let needed = denied.map(|denied| denied.needs);
        let arrival = denied.map_or(arrival, |denied| denied.arrival);
        if self.listed < REFUSALS_LISTED {
            self.listed += 1;
            return Some(Entry::Refused {
                request,
                facts,
                arrival,
                status,
                reason,
                needed,
            });
        }
        self.counted += 1;
        self.counted_needed = needed.or(self.counted_needed);
        if self.counted >= REFUSALS_PER_ENTRY {
            return self.take_counted();
        }
        None
    }

    /// The entry for those that were only counted, where there are any.
    pub(super) fn take_counted(&mut self) -> Option<Entry> {
        let count = std::mem::take(&mut self.counted);
        let needed = self.counted_needed.take();
        (count > 0).then_some(Entry::RefusedMore { count, needed })
    }
}
