//! What a response reports: counters merged from JSON or from a stream of events, and what a
//! request is charged for the way it ended.

mod delta;
mod document;
mod events;
mod merge;
pub mod outcome;
pub mod reader;
mod record;

pub use outcome::{
    Admission, BodyEnd, CREDENTIAL_REFUSED, CloseReason, Settlement, Verdict, decide,
};
pub use reader::{BodyKind, Observed, UsageReader};

/// Counters of one response, merged: each at the largest value seen.
///
/// The prompt has `input + cache_creation + cache_read` tokens: three disjoint parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Counters at top level.
    pub top: Counts,
    /// `server_tool_use.web_search_requests`.
    pub web_searches: u64,
    /// `speed` as served.
    pub speed: Option<String>,
    /// `inference_geo` as served.
    pub geo: Option<String>,
    /// `service_tier` as served.
    pub service_tier: Option<String>,
    /// `iterations`, where the response has them.
    pub iterations: Vec<Iteration>,
    /// Positive counters that this program does not know, by path.
    pub unknown: Vec<String>,
    /// Known counters that hold something other than a count, by path.
    pub unreadable: Vec<String>,
    /// Whether any counter was seen to fall.
    pub fell: bool,
    /// The merged usage object as the provider wrote it, for the ledger.
    pub raw: serde_json::Map<String, serde_json::Value>,
}

/// Token counts of one sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Uncached input.
    pub input: u64,
    /// Output, thinking included.
    pub output: u64,
    /// Cache writes of both kinds.
    pub cache_creation: u64,
    /// Cache reads.
    pub cache_read: u64,
    /// The split of the writes, where one was given: five minutes, one hour.
    pub split: Option<(u64, u64)>,
}

impl Usage {
    /// Whether the prompt was counted at all. A usage object without any counter of the prompt is
    /// as good as none: unknown is not zero.
    pub fn has_prompt(&self) -> bool {
        let keys = [
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        ];
        let is_number = |key: &str| self.raw.get(key).is_some_and(serde_json::Value::is_number);
        keys.into_iter().any(is_number)
    }
}

impl Counts {
    /// Tokens written to the cache: the aggregate, or the sum of the split where there is none.
    pub fn created(&self) -> u64 {
        match (self.cache_creation, self.split) {
            (0, Some((five_minutes, one_hour))) => five_minutes.saturating_add(one_hour),
            (aggregate, _) => aggregate,
        }
    }

    /// Tokens of the whole prompt.
    pub fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.created())
            .saturating_add(self.cache_read)
    }

    /// Cache writes as they are charged: five minutes, one hour. What the split leaves open is one
    /// hour when that was asked for, else five minutes.
    pub(crate) fn writes(&self, one_hour_asked: bool) -> (u64, u64) {
        let created = self.created();
        let (five_minutes, one_hour) = self.split.unwrap_or((0, 0));
        let open = created.saturating_sub(five_minutes.saturating_add(one_hour));
        let asked = if one_hour_asked { open } else { 0 };
        let one_hour = one_hour.saturating_add(asked).min(created);
        (created.saturating_sub(one_hour), one_hour)
    }

    /// The sum, category by category.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self::combined(self, other, u64::saturating_add)
    }

    /// What is left of `self`, category by category, never below nothing.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self::combined(self, other, u64::saturating_sub)
    }

    fn combined(one: &Self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        let split = match (one.split, other.split) {
            (None, None) => None,
            (one, other) => {
                let (one, other) = (one.unwrap_or((0, 0)), other.unwrap_or((0, 0)));
                Some((with(one.0, other.0), with(one.1, other.1)))
            }
        };
        let created = with(one.created(), other.created());
        Self {
            input: with(one.input, other.input),
            output: with(one.output, other.output),
            cache_creation: created,
            cache_read: with(one.cache_read, other.cache_read),
            // A split without an aggregate would count as one.
            split: split.filter(|_| created > 0),
        }
    }

    /// Whether the four totals are equal.
    pub(crate) fn same_totals(&self, other: &Self) -> bool {
        self.input == other.input
            && self.output == other.output
            && self.created() == other.created()
            && self.cache_read == other.cache_read
    }

    /// Whether every total is zero.
    pub(crate) fn is_nothing(&self) -> bool {
        self.same_totals(&Self::default())
    }
}

/// One entry of `usage.iterations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// `message`, `compaction`, `advisor_message`, `fallback_message` or something new.
    pub kind: String,
    /// Its model, where it names one.
    pub model: Option<String>,
    /// Its counts.
    pub counts: Counts,
}
