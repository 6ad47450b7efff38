//! The receipt of a session: a pure fold over its ledger entries.
//!
//! The JSON is stable: other tools read it. The same entries always give the same receipt, while
//! the session runs and years later.

mod check;
mod fold;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cap::OnCap;
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Head, Recorded, WorkspaceEnd};
use crate::money::PicoUsd;

pub use check::check;

use fold::Fold;

/// Version of the receipt's JSON.
pub const RECEIPT_SCHEMA: u32 = 1;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered and charged by its usage.
    Settled,
    /// Nothing was charged: the provider refused it, or it was never sent.
    Free,
    /// labproxy refused it.
    Refused,
    /// The whole hold is charged.
    Kept,
    /// The upstream could not be reached; nothing was sent.
    UpstreamError,
}

impl Outcome {
    /// What an entry says became of a request; `None` when it does not end one.
    pub fn of(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Settled { free: true, .. } => Some(Self::Free),
            Entry::Settled { free: false, .. } => Some(Self::Settled),
            Entry::Released { end, .. } => {
                let unreachable = end.as_ref().and_then(|end| end.status);
                Some(if unreachable.is_some_and(|status| status >= 500) {
                    Self::UpstreamError
                } else {
                    Self::Free
                })
            }
            Entry::Kept { .. } => Some(Self::Kept),
            Entry::Refused { .. } => Some(Self::Refused),
            Entry::Opened { .. }
            | Entry::Held { .. }
            | Entry::RefusedMore { .. }
            | Entry::Overrun { .. }
            | Entry::ToppedUp { .. }
            | Entry::Closed { .. }
            | Entry::Ended { .. }
            | Entry::Audited { .. }
            | Entry::Corrected { .. } => None,
        }
    }

    /// The word in the receipt.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Free => "free",
            Self::Refused => "refused",
            Self::Kept => "kept",
            Self::UpstreamError => "upstream_error",
        }
    }
}

/// The agent of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its argv\[0\].
    pub argv0: Option<String>,
    /// The host that it worked on, as the user names it; absent: this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its exit code, once it has ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// `max_tokens` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxTokens {
    /// As asked.
    pub asked: Option<u64>,
    /// As sent; `None` when it was not.
    pub sent: Option<u64>,
}

/// One `POST /v1/messages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLine {
    /// Its name.
    pub id: RequestId,
    /// When it arrived.
    pub at: Timestamp,
    /// Whether events were asked for.
    pub stream: Option<bool>,
    /// The model asked for.
    pub model: Option<String>,
    /// The model that served it.
    pub served_model: Option<String>,
    /// The status the client got.
    pub status: Option<u16>,
    /// What became of it; `None` while it is in flight.
    pub outcome: Option<Outcome>,
    /// The client left before the end.
    pub client_gone: bool,
    /// Why, where the outcome needs a reason.
    pub reason: Option<String>,
    /// What was held for it.
    pub held_pico_usd: PicoUsd,
    /// What it was charged.
    pub charged_pico_usd: PicoUsd,
    /// `max_tokens`.
    pub max_tokens: MaxTokens,
    /// Merged raw usage.
    pub usage: Option<Map<String, Value>>,
    /// The provider's `request-id`.
    pub upstream_request_id: Option<String>,
    /// Milliseconds from arrival to the first body byte.
    pub ttfb_ms: Option<u64>,
    /// Milliseconds from arrival to the end.
    pub duration_ms: Option<u64>,
}

/// A session's receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// [`RECEIPT_SCHEMA`].
    pub schema: u32,
    /// The version that ran the session last.
    pub labproxy_version: String,
    /// The session.
    pub session: SessionId,
    /// `agent_exit`, `cap`, `stopped`, `overrun`, `link_lost`, `host_killed` or `error`; `None`
    /// while it runs.
    pub end_reason: Option<String>,
    /// Its cap.
    pub cap_pico_usd: PicoUsd,
    /// Charged in all.
    pub spent_pico_usd: PicoUsd,
    /// Held by requests in flight.
    pub held_pico_usd: PicoUsd,
    /// What is left of the cap.
    pub unused_pico_usd: PicoUsd,
    /// Why that was not used, where it was too little for a request.
    pub unused_because: Option<String>,
    /// Whether a request was refused for want of room.
    pub cap_reached: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// Digest of the price file.
    pub pricing_digest: String,
    /// Calls that cost nothing.
    pub free_requests: u64,
    /// The agent.
    pub agent: Agent,
    /// Every `POST /v1/messages`, in order of arrival; after 1,000 refusals those are only counted.
    pub requests: Vec<RequestLine>,
    /// Refusals that are not listed.
    pub refusals_beyond_listed: u64,
    /// What happens when a request does not fit.
    pub on_cap: OnCap,
    /// What was charged above the cap: in soft mode, or by an overrun.
    pub over_cap_pico_usd: PicoUsd,
    /// What was pushed and pulled of the workspace, in all runs of the session; absent: the agent had
    /// none on a host, or no run has ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceEnd>,
    /// The session's last entry in the ledger's chain, which stands for all before it.
    pub ledger: Head,
}

impl Receipt {
    /// Folds a session's entries, oldest first; `None` when there are none.
    pub fn fold(session: &SessionId, entries: &[Recorded]) -> Option<Self> {
        let first = entries.first()?;
        let mut fold = Fold::new(session, first);
        for recorded in entries {
            fold.take(recorded);
        }
        Some(fold.finish())
    }
}
