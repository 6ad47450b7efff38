//! Passes one response on, byte for byte and at once, while a copy is metered.
//!
//! There is no task between the connections of the upstream and the client: hyper polls the body for
//! the client, and that poll drives the upstream's connection and meters. A task is started only to
//! read on for a client that has left.

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
use super::doorbell::Doorbell;
use super::drain;
use super::leak::{Leak, LeakGuard};
use super::meter::Meter;
use super::upstream::Lease;
use crate::usage::BodyEnd;

/// Pieces that have already come are passed on as one, up to this size: what a client's connection
/// writes at once, and little for a thousand streams.
const JOINED_BYTES: usize = 64 * 1024;
/// Room for pieces that are joined; more is made when they need it.
const JOINED_ROOM: usize = 4 * 1024;

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
    /// Rung when the upstream may have sent something.
    bell: Doorbell,
    /// Everything that had come was taken.
    is_drained: bool,
    /// The end that the connection's close means for this body.
    at_close: BodyEnd,
    has_ended: bool,
    /// Why it was broken off, until the client's connection is told.
    failure: Option<RelayError>,
    /// The client's connection had time to write out what came before the failure.
    has_paused: bool,
}

/// What is to be expected after some data.
enum More {
    /// It was not looked.
    Unknown,
    /// Nothing has come yet; the caller will be woken.
    Waited,
    /// The body's end.
    Never,
    /// The upstream's connection broke.
    Broken(hyper::Error),
}

/// Pieces of a body that came one after the other. A lone piece is not copied.
#[derive(Default)]
struct Joined {
    first: Bytes,
    all: BytesMut,
}

impl Joined {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(JOINED_ROOM);
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() {
            return self.first;
        }
        self.all.freeze()
    }
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
            bell: Doorbell::new(),
            is_drained: false,
            at_close: if framed {
                BodyEnd::Complete
            } else {
                BodyEnd::Closed
            },
            has_ended: false,
            failure: None,
            has_paused: false,
        };
        if flow.incoming.is_end_stream() {
            flow.end(BodyEnd::Complete);
        }
        flow
    }

    /// The next bytes for the client: all that has already come, up to a limit.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RelayError>>> {
        while !self.has_ended {
            let (data, more) = self.poll_joined();
            let mut bytes = Bytes::new();
            if !data.is_empty() {
                self.silence.end();
                match self.take(data) {
                    Ok(passed) => bytes = passed,
                    Err(leak) => self.fail(BodyEnd::Cut, leak.into()),
                }
            }
            match more {
                _ if self.has_ended => {}
                More::Unknown => {}
                More::Waited if !bytes.is_empty() => {}
                More::Waited if self.silence.is_too_long(cx) => {
                    self.fail(BodyEnd::TimedOut, RelayError::Silent);
                }
                More::Waited => {
                    self.bell.sleep(cx);
                    return Poll::Pending;
                }
                More::Never => {
                    self.end(self.at_close);
                    bytes = self.with_rest(bytes);
                }
                More::Broken(error) => self.fail(BodyEnd::Cut, RelayError::Upstream(error)),
            }
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
        // Hyper writes out what it has been given only when there is nothing more at the moment,
        // and drops it when there is an error.
        if self.failure.is_some() && !std::mem::replace(&mut self.has_paused, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.failure.take().map(Err))
    }

    /// What has already come from the upstream, in one piece, and what is to be expected after it.
    /// Nothing is waited for once there is something.
    fn poll_joined(&mut self) -> (Bytes, More) {
        let mut joined = Joined::default();
        if !self.bell.answer() && self.is_drained {
            return (joined.into_bytes(), More::Waited);
        }
        self.is_drained = false;
        let mut cx = Context::from_waker(self.bell.waker());
        loop {
            // What is asked below rings if more comes after it was asked.
            let _before = self.bell.answer();
            match poll_frame(&mut self.incoming, self.lease.as_mut(), &mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are not on the list of headers that are passed on.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    joined.push(data);
                    if joined.len() >= JOINED_BYTES || self.incoming.is_end_stream() {
                        return (joined.into_bytes(), More::Unknown);
                    }
                }
                Poll::Ready(Some(Err(error))) => return (joined.into_bytes(), More::Broken(error)),
                Poll::Ready(None) => return (joined.into_bytes(), More::Never),
                Poll::Pending => {
                    self.is_drained = true;
                    return (joined.into_bytes(), More::Waited);
                }
            }
        }
    }

    /// Meters data and gives what may be passed on now.
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
        Ok(self.with_rest(bytes))
    }

    /// The last bytes, with what the guard had held back.
    fn with_rest(&mut self, bytes: Bytes) -> Bytes {
        let Some(rest) = self.guard.finish() else {
            return bytes;
        };
        let mut all = BytesMut::from(bytes);
        all.extend_from_slice(&rest);
        all.freeze()
    }

    /// Settles at once; the client is told after the bytes that came before.
    fn fail(&mut self, end: BodyEnd, error: RelayError) {
        tracing::warn!(%error, "a response was broken off");
        // What was read of such an answer may hold the credential, so none of it is recorded.
        if let RelayError::Leak(_) = error
            && let Some(charge) = self.take_charge()
        {
            charge.keep("the answer repeats the credential");
        }
        self.end(end);
        self.failure = Some(error);
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

/// The next piece of a body, for which its connection may read on.
fn poll_frame(
    incoming: &mut Incoming,
    lease: Option<&mut Lease>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let frame = Pin::new(&mut *incoming).poll_frame(cx);
    if frame.is_pending() && lease.is_some_and(|lease| lease.drive(cx)) {
        return Pin::new(incoming).poll_frame(cx);
    }
    frame
}

/// Measures how long the upstream has been silent while somebody listened: a slow client's time
/// does not count.
struct Silence {
    limit: Duration,
    since: Option<Instant>,
    /// Made with the first wait: most short answers are there at once. Set again only when it
    /// fires, so that a busy stream costs one look at the clock per wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: None,
            timer: None,
        }
    }

    fn end(&mut self) {
        self.since = None;
    }

    fn is_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let first = || Box::pin(tokio::time::sleep(self.limit));
        let timer = self.timer.get_or_insert_with(first);
        while timer.as_mut().poll(cx).is_ready() {
            if since.elapsed() >= self.limit {
                return true;
            }
            timer.as_mut().reset(since + self.limit);
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
