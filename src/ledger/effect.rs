//! What an entry does to the sums: the one rule that the writer and `verify` share.

use crate::id::RequestId;
use crate::money::PicoUsd;

use super::Entry;

/// What an entry does to the sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// Opens a hold.
    Hold(RequestId, PicoUsd),
    /// Ends a hold and charges this much.
    Resolve(RequestId, PicoUsd),
    /// Replaces the charge of a kept hold.
    Correct(RequestId, PicoUsd),
}

impl Entry {
    /// What this entry does to the sums.
    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Held {
                request, amount, ..
            } => Effect::Hold(request.clone(), *amount),
            Self::Settled {
                request, charged, ..
            }
            | Self::Kept {
                request, charged, ..
            } => Effect::Resolve(request.clone(), *charged),
            Self::Released { request, .. } => Effect::Resolve(request.clone(), PicoUsd::ZERO),
            Self::Corrected {
                request, charged, ..
            } => Effect::Correct(request.clone(), *charged),
            Self::Opened { .. }
            | Self::Refused { .. }
            | Self::RefusedMore { .. }
            | Self::Overrun { .. }
            | Self::ToppedUp { .. }
            | Self::Closed { .. }
            | Self::Ended { .. } => Effect::None,
        }
    }
}
