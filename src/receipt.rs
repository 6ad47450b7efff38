//! The receipt of a session: a pure fold over its ledger entries.
//!
//! The JSON is stable: other tools read it. The same entries always give the same receipt, while
//! the session runs and years later.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cap::{OnCap, REFUSALS_LISTED};
use crate::id::{RequestId, SessionId};
use crate::ledger::{ChargedLine, Entry, Head, Recorded, RequestEnd, RequestFacts};
use crate::money::PicoUsd;

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
    /// `agent_exit`, `cap`, `stopped`, `overrun` or `error`; `None` while it runs.
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
    /// The session's last entry in the ledger's chain, which stands for all before it.
    pub ledger: Head,
    /// Counts and amounts by model and item.
    #[serde(skip)]
    sums: BTreeMap<(String, String), Sum>,
}

/// Count and amount of one model and item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    charged: PicoUsd,
}

/// What a person is shown of a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many requests had each outcome; those in flight have none.
    pub requests: Vec<(Option<Outcome>, u64)>,
    /// Tokens and searches by kind, in the words of a bill.
    pub items: Vec<(String, u64)>,
    /// Charges by model.
    pub models: Vec<(String, PicoUsd)>,
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

    /// What a person is shown.
    pub fn summary(&self) -> Summary {
        let mut requests = BTreeMap::<Option<Outcome>, u64>::new();
        for line in &self.requests {
            *requests.entry(line.outcome).or_default() += 1;
        }
        if self.refusals_beyond_listed > 0 {
            *requests.entry(Some(Outcome::Refused)).or_default() += self.refusals_beyond_listed;
        }
        let mut items = BTreeMap::<&str, u64>::new();
        let mut models = BTreeMap::<&str, PicoUsd>::new();
        for ((model, item), sum) in &self.sums {
            if sum.count > 0 {
                let count = items.entry(item).or_default();
                *count = count.saturating_add(sum.count);
            }
            let charged = models.entry(model).or_default();
            *charged = charged.saturating_add(sum.charged);
        }
        Summary {
            requests: requests.into_iter().collect(),
            items: items
                .into_iter()
                .map(|(item, count)| (item.to_owned(), count))
                .collect(),
            models: models
                .into_iter()
                .map(|(model, charged)| (model.to_owned(), charged))
                .collect(),
        }
    }
}

/// A request and where it stands in the order of arrival: launch of the session, then number.
struct Arrived {
    order: (u64, u64),
    line: RequestLine,
}

struct Fold {
    receipt: Receipt,
    requests: Vec<Arrived>,
    index: HashMap<RequestId, usize>,
    launches: u64,
    refusals_listed: u64,
    /// What the last request needed that did not fit.
    needed: Option<PicoUsd>,
}

impl Fold {
    fn new(session: &SessionId, first: &Recorded) -> Self {
        Self {
            receipt: Receipt {
                schema: RECEIPT_SCHEMA,
                labproxy_version: String::new(),
                session: session.clone(),
                end_reason: None,
                cap_pico_usd: PicoUsd::ZERO,
                spent_pico_usd: PicoUsd::ZERO,
                held_pico_usd: PicoUsd::ZERO,
                unused_pico_usd: PicoUsd::ZERO,
                unused_because: None,
                cap_reached: false,
                started_at: first.at,
                ended_at: None,
                pricing_digest: String::new(),
                free_requests: 0,
                agent: Agent::default(),
                requests: Vec::new(),
                refusals_beyond_listed: 0,
                on_cap: OnCap::default(),
                over_cap_pico_usd: PicoUsd::ZERO,
                ledger: first.head,
                sums: BTreeMap::new(),
            },
            requests: Vec::new(),
            index: HashMap::new(),
            launches: 0,
            refusals_listed: 0,
            needed: None,
        }
    }

