//! The life of one `POST /v1/messages`, up to the moment it is sent.
//!
//! Read, judge, price, reserve, connect, look whether the client is still there, send. Until
//! `Reserved::sent` dropping any of this gives the hold back; from then on only an answer lowers
//! the charge, and [`super::exchange`] goes on.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::Proxy;
use super::apart::apart;
use super::charge::{Charge, ClientPresence};
use super::drain::Detachable;
use super::exchange::{Exchange, exchange};
use super::gate::{self, Intent};
use super::headers::{self, Forwarded};
use super::peers::Peer;
use super::read::{self, ReadBody};
use super::refusal::{Refusal, UpstreamTrouble};
use super::relay::ProxyBody;
use super::serve::{nameless, own};
use crate::cap::{Ask, Denied, Grant, HoldTerms, OnCap};
use crate::id::RequestId;
use crate::ledger::{RequestEnd, RequestFacts};
use crate::pricing::HoldRates;
use crate::usage::Admission;

/// This program's name for the request, as in the ledger and the receipt.
const REQUEST: HeaderName = HeaderName::from_static("x-labproxy-request");
/// `max_tokens` as asked and as sent, when it was lowered to fit under the cap.
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-labproxy-max-tokens");
/// Bodies beyond this are judged on a thread of their own: reading 1 MiB takes a few milliseconds,
/// which a stream on the same thread would notice.
const JUDGE_HERE: usize = 64 * 1024;

/// A request that is on its way to being sent.
struct Message<'a> {
    proxy: &'a Arc<Proxy>,
    peer: &'a Peer,
    id: RequestId,
    arrived: Instant,
    facts: RequestFacts,
}

/// What is known when the gate has let it through.
struct Judged {
    body: ReadBody,
    /// The headers to send, without the credential.
    headers: HeaderMap,
    intent: Intent,
    rates: HoldRates,
    /// What `count_tokens` said, where it was asked.
    counted: OnceLock<u64>,
}

impl Judged {
    /// Most prompt tokens that a hold on `terms` covers; `None` when only the window bounds them,
    /// or when the model may read the prompt more than once.
    fn bound(&self, grant: &Grant) -> Option<u64> {
        let Self { intent, rates, .. } = self;
        if intent.samplings > 1 || intent.compaction {
            return None;
        }
        let is_own = grant.hold == intent.hold_terms(rates).hold(grant.max_tokens);
        let bound = match self.counted.get() {
            Some(counted) if !is_own => intent.counted_bound(rates, *counted),
            _ => intent.prompt_bound?,
        };
        (bound < rates.context_window()).then_some(bound)
    }
}

/// Answers one `POST /v1/messages`.
pub(crate) async fn serve(
    proxy: &Arc<Proxy>,
    peer: &Peer,
    parts: Parts,
    body: Incoming,
) -> Response<ProxyBody> {
    proxy.counted.message();
    let Ok(id) = RequestId::random() else {
        return nameless();
    };
    let mut message = Message {
        proxy,
        peer,
        id,
        arrived: Instant::now(),
        facts: RequestFacts {
            at: proxy.parts.clock.now(),
            stream: None,
            model: None,
            max_tokens_asked: None,
        },
    };
    let mut response = match message.forward(parts, body).await {
        Ok(response) => response,
        Err(refusal) => message.refused(&refusal),
    };
    if let Ok(id) = HeaderValue::from_str(message.id.as_str()) {
        response.headers_mut().insert(REQUEST, id);
    }
    response
}

