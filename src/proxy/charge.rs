//! The money side of one request that was sent: from `InFlight` to exactly one entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Proxy, leak};
use crate::cap::InFlight;
use crate::id::RequestId;
use crate::ledger::RequestEnd;
use crate::money::PicoUsd;
use crate::secret::Credential;
use crate::usage::{Admission, BodyEnd, Observed, Settlement, Verdict, decide};

/// What a receipt says of a request whose answer was on its way when the link to the agent's host was
/// lost: its client sends it again, and that is a request of its own.
const LINK_LOST: &str = "link_lost: the link to the host was lost during the answer";
/// What it says of that other request; the first one's name follows.
const SENT_AGAIN: &str = "link_lost: sent again, since the link was lost during the answer to";

/// Whether the client is still there; set when its side of the request is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPresence(Arc<AtomicBool>);

impl ClientPresence {
    pub(crate) fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A sent request's hold with what its entry must tell. Dropping it keeps the whole hold.
pub(crate) struct Charge {
    /// `None` once it is settled.
    in_flight: Option<InFlight>,
    proxy: Arc<Proxy>,
    admission: Admission,
    client: ClientPresence,
    arrived: Instant,
    first_byte: Option<Duration>,
    status: Option<u16>,
    upstream_request_id: Option<String>,
    /// The time that the upstream told, where it told one.
    upstream_time: Option<Timestamp>,
    request: RequestId,
    /// The request that this one repeats, when a lost link is why.
    repeats: Option<RequestId>,
}

impl Charge {
    /// `repeats` is the request whose answer a lost link cut, when this one is sent instead of it.
    pub(crate) fn new(
        in_flight: InFlight,
        proxy: Arc<Proxy>,
        admission: Admission,
        client: ClientPresence,
        arrived: Instant,
        (request, repeats): (RequestId, Option<RequestId>),
    ) -> Self {
        Self {
            in_flight: Some(in_flight),
            request,
            repeats,
            proxy,
            admission,
            client,
            arrived,
            first_byte: None,
            status: None,
            upstream_request_id: None,
            upstream_time: None,
        }
    }

    /// The response's head is here.
    pub(crate) fn head(
        &mut self,
        status: http::StatusCode,
        headers: &http::HeaderMap,
        credential: &Credential,
    ) {
        self.status = Some(status.as_u16());
        self.upstream_request_id = headers
            .get("request-id")
            .filter(|value| !leak::quotes(value.as_bytes(), credential))
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        self.upstream_time = self.proxy.skew.observe(headers, &*self.proxy.parts.clock);
    }

    /// A byte of the response's body is here.
    pub(crate) fn byte(&mut self) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.arrived.elapsed());
        }
    }

    /// The client of this request.
    pub(crate) fn client(&self) -> &ClientPresence {
        &self.client
    }

    /// Charges what the response tells.
    pub(crate) fn settle(mut self, end: BodyEnd, observed: Observed) {
        let verdict = self.judge(end, &observed);
        self.write(verdict, Some(observed));
    }

    /// Charges the whole hold, for `reason`.
    pub(crate) fn keep(mut self, reason: &str) {
        self.write(keep(reason), None);
    }

    /// Gives the hold back: not a byte of the request left. `status` is what the client gets.
    pub(crate) fn never_sent(mut self, reason: &str, status: http::StatusCode) {
        self.status = Some(status.as_u16());
        self.proxy.resent.never_sent(&self.request);
        let end = self.end(None);
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.never_sent(reason, end);
        }
    }

    /// Prices are those of the upstream's time. Where that is further from this machine's than any
    /// clock may be, the dearer of the two counts, and no further request is admitted.
    fn judge(&self, end: BodyEnd, observed: &Observed) -> Verdict {
        let at = |time| {
            let book = &self.proxy.parts.book;
            decide(book, &self.admission, self.status, end, observed, time)
        };
        let here = self.proxy.parts.clock.now();
        let there = self.upstream_time.unwrap_or(here);
        let verdict = at(there);
        if self.proxy.skew.off_by(&*self.proxy.parts.clock).is_none() {
            return verdict;
        }
        let other = at(here);
        if self.amount(&other) > self.amount(&verdict) {
            other
        } else {
            verdict
        }
    }

    fn amount(&self, verdict: &Verdict) -> PicoUsd {
        match &verdict.settlement {
            Settlement::Charge(bill) => bill.total,
            Settlement::Free => PicoUsd::ZERO,
            Settlement::Keep(_) => self.admission.hold,
        }
    }

    fn write(&mut self, mut verdict: Verdict, observed: Option<Observed>) {
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        // Asked in any case: it also says that the request has ended.
        let lost_its_link = self.proxy.resent.ended(&self.request) && self.client.has_left();
        if let Some(earlier) = &self.repeats {
            mark(&mut verdict, &format!("{SENT_AGAIN} {earlier}"));
        }
        if lost_its_link {
            mark(&mut verdict, LINK_LOST);
        }
        in_flight.settle(verdict, self.end(observed));
    }

    /// What is known of the request now that it has ended.
    fn end(&mut self, observed: Option<Observed>) -> RequestEnd {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let observed = observed.unwrap_or_default();
        RequestEnd {
            status: self.status,
            served_model: observed.served_model,
            usage: observed.usage.map(|usage| usage.raw),
            upstream_request_id: self.upstream_request_id.take(),
            ttfb_ms: self.first_byte.map(milliseconds),
            duration_ms: milliseconds(self.arrived.elapsed()),
            client_gone: self.client.has_left(),
            stop_reason: observed.stop_reason,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let reason = if self.proxy.kill.is_cancelled() {
            "the session ended before the answer was complete"
        } else if self.client.has_left() {
            "the client left and the answer was not read to its end"
        } else {
            "the answer was not read to its end"
        };
        self.write(keep(reason), None);
    }
}

/// Says something of a lost link, beside whatever else there is to say.
fn mark(verdict: &mut Verdict, what: &str) {
    let said = match &mut verdict.settlement {
        Settlement::Keep(reason) => reason,
        Settlement::Charge(_) | Settlement::Free => verdict.note.get_or_insert_default(),
    };
    if said.is_empty() {
        said.push_str(what);
    } else {
        *said = format!("{what}; {said}");
    }
}

fn keep(reason: &str) -> Verdict {
    Verdict {
        settlement: Settlement::Keep(reason.to_owned()),
        close: None,
        note: None,
    }
}
