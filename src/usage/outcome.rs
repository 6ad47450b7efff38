//! What a request is charged for the way it ended.

use jiff::Timestamp;

use super::Observed;
use crate::money::PicoUsd;
use crate::pricing::{Bill, PriceBook};

/// What was admitted: the terms the response is judged by.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The model that was asked for.
    pub requested_model: String,
    /// `max_tokens` as sent upstream.
    pub max_tokens: u64,
    /// `thinking.budget_tokens`, where one was given; with adaptive thinking `max_tokens`.
    pub thinking_budget: Option<u64>,
    /// What is held.
    pub hold: PicoUsd,
    /// A one-hour marker or a cache beta was sent.
    pub one_hour_asked: bool,
    /// Counters an operator declared harmless.
    pub known_usage: Vec<String>,
}

/// How the response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body is whole, by length or by its own framing.
    Complete,
    /// The connection broke, or the framing was not finished.
    Cut,
    /// Nothing came for too long, or the drain after a client's departure ran out of time.
    TimedOut,
    /// No response head came at all.
    NoResponse,
}

/// Why a session takes no more requests.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "why", content = "what")]
pub enum CloseReason {
    /// A charge was above its hold, or a prompt above its bound.
    Overrun(String),
    /// The response was served by a model without a price.
    UnpricedServedModel(String),
    /// The response counted something unknown; the text names the setting.
    UnknownCounter(String),
    /// The response was served fast.
    ServedFast,
    /// The ledger cannot be written.
    LedgerFailed(String),
    /// The session is ending.
    Ending,
}

/// What becomes of the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// This much is charged, by this bill.
    Charge(Bill),
    /// Nothing is charged: the provider refused with a complete error.
    Free,
    /// The whole hold is charged, for this reason.
    Keep(String),
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the hold.
    pub settlement: Settlement,
    /// Whether the session closes.
    pub close: Option<CloseReason>,
    /// What a person should be told, where anything was odd.
    pub note: Option<String>,
}

/// Judges one response, by `design.md` 6 and `facts/anthropic.md` 3.2.
///
/// `status` is the response's, `None` when none came; `at` is when it was served.
pub fn decide(
    book: &PriceBook,
    admission: &Admission,
    status: Option<u16>,
    end: BodyEnd,
    observed: &Observed,
    at: Timestamp,
) -> Verdict {
    let _ = (book, admission, status, end, observed, at);
    todo!()
}
