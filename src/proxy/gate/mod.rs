//! The gate: which bodies may be sent, and what they may cost at most.
//!
//! A body is read once into a tape of spans ([`json`]), walked along a closed schema that says what
//! every key, type and value does to the price, and becomes an [`Intent`] or a [`GateRefusal`].

mod bound;
mod edit;
pub mod json;
mod parse;
mod scan;
mod schema;
mod walk;

use std::collections::HashMap;
use std::ops::Range;

pub use bound::{COUNT_SLACK, EXPECTED_OUTPUT};
pub use edit::{apply, count_body};

use crate::pricing::WriteBound;

use json::{Tape, Value, shown};
use walk::Facts;

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
#[allow(
    clippy::struct_excessive_bools,
    reason = "five independent facts of a request, not one state"
)]
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
    /// Why only the window bounds it, where that is so; for a message.
    pub window_because: Option<String>,
    /// The parts of the body that a `count_tokens` call takes: key and where the value stands. See
    /// [`count_body`].
    pub counted_parts: Vec<(&'static str, Range<usize>)>,
    /// Which cache writes it may cause.
    pub writes: WriteBound,
    /// A one-hour marker stands somewhere.
    pub one_hour_asked: bool,
    /// Most web searches.
    pub web_searches: u64,
    /// Tokens that searches may add to the prompt.
    pub web_search_tokens: u64,
    /// Most times that the model reads the prompt: 1, and more with web search.
    pub samplings: u64,
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

/// Slack of every prompt: roles and scaffolding, and the dearest hidden prompt for tool use (804).
const PROMPT_SLACK: u64 = 2_048 + 804;

/// Longest model id that is looked up.
const LONGEST_MODEL: usize = 128;

/// Judges the body of `POST /v1/messages`.
///
/// # Errors
/// The first reason to refuse it.
pub fn check_messages(body: &[u8], policy: &GatePolicy) -> Result<Intent, GateRefusal> {
    let tape = parse(body)?;
    let facts = walk::walk(&tape, schema::REQUEST, policy)?;
    let model = required(&facts)?;
    let Some(written) = facts.max_tokens else {
        return Err(GateRefusal::Malformed("max_tokens is missing".to_owned()));
    };
    Ok(Intent {
        model,
        max_tokens: written.plain_integer().unwrap_or(u64::MAX),
        max_tokens_at: written.span(),
        stream: facts.stream,
        thinking_budget: facts.thinking_budget,
        thinking: facts.thinking,
        prompt_bound: match facts.window {
            Some(_) => None,
            None => Some(prompt_bound(body, &facts)),
        },
        countable: !facts.uncountable,
        window_because: facts.window,
        counted_parts: facts
            .counted
            .iter()
            .map(|(name, value)| (*name, value.span()))
            .collect(),
        writes: facts.writes,
        one_hour_asked: facts.writes == WriteBound::OneHour,
        web_searches: facts.web_searches,
        web_search_tokens: facts.web_search_tokens,
        samplings: facts.samplings,
        compaction: facts.compaction,
        splices: facts.splices,
    })
}

/// Judges the body of `POST /v1/messages/count_tokens`: the same schema, without `max_tokens`.
///
/// # Errors
/// The first reason to refuse it.
pub fn check_count_tokens(body: &[u8], policy: &GatePolicy) -> Result<(), GateRefusal> {
    let tape = parse(body)?;
    let facts = walk::walk(&tape, schema::REQUEST, policy)?;
    required(&facts).map(drop)
}

fn parse(body: &[u8]) -> Result<Tape<'_>, GateRefusal> {
    Tape::parse(body)
        .map_err(|error| GateRefusal::Malformed(format!("the body is not strict JSON: {error}")))
}

/// The model's id; the parts that every request has must be there.
fn required(facts: &Facts<'_>) -> Result<String, GateRefusal> {
    let missing = |key: &str| GateRefusal::Malformed(format!("{key} is missing"));
    let model = facts
        .model
        .and_then(Value::string)
        .ok_or_else(|| missing("model"))?;
    if !facts.messages {
        return Err(missing("messages"));
    }
    let odd = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-._:@/".contains(&byte);
    if model.is_empty() || model.len() > LONGEST_MODEL || model.bytes().any(odd) {
        return Err(GateRefusal::Feature {
            what: format!("model '{}'", shown(&model)),
            why: "no model id looks like this, so it has no price".to_owned(),
            remedy: "ask for an id of `labproxy pricing show`".to_owned(),
        });
    }
    Ok(model.into_owned())
}

/// Most tokens that the prompt can have: one for each byte, and what is not in the bytes.
fn prompt_bound(body: &[u8], facts: &Facts<'_>) -> u64 {
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    bytes
        .saturating_add(facts.tokens)
        .saturating_add(expanded(facts))
        .saturating_add(PROMPT_SLACK)
}

/// Tokens of the definitions that references repeat. A name that no tool has counts as the largest
/// tool.
fn expanded(facts: &Facts<'_>) -> u64 {
    if facts.references.is_empty() {
        return 0;
    }
    let mut largest = 0;
    let mut costs: HashMap<_, u64> = HashMap::new();
    for (name, cost) in &facts.tools {
        largest = largest.max(*cost);
        if let Some(name) = name.and_then(Value::string) {
            let most = costs.entry(name).or_default();
            *most = (*most).max(*cost);
        }
    }
    facts.references.iter().fold(0, |sum: u64, name| {
        let cost = name
            .and_then(Value::string)
            .and_then(|name| costs.get(&name).copied())
            .unwrap_or(largest);
        sum.saturating_add(cost)
    })
}
