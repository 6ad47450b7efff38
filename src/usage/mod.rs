//! What a response reports: counters merged from JSON or from a stream of events, and what a
//! request is charged for the way it ended.

pub mod outcome;
pub mod reader;

pub use outcome::{Admission, BodyEnd, CloseReason, Settlement, Verdict, decide};
pub use reader::{Observed, UsageReader};

/// Counters of one response, merged: each at the largest value seen.
///
/// The prompt has `input + cache_creation + cache_read` tokens: three disjoint parts.
#[derive(Clone, Debug, PartialEq, Eq)]
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
