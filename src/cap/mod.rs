//! The cap: reserving before sending, settling after.
//!
//! In the hard modes `settled + held ≤ cap` at every instant; only a charge above its own hold can
//! break that, and it closes the session. A hold is always the whole `HoldTerms::hold` of what is
//! sent: when it does not fit, `max_tokens` goes down, never the hold alone.

mod account;
mod balance;
mod guards;
mod notices;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use crate::id::RequestId;
use crate::ledger::LedgerError;
use crate::money::{PicoUsd, Rate};
use crate::usage::CloseReason;

pub use account::Account;
pub use guards::{InFlight, Reserved};
pub use notices::Notice;
pub use refusals::REFUSALS_LISTED;

/// What a request may cost: `fixed + per_output_token × max_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTerms {
    /// Prompt, fees and opened allowances.
    pub fixed: PicoUsd,
    /// For each token of `max_tokens`.
    pub per_output_token: Rate,
}

impl HoldTerms {
    /// The hold for `max_tokens` output tokens; the largest amount when it does not fit.
    pub fn hold(&self, max_tokens: u64) -> PicoUsd {
        self.fixed
            .saturating_add(self.per_output_token.saturating_times(max_tokens))
    }
}

/// What to do when a request does not fit under the cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCap {
    /// Lower `max_tokens`, wait for room, lower it further, else refuse.
    #[default]
    Clamp,
    /// Refuse at once.
    Refuse,
    /// Hold an expected cost; overshoot is bounded by what is in flight.
    Soft,
}

/// A request that wants room.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its name.
    pub request: RequestId,
    /// What `Held` records: model, stream and so on.
    pub facts: crate::ledger::RequestFacts,
    /// Terms from the body's own bound (or the expected cost in soft mode).
    pub terms: HoldTerms,
    /// `max_tokens` as asked.
    pub max_tokens: u64,
    /// Floor of the thinking budget, where one was given.
    pub thinking_budget: Option<u64>,
}

/// Room that was given: durable in the ledger, so it is the permission to send.
#[derive(Debug)]
pub struct Grant {
    /// What is held.
    pub hold: PicoUsd,
    /// `max_tokens` to send, at most what was asked.
    pub max_tokens: u64,
    /// The guard of the hold.
    pub reserved: Reserved,
}

/// Why no room was given.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Denied {
    /// It does not fit under the cap; `needs` is the smallest hold that would have been taken.
    #[error("cap {cap} reached: spent {settled}, in flight {held}, this request needs {needs}")]
    Cap {
        /// The session's cap.
        cap: PicoUsd,
        /// Charged so far.
        settled: PicoUsd,
        /// Held by requests in flight.
        held: PicoUsd,
        /// What this request needs at least.
        needs: PicoUsd,
    },
    /// The last answer was cut by a clamp, and this one would be cut again.
    #[error("the last answer was cut at max_tokens {last}; there is no room for twice as much")]
    CutAgain {
        /// The clamped `max_tokens` of the last answer.
        last: u64,
    },
    /// The daily ceiling of the user over all sessions.
    #[error("daily ceiling {ceiling} reached: {spent} today over all sessions")]
    Daily {
        /// The ceiling.
        ceiling: PicoUsd,
        /// Charged and held today.
        spent: PicoUsd,
    },
    /// The session takes no more requests.
    #[error("the session is closed")]
    Closed(CloseReason),
    /// The client left while the request waited.
    #[error("the client left")]
    ClientGone,
    /// The ledger did not take the hold.
    #[error("the ledger cannot record the hold")]
    Ledger(#[source] Arc<LedgerError>),
}

/// The state of a session's money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The cap.
    pub cap: PicoUsd,
    /// Charged so far, kept holds included.
    pub settled: PicoUsd,
    /// Held by requests in flight.
    pub held: PicoUsd,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Why it takes no more requests, where it does not.
    pub closed: Option<CloseReason>,
    /// Whether a request was ever refused for want of room.
    pub cap_reached: bool,
}

/// Settings of an account.
#[derive(Clone, Debug)]
pub struct AccountSettings {
    /// What to do when a request does not fit.
    pub on_cap: OnCap,
    /// How long a request waits for room.
    pub wait: Duration,
}
