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
    pub(super) fn into_effect(self) -> Effect {
        match self {
            Self::Held {
                request, amount, ..
            } => Effect::Hold(request, amount),
            Self::Settled {
                request, charged, ..
            }
            | Self::Kept {
                request, charged, ..
            } => Effect::Resolve(request, charged),
            Self::Released { request, .. } => Effect::Resolve(request, PicoUsd::ZERO),
            Self::Corrected {
                request, charged, ..
            } => Effect::Correct(request, charged),
            Self::Opened { .. }
            | Self::Refused { .. }
            | Self::RefusedMore { .. }
            | Self::Overrun { .. }
            | Self::ToppedUp { .. }
            | Self::Closed { .. }
            | Self::Ended { .. }
            | Self::Audited { .. } => Effect::None,
        }
    }
}
