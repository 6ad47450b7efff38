//! The fold itself: one entry after the other into a receipt.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{Agent, MaxTokens, Outcome, RECEIPT_SCHEMA, Receipt, RequestLine};
use crate::cap::{OnCap, REFUSALS_LISTED};
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Recorded, RequestEnd, RequestFacts};
use crate::money::PicoUsd;

/// A request and where it stands in the order of arrival: launch of the session, then number.
struct Arrived {
    order: (u64, u64),
    line: RequestLine,
}

pub(super) struct Fold {
    receipt: Receipt,
    requests: Vec<Arrived>,
    index: HashMap<RequestId, usize>,
    launches: u64,
    refusals_listed: u64,
    /// What the last request needed that did not fit.
    needed: Option<PicoUsd>,
}

impl Fold {
    pub(super) fn new(session: &SessionId, first: &Recorded) -> Self {
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
                workspace: None,
                ledger: first.head,
            },
            requests: Vec::new(),
            index: HashMap::new(),
            launches: 0,
            refusals_listed: 0,
            needed: None,
        }
    }

    pub(super) fn take(&mut self, recorded: &Recorded) {
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
                free: _,
                end,
                lines: _,
                note,
            } => self.end(request, &recorded.entry, *charged, note.clone(), Some(end)),
            Entry::Released {
                request,
                reason,
                end,
            } => {
                let reason = Some(reason.clone());
                self.end(
                    request,
                    &recorded.entry,
                    PicoUsd::ZERO,
                    reason,
                    end.as_ref(),
                );
            }
            Entry::Kept {
                request,
                charged,
                reason,
                end,
            } => {
                let reason = Some(reason.clone());
                self.end(request, &recorded.entry, *charged, reason, end.as_ref());
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
            }
            Entry::Overrun { .. } | Entry::Closed { .. } | Entry::Audited { .. } => {}
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
                host,
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
                    host: host.clone(),
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
                workspace,
            } => {
                if let Some(later) = workspace {
                    let all = receipt.workspace.get_or_insert_default();
                    all.then(later);
                }
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
        entry: &Entry,
        charged: PicoUsd,
        reason: Option<String>,
        end: Option<&RequestEnd>,
    ) {
        let Some(line) = self.line(request) else {
            return;
        };
        line.outcome = Outcome::of(entry);
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

    pub(super) fn finish(mut self) -> Receipt {
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
