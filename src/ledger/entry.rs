//! What the ledger records: one closed set of entries.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::audit::Audit;
use crate::cap::OnCap;
use crate::id::RequestId;
use crate::money::PicoUsd;
use crate::pricing::BillLine;
use crate::usage::CloseReason;

/// What is known of a request when it is held or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFacts {
    /// When it arrived.
    pub at: Timestamp,
    /// Whether events were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// The model asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `max_tokens` as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_asked: Option<u64>,
}

/// What is known of a request when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnd {
    /// The status the client got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The model that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
    /// Merged raw usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<serde_json::Map<String, serde_json::Value>>,
    /// The provider's `request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_request_id: Option<String>,
    /// Milliseconds from arrival to the first body byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttfb_ms: Option<u64>,
    /// Milliseconds from arrival to the end.
    pub duration_ms: u64,
    /// The client left before the end.
    #[serde(default)]
    pub client_gone: bool,
    /// `stop_reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// What was done with a session's workspace in one run of it, and what became of it at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceEnd {
    /// Pushes that ended well.
    pub pushes: u64,
    /// Pulls that made or found a generation.
    pub pulls: u64,
    /// Bytes of contents that were sent.
    pub sent_bytes: u64,
    /// Bytes of contents that were received.
    pub received_bytes: u64,
    /// Files that pulls made, changed, moved or removed on this machine.
    pub changed_files: u64,
    /// The hash of the tree that was pushed, BLAKE3 in hexadecimal; `None`: nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_before: Option<String>,
    /// The hash of the tree that was pulled last; `None`: nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_after: Option<String>,
    /// The number of the generation that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The agent's work, or a part of it, is on the host and not in the directory here.
    pub unpulled: bool,
}

impl WorkspaceEnd {
    /// The same, with what a later run of the session did.
    pub fn then(&mut self, later: &Self) {
        self.pushes = self.pushes.saturating_add(later.pushes);
        self.pulls = self.pulls.saturating_add(later.pulls);
        self.sent_bytes = self.sent_bytes.saturating_add(later.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(later.received_bytes);
        self.changed_files = self.changed_files.saturating_add(later.changed_files);
        self.tree_before = self
            .tree_before
            .take()
            .or_else(|| later.tree_before.clone());
        self.tree_after = later.tree_after.clone().or_else(|| self.tree_after.take());
        self.generation = later.generation.or(self.generation);
        self.unpulled = later.unpulled;
    }
}

/// One line of a bill as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargedLine {
    /// Served model.
    pub model: String,
    /// What was counted, in the words of [`BillLine::item`].
    pub item: Cow<'static, str>,
    /// How many.
    pub count: u64,
    /// Pico-dollars for one.
    pub pico_per_unit: u64,
    /// Pico-dollars in all.
    pub pico_usd: PicoUsd,
}

impl From<BillLine> for ChargedLine {
    fn from(line: BillLine) -> Self {
        Self {
            model: line.model,
            item: Cow::Borrowed(line.item),
            count: line.count,
            pico_per_unit: line.pico_per_unit,
            pico_usd: line.pico_usd,
        }
    }
}

/// One entry. Entries are appended, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
pub enum Entry {
    /// A session began, or began again (`resumed`).
    Opened {
        /// Its cap.
        cap: PicoUsd,
        /// `clamp`, `refuse` or `soft`.
        on_cap: OnCap,
        /// Digest of the price file, and the file's text is stored once beside the entries.
        pricing_digest: String,
        /// The agent's argv\[0\].
        argv0: Option<String>,
        /// The host that it works on, as the user names it; none: this machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// labproxy's version.
        version: String,
        /// Whether it goes on with an earlier session of this id.
        resumed: bool,
    },
    /// Room was reserved; durable before the first byte is sent.
    Held {
        /// The request.
        request: RequestId,
        /// What is known of it.
        facts: RequestFacts,
        /// How many requests this launch of the session had seen before: a held request may have
        /// waited while later ones went on.
        arrival: u64,
        /// `max_tokens` as sent.
        max_tokens_sent: u64,
        /// How much.
        amount: PicoUsd,
    },
    /// The answer was priced.
    Settled {
        /// The request.
        request: RequestId,
        /// What it was charged; 0 with `free`.
        charged: PicoUsd,
        /// A provider's error that costs nothing.
        free: bool,
        /// The bill's lines.
        lines: Vec<ChargedLine>,
        /// How it ended.
        end: RequestEnd,
        /// What was odd.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The hold was given back: nothing was sent.
    Released {
        /// The request.
        request: RequestId,
        /// Why.
        reason: String,
        /// What the client got, where it got anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<RequestEnd>,
    },
    /// The whole hold is charged.
    Kept {
        /// The request.
        request: RequestId,
        /// How much.
        charged: PicoUsd,
        /// Why.
        reason: String,
        /// How it ended, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<RequestEnd>,
    },
    /// A request was refused; nothing was held.
    Refused {
        /// The request.
        request: RequestId,
        /// What is known of it.
        facts: RequestFacts,
        /// As in `Held`.
        arrival: u64,
        /// The status the client got.
        status: u16,
        /// Why.
        reason: String,
        /// The smallest hold that would have been taken, when it was refused for want of room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<PicoUsd>,
    },
    /// Refusals beyond the first 1,000, counted only.
    RefusedMore {
        /// How many since the last such entry.
        count: u64,
        /// As in `Refused`, of the last of them that was refused for want of room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<PicoUsd>,
    },
    /// A charge above its hold; the charge itself stands in `Settled`.
    Overrun {
        /// The request.
        request: RequestId,
        /// How much above.
        by: PicoUsd,
    },
    /// The cap was raised.
    ToppedUp {
        /// By how much.
        by: PicoUsd,
        /// To what.
        cap: PicoUsd,
    },
    /// The session takes no more requests.
    Closed {
        /// Why.
        reason: CloseReason,
    },
    /// The session's process ended in order.
    Ended {
        /// `agent_exit`, `cap`, `stopped`, `overrun`, `link_lost`, `host_killed` or `error`.
        end_reason: String,
        /// The agent's exit code.
        exit_code: Option<i32>,
        /// The agent's signal.
        signal: Option<String>,
        /// Calls that cost nothing (`count_tokens`, models).
        free_requests: u64,
        /// What became of the workspace, when the agent had one on a host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<WorkspaceEnd>,
    },
    /// A tool looked at what the agent made, or was to.
    Audited {
        /// The audit.
        audit: Box<Audit>,
    },
    /// An operator's correction of a kept hold, with a reason.
    Corrected {
        /// The request.
        request: RequestId,
        /// What it is charged after all.
        charged: PicoUsd,
        /// Why.
        reason: String,
    },
}
