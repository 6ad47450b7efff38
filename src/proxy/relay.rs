//! Passes one response on, byte for byte and at once, while a copy is metered.
//!
//! There is no channel and no task between the upstream's connection and the client's: hyper polls
//! the body, and metering happens inside that poll. A task is started only to read on for a client
//! that has left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::Proxy;
use super::charge::Charge;
use super::drain;
use super::leak::{Leak, LeakGuard};
use super::meter::Meter;
use super::upstream::Lease;
use crate::usage::BodyEnd;

/// Why a response is broken off. The client sees its connection closed before the body's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    /// The upstream's connection broke.
    #[error("the upstream's answer was cut: {0}")]
    Upstream(#[source] hyper::Error),
    /// Nothing came for too long.
    #[error("the upstream was silent for too long")]
    Silent,
    /// The answer held the credential.
    #[error(transparent)]
    Leak(#[from] Leak),
}

/// An upstream's response that is being read.
pub(crate) struct Flow {
    incoming: Incoming,
    guard: LeakGuard,
    /// `None` for calls that cost nothing.
    metered: Option<(Meter, Charge)>,
    lease: Option<Lease>,
    silence: Silence,
    /// The end that the connection's close means for this body.
    at_close: BodyEnd,
    has_ended: bool,
    /// Why it was broken off, until the client's connection is told.
    failure: Option<RelayError>,
}

impl Flow {
    /// `framed` is whether the answer's head told how the end of its body is known.
    pub(crate) fn new(
        incoming: Incoming,
        framed: bool,
        guard: LeakGuard,
        metered: Option<(Meter, Charge)>,
        lease: Lease,
        silence: Duration,
    ) -> Self {
        let mut flow = Self {
            incoming,
            guard,
            metered,
            lease: Some(lease),
            silence: Silence::new(silence),
            at_close: if framed {
                BodyEnd::Complete
            } else {
                BodyEnd::Closed
            },
            has_ended: false,
            failure: None,
        };
        if flow.incoming.is_end_stream() {
            flow.end(BodyEnd::Complete);
        }
        flow
    }

    /// The next bytes for the client.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RelayError>>> {
        if let Some(error) = self.failure.take() {
            return Poll::Ready(Some(Err(error)));
        }
        while !self.has_ended {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.silence.end();
                    // Trailers are not on the list of headers that are passed on.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    match self.take(data) {
                        Ok(bytes) if bytes.is_empty() => {}
                        Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                        Err(leak) => return self.fail(cx, BodyEnd::Cut, leak.into()),
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    return self.fail(cx, BodyEnd::Cut, RelayError::Upstream(error));
                }
                Poll::Ready(None) => {
                    self.end(self.at_close);
                    if let Some(rest) = self.guard.finish() {
                        return Poll::Ready(Some(Ok(rest)));
                    }
                }
                Poll::Pending => {
                    if self.silence.is_too_long(cx) {
                        return self.fail(cx, BodyEnd::TimedOut, RelayError::Silent);
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(None)
    }

    /// Meters a chunk and gives what may be passed on now.
    fn take(&mut self, data: Bytes) -> Result<Bytes, Leak> {
        if let Some((meter, charge)) = self.metered.as_mut() {
            charge.byte();
            meter.push(&data)?;
        }
        let bytes = self.guard.pass(data)?;
        if !self.incoming.is_end_stream() {
            return Ok(bytes);
        }
        // With a known length hyper does not ask for more, so the end is here.
        self.end(BodyEnd::Complete);
        let Some(rest) = self.guard.finish() else {
            return Ok(bytes);
        };
        let mut all = BytesMut::from(bytes);
        all.extend_from_slice(&rest);
        Ok(all.freeze())
    }

    /// Settles at once, but gives the error with the next poll: hyper writes out what it has been
    /// given only when there is nothing more at the moment, and drops it when there is an error.
    fn fail(
        &mut self,
        cx: &Context<'_>,
        end: BodyEnd,
        error: RelayError,
    ) -> Poll<Option<Result<Bytes, RelayError>>> {
        tracing::warn!(%error, "a response was broken off");
        // What was read of such an answer may hold the credential, so none of it is recorded.
        if let RelayError::Leak(_) = error
            && let Some(charge) = self.take_charge()
        {
            charge.keep("the answer repeats the credential");
        }
        self.end(end);
        self.failure = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Settles, and lets the connection be used again when the body was whole.
    pub(crate) fn end(&mut self, how: BodyEnd) {
        self.has_ended = true;
        if let Some((mut meter, charge)) = self.metered.take() {
            charge.settle(how, meter.finish());
        }
        if let (Some(lease), BodyEnd::Complete) = (self.lease.take(), how) {
            lease.give_back();
        }
    }

    /// The charge, while there is one.
    pub(crate) fn charge(&self) -> Option<&Charge> {
        self.metered.as_ref().map(|(_, charge)| charge)
    }

    /// Takes the charge out, for another end than the body's own.
    pub(crate) fn take_charge(&mut self) -> Option<Charge> {
        self.metered.take().map(|(_, charge)| charge)
    }
}

/// Measures how long the upstream has been silent while somebody listened: a slow client's time
/// does not count.
struct Silence {
    limit: Duration,
    since: Option<Instant>,
    /// Set again only when it fires, so that a busy stream costs one look at the clock per wait.
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: None,
            timer: Box::pin(tokio::time::sleep(limit)),
        }
    }

    fn end(&mut self) {
        self.since = None;
    }

    fn is_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        while self.timer.as_mut().poll(cx).is_ready() {
            if since.elapsed() >= self.limit {
                return true;
            }
            self.timer.as_mut().reset(since + self.limit);
        }
        false
    }
}

/// The body of a response to a client.
pub(crate) enum ProxyBody {
    /// Text of this program's own.
    Own(Option<Bytes>),
    /// An upstream's answer.
    Relay(Relay),
}

/// An upstream's answer on its way to a client. When the client leaves, the rest is read for its
/// usage, or the hold is kept, as the settings say.
pub(crate) struct Relay {
    flow: Option<Box<Flow>>,
    proxy: Arc<Proxy>,
}

impl Relay {
    pub(crate) fn new(flow: Flow, proxy: Arc<Proxy>) -> Self {
        Self {
            flow: Some(Box::new(flow)),
            proxy,
        }
    }

    /// The flow, for reading it without a client.
    pub(crate) fn into_flow(mut self) -> Option<Box<Flow>> {
        self.flow.take()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(flow) = self.flow.take()
            && !flow.has_ended
        {
            drain::left(&self.proxy, flow);
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relay(relay) => match relay.flow.as_mut() {
                Some(flow) => flow
                    .poll_bytes(cx)
                    .map(|next| next.map(|bytes| bytes.map(Frame::data))),
                None => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Relay(relay) => relay
                .flow
                .as_ref()
                .is_none_or(|flow| flow.has_ended && flow.failure.is_none()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            // The guard may hold bytes back for a while, but in all there are as many.
            Self::Relay(relay) => match relay.flow.as_ref() {
                Some(flow) if !flow.has_ended => flow.incoming.size_hint(),
                Some(flow) if flow.failure.is_some() => SizeHint::new(),
                Some(_) | None => SizeHint::with_exact(0),
            },
        }
    }
}