    fn take(&mut self, recorded: &Recorded) {
        self.receipt.ledger = recorded.head;
        match &recorded.entry {
            Entry::Opened { .. } | Entry::Ended { .. } => {
                self.take_session(recorded.at, &recorded.entry);
            }
            Entry::Held {
                request,
                facts,
                arrival,
                max_tokens_sent,
                amount,
            } => {
                let mut line = new_line(request, facts);
                line.held_pico_usd = *amount;
                line.max_tokens.sent = Some(*max_tokens_sent);
                self.add(*arrival, line);
            }
            Entry::Settled {
                request,
                charged,
                free,
                lines,
                end,
                note,
            } => {
                let outcome = if *free {
                    Outcome::Free
                } else {
                    Outcome::Settled
                };
                self.end(request, outcome, *charged, note.clone(), Some(end));
                self.bill(lines);
            }
            Entry::Released {
                request,
                reason,
                end,
            } => {
                let unreachable = end.as_ref().and_then(|end| end.status);
                let outcome = if unreachable.is_some_and(|status| status >= 500) {
                    Outcome::UpstreamError
                } else {
                    Outcome::Free
                };
                let reason = Some(reason.clone());
                self.end(request, outcome, PicoUsd::ZERO, reason, end.as_ref());
            }
            Entry::Kept {
                request,
                charged,
                reason,
                end,
            } => {
                let reason = Some(reason.clone());
                self.end(request, Outcome::Kept, *charged, reason, end.as_ref());
                self.keep(request, *charged);
            }
            Entry::Refused { .. } | Entry::RefusedMore { .. } => {
                self.take_refusal(&recorded.entry);
            }
            Entry::ToppedUp { cap, .. } => self.receipt.cap_pico_usd = *cap,
            Entry::Corrected {
                request,
                charged,
                reason,
            } => {
                if let Some(line) = self.line(request) {
                    line.charged_pico_usd = *charged;
                    line.reason = Some(format!("corrected: {reason}"));
                }
                self.keep(request, *charged);
            }
            Entry::Overrun { .. } | Entry::Closed { .. } => {}
        }
    }

    fn take_session(&mut self, at: Timestamp, entry: &Entry) {
        let receipt = &mut self.receipt;
        match entry {
            Entry::Opened {
                cap,
                on_cap,
                pricing_digest,
                argv0,
                version,
                resumed: _,
            } => {
                self.launches += 1;
                receipt.cap_pico_usd = *cap;
                receipt.on_cap = *on_cap;
                receipt.pricing_digest.clone_from(pricing_digest);
                receipt.labproxy_version.clone_from(version);
                receipt.agent = Agent {
                    argv0: argv0.clone(),
                    ..Agent::default()
                };
                receipt.end_reason = None;
                receipt.ended_at = None;
            }
            Entry::Ended {
                end_reason,
                exit_code,
                signal,
                free_requests,
            } => {
                receipt.end_reason = Some(end_reason.clone());
                receipt.ended_at = Some(at);
                receipt.agent.exit_code = *exit_code;
                receipt.agent.signal.clone_from(signal);
                receipt.free_requests = receipt.free_requests.saturating_add(*free_requests);
            }
            _ => {}
        }
    }

    fn take_refusal(&mut self, entry: &Entry) {
        match entry {
            Entry::Refused {
                request,
                facts,
                arrival,
                status,
                reason,
                needed,
            } => {
                self.needed = needed.or(self.needed);
                if self.refusals_listed >= REFUSALS_LISTED {
                    self.receipt.refusals_beyond_listed += 1;
                    return;
                }
                self.refusals_listed += 1;
                let mut line = new_line(request, facts);
                line.status = Some(*status);
                line.outcome = Some(Outcome::Refused);
                line.reason = Some(reason.clone());
                self.add(*arrival, line);
            }
            Entry::RefusedMore { count, needed } => {
                self.needed = needed.or(self.needed);
                let beyond = &mut self.receipt.refusals_beyond_listed;
                *beyond = beyond.saturating_add(*count);
            }
            _ => {}
        }
    }

