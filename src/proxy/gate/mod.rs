//! The gate: which bodies may be sent, and what they may cost at most.

use std::ops::Range;

use crate::cap::HoldTerms;
use crate::pricing::{HoldRates, WriteBound};

/// What an operator opened; everything else that is priced is refused by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatePolicy {
    /// `gate.accept`: unlisted keys and types that are let through, by name.
    pub accept: Vec<String>,
    /// `gate.web_search`: tokens that one use may add, and uses when the request sets none.
    pub web_search: Option<WebSearchPolicy>,
    /// `gate.compaction`.
    pub compaction: bool,
    /// `gate.remote_content`: images and documents by URL or file id.
    pub remote_content: bool,
    /// `gate.known_usage`: counters declared harmless.
    pub known_usage: Vec<String>,
    /// `gate.strict_bound`: never let `count_tokens` lower a hold.
    pub strict_bound: bool,
}

/// How web search is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSearchPolicy {
    /// Tokens that one search may add to the prompt.
    pub tokens_per_use: u64,
    /// Injected when the request has no `max_uses`.
    pub max_uses: u64,
}

/// A body that passed, and what it may cost.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The model, exactly as asked.
    pub model: String,
    /// `max_tokens` as asked.
    pub max_tokens: u64,
    /// Where the digits of `max_tokens` stand in the body, for a clamp.
    pub max_tokens_at: Range<usize>,
    /// Whether events are asked for.
    pub stream: bool,
    /// `thinking.budget_tokens`; with adaptive thinking `None`.
    pub thinking_budget: Option<u64>,
    /// Whether any thinking is on.
    pub thinking: bool,
    /// Most prompt tokens that the body can become; `None` when only the window bounds it.
    pub prompt_bound: Option<u64>,
    /// Whether `count_tokens` may lower the bound.
    pub countable: bool,
    /// The body of a `count_tokens` call for this request: that endpoint's keys only.
    pub count_body: Vec<u8>,
    /// Which cache writes it may cause.
    pub writes: WriteBound,
    /// A one-hour marker stands somewhere.
    pub one_hour_asked: bool,
    /// Most web searches.
    pub web_searches: u64,
    /// Tokens that searches may add to the prompt.
    pub web_search_tokens: u64,
    /// Compaction is on: one more window and one more `max_tokens`.
    pub compaction: bool,
    /// Bytes to splice into the body before it is sent, in order of position.
    pub splices: Vec<Splice>,
}

/// A change of the body before it is sent: `with` in place of `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// The bytes replaced; empty for an insertion.
    pub at: Range<usize>,
    /// What stands there instead.
    pub with: Vec<u8>,
}

impl Intent {
    /// Hold terms from the body's own bound.
    pub fn hold_terms(&self, rates: &HoldRates) -> HoldTerms {
        let _ = rates;
        todo!()
    }

    /// Hold terms when `count_tokens` said `counted`: × 1.02 + 512.
    pub fn counted_terms(&self, rates: &HoldRates, counted: u64) -> HoldTerms {
        let _ = (rates, counted);
        todo!()
    }

    /// Expected cost, for `on_cap = "soft"`.
    pub fn expected_terms(&self, rates: &HoldRates, body_bytes: usize) -> HoldTerms {
        let _ = (rates, body_bytes);
        todo!()
    }
}

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// It is not strict JSON, or not an object of the right shape: 400.
    #[error("{0}")]
    Malformed(String),
    /// It asks for fast mode: 400 with the text that makes the client go on at standard speed.
    #[error("fast mode")]
    Fast,
    /// It asks for something whose price is not bounded; names the thing and the setting: 402.
    #[error("{what} is refused: {why}; {remedy}")]
    Feature {
        /// The key, type or value, with where it stands.
        what: String,
        /// Why.
        why: String,
        /// What would open it.
        remedy: String,
    },
}

/// Judges the body of `POST /v1/messages`.
///
/// # Errors
/// The first reason to refuse it.
pub fn check_messages(body: &[u8], policy: &GatePolicy) -> Result<Intent, GateRefusal> {
    let _ = (body, policy);
    todo!()
}

/// Judges the body of `POST /v1/messages/count_tokens`.
///
/// # Errors
/// The first reason to refuse it.
pub fn check_count_tokens(body: &[u8], policy: &GatePolicy) -> Result<(), GateRefusal> {
    let _ = (body, policy);
    todo!()
}
