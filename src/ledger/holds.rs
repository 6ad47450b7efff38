//! The holds of one session, found from its entries.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::Connection;

use super::reader::for_each_entry;
use super::{Entry, LedgerError};
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// How much was held.
    pub(super) amount: PicoUsd,
    /// Nothing has resolved it.
    pub(super) is_open: bool,
    /// What it was charged, when it was kept whole.
    pub(super) kept: Option<PicoUsd>,
}

/// Every hold of one session, in order of holding.
#[derive(Debug, Default)]
pub(super) struct Holds {
    order: Vec<RequestId>,
    by_request: HashMap<RequestId, Hold>,
}

impl Holds {
    /// Reads them from the session's entries.
    pub(super) fn read(
        path: &Path,
        connection: &Connection,
        session: &SessionId,
    ) -> Result<Self, LedgerError> {
        let mut holds = Self::default();
        for_each_entry(path, connection, session, |recorded| {
            holds.take(recorded.entry);
            Ok(())
        })?;
        Ok(holds)
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Held {
                request, amount, ..
            } => {
                let hold = Hold {
                    amount,
                    is_open: true,
                    kept: None,
                };
                if self.by_request.insert(request.clone(), hold).is_none() {
                    self.order.push(request);
                }
            }
            Entry::Settled { request, .. } | Entry::Released { request, .. } => {
                if let Some(hold) = self.by_request.get_mut(&request) {
                    hold.is_open = false;
                }
            }
            Entry::Kept {
                request, charged, ..
            } => {
                if let Some(hold) = self.by_request.get_mut(&request) {
                    hold.is_open = false;
                    hold.kept = Some(charged);
                }
            }
            Entry::Corrected {
                request, charged, ..
            } => {
                if let Some(hold) = self.by_request.get_mut(&request) {
                    hold.kept = Some(charged);
                }
            }
            Entry::Opened { .. }
            | Entry::Refused { .. }
            | Entry::RefusedMore { .. }
            | Entry::Overrun { .. }
            | Entry::ToppedUp { .. }
            | Entry::Closed { .. }
            | Entry::Ended { .. }
            | Entry::Audited { .. } => {}
        }
    }

    /// The hold of `request`.
    pub(super) fn get(&self, request: &RequestId) -> Option<Hold> {
        self.by_request.get(request).copied()
    }

    /// The open ones, in order of holding.
    pub(super) fn into_open(self) -> Vec<(RequestId, Hold)> {
        let Self {
            order,
            mut by_request,
        } = self;
        order
            .into_iter()
            .filter_map(|request| {
                let hold = by_request.remove(&request)?;
                hold.is_open.then_some((request, hold))
            })
            .collect()
    }
}
