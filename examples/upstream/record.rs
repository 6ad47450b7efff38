//! What the stand-in saw and what it served.

use std::collections::BTreeMap;

use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::http::request::Parts;
use serde::Serialize;

use super::events::Facts;
use super::prices::{Tokens, pico_usd};

/// One request as it arrived; never its credential, never its body.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Seen {
    /// `POST`, …
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Name and value of every header but the credential's.
    pub(crate) headers: Vec<(String, String)>,
    /// `expected`, `other`, `none`, or `any` when nothing is expected.
    pub(crate) credential: &'static str,
    /// Length of the body.
    pub(crate) body_bytes: usize,
    /// BLAKE3 of the body, hexadecimal.
    pub(crate) body_blake3: String,
    /// The status of the answer, 0 until there is one.
    pub(crate) status: u16,
}

/// One priced answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Call {
    /// The `request-id` header of the answer.
    pub(crate) request_id: String,
    /// The resolved model.
    pub(crate) model: &'static str,
    /// What was read and generated so far.
    pub(crate) tokens: Tokens,
    /// What that costs.
    pub(crate) pico_usd: u64,
    /// Why the answer ends.
    pub(crate) stop_reason: &'static str,
    #[serde(skip)]
    us_only: bool,
    #[serde(skip)]
    fast: bool,
}

impl Call {
    /// An answer that has generated `output` tokens so far.
    pub(crate) fn new(
        facts: &Facts,
        output: u64,
        stop_reason: &'static str,
        request_id: String,
    ) -> Self {
        let mut call = Self {
            request_id,
            model: facts.model,
            tokens: Tokens {
                output,
                ..facts.tokens
            },
            pico_usd: 0,
            stop_reason,
            us_only: facts.us_only,
            fast: facts.fast,
        };
        call.price();
        call
    }

    /// A refusal before any output costs nothing.
    fn price(&mut self) {
        self.pico_usd = if self.stop_reason == "refusal" && self.tokens.output == 0 {
            0
        } else {
            pico_usd(self.model, self.tokens, self.us_only, self.fast)
        };
    }
}

/// What was served, priced.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Served {
    /// Priced answers.
    pub(crate) answers: usize,
    /// Their cost.
    pub(crate) pico_usd: u64,
    /// The cost by model.
    pub(crate) by_model: BTreeMap<&'static str, u64>,
    /// Each of them, in order.
    pub(crate) calls: Vec<Call>,
}

/// Everything remembered.
#[derive(Debug, Default)]
pub(crate) struct Record {
    requests: Vec<Seen>,
    calls: Vec<Call>,
}

impl Record {
    /// Notes a request; returns its serial number, from 1.
    pub(crate) fn saw(&mut self, head: &Parts, body: &[u8], expected: Option<&str>) -> u64 {
        let shown = credential(&head.headers);
        let headers = head
            .headers
            .iter()
            .filter(|(name, _)| **name != AUTHORIZATION && name.as_str() != "x-api-key");
        self.requests.push(Seen {
            method: head.method.to_string(),
            target: head.uri.to_string(),
            headers: headers
                .map(|(name, value)| {
                    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    (name.to_string(), text)
                })
                .collect(),
            credential: match (shown, expected) {
                (None, _) => "none",
                (Some(_), None) => "any",
                (Some(shown), Some(expected)) if shown == expected.as_bytes() => "expected",
                _ => "other",
            },
            body_bytes: body.len(),
            body_blake3: blake3::hash(body).to_hex().to_string(),
            status: 0,
        });
        u64::try_from(self.requests.len()).unwrap_or(u64::MAX)
    }

    /// Notes the status of an answer.
    pub(crate) fn answered(&mut self, serial: u64, status: u16) {
        let at = usize::try_from(serial).unwrap_or(0).wrapping_sub(1);
        if let Some(seen) = self.requests.get_mut(at) {
            seen.status = status;
        }
    }

    /// Notes the beginning of a priced answer; returns its place.
    pub(crate) fn began(&mut self, call: Call) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Notes that an answer has generated that many tokens; never fewer than before.
    pub(crate) fn generated(&mut self, nth: usize, output: u64) {
        if let Some(call) = self.calls.get_mut(nth) {
            call.tokens.output = call.tokens.output.max(output);
            call.price();
        }
    }

    /// Every request, in order of arrival.
    pub(crate) fn requests(&self) -> &[Seen] {
        &self.requests
    }

    /// The priced answers and their sums.
    pub(crate) fn served(&self) -> Served {
        let mut by_model = BTreeMap::new();
        for call in &self.calls {
            *by_model.entry(call.model).or_insert(0) += call.pico_usd;
        }
        Served {
            answers: self.calls.len(),
            pico_usd: by_model.values().sum(),
            by_model,
            calls: self.calls.clone(),
        }
    }
}

/// The credential that a request shows: exactly one, or none.
pub(crate) fn credential(headers: &HeaderMap) -> Option<&[u8]> {
    let key = headers.get("x-api-key").map(http::HeaderValue::as_bytes);
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    match (key, bearer) {
        (Some(one), None) | (None, Some(one)) => Some(one),
        _ => None,
    }
}