impl Message<'_> {
    async fn forward(
        &mut self,
        parts: Parts,
        body: Incoming,
    ) -> Result<Response<ProxyBody>, Refusal> {
        let judged = self.judge(&parts.headers, body).await?;
        let grant = self.reserve(&judged).await?;
        self.send(parts, judged, grant).await
    }

    /// Reads the body, lets it through the gate, and finds its price.
    async fn judge(&mut self, client: &HeaderMap, body: Incoming) -> Result<Judged, Refusal> {
        let proxy = self.proxy;
        let body = read::read(&proxy.bodies, client, body).await?;
        let intent = check(proxy, body.bytes.clone()).await?;
        self.facts.stream = Some(intent.stream);
        self.facts.model = Some(intent.model.clone());
        self.facts.max_tokens_asked = Some(intent.max_tokens);
        let kind = proxy.credentials.current().kind();
        let Forwarded { headers, betas } = headers::forward(client, kind, &proxy.settings.gate)?;
        let intent = intent.with_betas(&betas);
        if let Some(ahead) = proxy.skew.off_by(&*proxy.parts.clock) {
            return Err(Refusal::ClockOff(ahead));
        }
        let rates = proxy.parts.book.hold_rates(&intent.model, self.facts.at)?;
        Ok(Judged {
            body,
            headers,
            intent,
            rates,
            counted: OnceLock::new(),
        })
    }

    /// Finds room under the cap; the hold is durable when this returns.
    async fn reserve(&self, judged: &Judged) -> Result<Grant, Refusal> {
        let Judged {
            body,
            intent,
            rates,
            ..
        } = judged;
        let account = &self.proxy.parts.account;
        let is_soft = account.on_cap() == OnCap::Soft;
        let terms = if is_soft {
            intent.expected_terms(rates, body.bytes.len())
        } else {
            intent.hold_terms(rates)
        };
        let ask = Ask {
            request: self.id.clone(),
            facts: self.facts.clone(),
            terms,
            max_tokens: intent.max_tokens,
            thinking_budget: intent.thinking_budget,
        };
        let may_count = !is_soft && intent.countable && !self.proxy.settings.gate.strict_bound;
        let count = || async move {
            if may_count {
                self.counted_terms(judged).await
            } else {
                None
            }
        };
        // A client that leaves drops this future; what else ends the wait is the session's end.
        let ending = self.proxy.closing.cancelled();
        match account.reserve(ask, count, ending).await {
            Ok(grant) => Ok(grant),
            Err(Denied::ClientGone) => Err(Refusal::Ending),
            Err(denied) => Err(Refusal::denied(denied, intent.window_because.as_deref())),
        }
    }

    async fn counted_terms(&self, judged: &Judged) -> Option<HoldTerms> {
        let Judged {
            body,
            headers,
            intent,
            rates,
            ..
        } = judged;
        let counting = Bytes::from(gate::count_body(&body.bytes, intent));
        let counts = &self.proxy.counts;
        let tokens = counts.count(self.proxy, headers, counting).await?;
        let tokens = *judged.counted.get_or_init(|| tokens);
        Some(intent.counted_terms(rates, tokens))
    }

    /// Connects, looks once more whether the client is there, and sends.
    async fn send(
        &self,
        parts: Parts,
        judged: Judged,
        grant: Grant,
    ) -> Result<Response<ProxyBody>, Refusal> {
        let proxy = self.proxy;
        let soft = proxy.parts.account.on_cap() == OnCap::Soft;
        let prompt_bound = judged.bound(&grant);
        let Grant {
            hold,
            max_tokens,
            reserved,
        } = grant;
        let Judged {
            body,
            headers,
            intent,
            ..
        } = judged;
        let sent = gate::apply(&body.bytes, &intent, max_tokens);
        let ready = match proxy.upstream.ready().await {
            Ok(ready) => ready,
            Err(error) => {
                tracing::warn!(%error, "the upstream cannot be reached");
                let refusal =
                    Refusal::Upstream(UpstreamTrouble::Unreachable(error.step().to_owned()));
                reserved.release("the upstream cannot be reached", Some(self.end(&refusal)));
                return Ok(own(refusal.respond(&self.id, &proxy.parts.session)));
            }
        };
        if self.peer.has_left() || proxy.kill.is_cancelled() {
            reserved.release("the client left before the request was sent", None);
            return Ok(nameless());
        }
        let over_link = self.peer.is_by_unix();
        let repeats = over_link.then(|| proxy.resent.sent(&self.id, &body.bytes));
        let client = ClientPresence::default();
        let admission = Admission {
            requested_model: intent.model,
            max_tokens,
            thinking_budget: match (intent.thinking, intent.thinking_budget) {
                (true, None) => Some(max_tokens),
                (_, budget) => budget,
            },
            hold,
            one_hour_asked: intent.one_hour_asked,
            known_usage: proxy.settings.gate.known_usage.clone(),
            prompt_bound,
            resampled: intent.samplings > 1 || intent.compaction,
            soft,
        };
        let charge = Charge::new(
            reserved.sent(),
            proxy.clone(),
            admission,
            client.clone(),
            self.arrived,
            (self.id.clone(), repeats.flatten()),
        );
        let exchange = exchange(Exchange {
            proxy: proxy.clone(),
            id: self.id.clone(),
            path: path_of(&parts),
            client_headers: parts.headers,
            headers,
            body: body.with(sent),
            ready,
            charge,
        });
        let mut response = Detachable::new(exchange, proxy.clone(), client).await;
        if max_tokens != intent.max_tokens
            && let Ok(note) =
                HeaderValue::from_str(&format!("{} -> {max_tokens}", intent.max_tokens))
        {
            response.headers_mut().insert(MAX_TOKENS, note);
        }
        Ok(response)
    }

    fn end(&self, refusal: &Refusal) -> RequestEnd {
        let duration = self.arrived.elapsed().as_millis();
        RequestEnd {
            status: Some(refusal.status().as_u16()),
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
            ..RequestEnd::default()
        }
    }

    /// Records a refusal and makes its answer.
    fn refused(&self, refusal: &Refusal) -> Response<ProxyBody> {
        let proxy = self.proxy;
        proxy.counted.refused();
        proxy.parts.account.record_refusal(
            self.id.clone(),
            self.facts.clone(),
            refusal.status().as_u16(),
            refusal.text(&proxy.parts.session),
        );
        own(refusal.respond(&self.id, &proxy.parts.session))
    }
}

/// The gate; large bodies do not keep a runtime thread from its streams.
async fn check(proxy: &Arc<Proxy>, body: Bytes) -> Result<Intent, Refusal> {
    if body.len() <= JUDGE_HERE {
        return Ok(gate::check_messages(&body, &proxy.settings.gate)?);
    }
    let proxy = proxy.clone();
    let judged = apart(move || gate::check_messages(&body, &proxy.settings.gate)).await;
    Ok(judged.ok_or(Refusal::Incomplete)??)
}

/// Path and query as the client sent them; the route has found them plain.
pub(crate) fn path_of(parts: &Parts) -> PathAndQuery {
    parts
        .uri
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"))
}