    fn add(&mut self, arrival: u64, line: RequestLine) {
        self.index.insert(line.id.clone(), self.requests.len());
        self.requests.push(Arrived {
            order: (self.launches, arrival),
            line,
        });
    }

    fn line(&mut self, request: &RequestId) -> Option<&mut RequestLine> {
        let index = *self.index.get(request)?;
        self.requests
            .get_mut(index)
            .map(|arrived| &mut arrived.line)
    }

    fn end(
        &mut self,
        request: &RequestId,
        outcome: Outcome,
        charged: PicoUsd,
        reason: Option<String>,
        end: Option<&RequestEnd>,
    ) {
        let Some(line) = self.line(request) else {
            return;
        };
        line.outcome = Some(outcome);
        line.charged_pico_usd = charged;
        line.reason = reason;
        let Some(end) = end else { return };
        line.status = end.status;
        line.served_model.clone_from(&end.served_model);
        line.client_gone = end.client_gone;
        line.usage.clone_from(&end.usage);
        line.upstream_request_id
            .clone_from(&end.upstream_request_id);
        line.ttfb_ms = end.ttfb_ms;
        line.duration_ms = Some(end.duration_ms);
    }

    fn bill(&mut self, lines: &[ChargedLine]) {
        for line in lines {
            let key = (line.model.clone(), line.item.clone().into_owned());
            let sum = self.receipt.sums.entry(key).or_default();
            sum.count = sum.count.saturating_add(line.count);
            sum.charged = sum.charged.saturating_add(line.pico_usd);
        }
    }

    /// A kept hold has no bill: it counts for the model asked for, without tokens.
    fn keep(&mut self, request: &RequestId, charged: PicoUsd) {
        let model = self.line(request).and_then(|line| line.model.clone());
        let key = (
            model.unwrap_or_else(|| "unknown".to_owned()),
            format!("kept {request}"),
        );
        let sum = Sum { count: 0, charged };
        self.receipt.sums.insert(key, sum);
    }

    fn finish(mut self) -> Receipt {
        self.requests.sort_by_key(|arrived| arrived.order);
        let receipt = &mut self.receipt;
        receipt.requests = self
            .requests
            .into_iter()
            .map(|arrived| arrived.line)
            .collect();
        for line in &receipt.requests {
            let charged = line.charged_pico_usd;
            receipt.spent_pico_usd = receipt.spent_pico_usd.saturating_add(charged);
            if line.outcome.is_none() {
                receipt.held_pico_usd = receipt.held_pico_usd.saturating_add(line.held_pico_usd);
            }
        }
        let taken = receipt.spent_pico_usd.saturating_add(receipt.held_pico_usd);
        receipt.unused_pico_usd = receipt.cap_pico_usd.saturating_sub(taken);
        receipt.over_cap_pico_usd = receipt.spent_pico_usd.saturating_sub(receipt.cap_pico_usd);
        receipt.cap_reached = self.needed.is_some();
        let unused = receipt.unused_pico_usd;
        receipt.unused_because = self
            .needed
            .filter(|needed| unused != PicoUsd::ZERO && *needed > unused)
            .map(|needed| {
                format!("the next request could have cost {needed}, and only {unused} is left")
            });
        self.receipt
    }
}

fn new_line(request: &RequestId, facts: &RequestFacts) -> RequestLine {
    RequestLine {
        id: request.clone(),
        at: facts.at,
        stream: facts.stream,
        model: facts.model.clone(),
        served_model: None,
        status: None,
        outcome: None,
        client_gone: false,
        reason: None,
        held_pico_usd: PicoUsd::ZERO,
        charged_pico_usd: PicoUsd::ZERO,
        max_tokens: MaxTokens {
            asked: facts.max_tokens_asked,
            sent: None,
        },
        usage: None,
        upstream_request_id: None,
        ttfb_ms: None,
        duration_ms: None,
    }
}
