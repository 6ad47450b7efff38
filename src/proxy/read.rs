//! Reading a request's body: bounded, and within a budget of memory that the session's requests
//! share.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::apart::apart;
use super::body::{BODY_LIMIT, BodyError, Coding, decode};
use super::refusal::Refusal;

/// Bodies of all requests of a session that are in memory at once; `design.md` 12.
const BUDGET_KIB: usize = 256 * 1024;
/// How long a request waits for a place in the budget.
const BUDGET_WAIT: Duration = Duration::from_secs(30);
/// Longest silence inside a body.
const BODY_SILENCE: Duration = Duration::from_mins(1);
/// The least bytes a second of a body, counted from [`BODY_SILENCE`] after its beginning: a body that
/// trickles would hold its place in the budget for as long as it likes. Half a megabit is less than
/// any link that an agent can be used over.
const BODY_RATE: u64 = 64 * 1024;
/// What is read and thrown away of a body that is too large, so that the client is done sending
/// when it gets its answer: twice the limit, which takes a moment on loopback.
const DISCARD_LIMIT: usize = 2 * BODY_LIMIT;
/// The same for peers that did not show the placeholder.
const STRANGER_DISCARD_LIMIT: usize = 64 * 1024;
/// How long throwing away may take.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// The memory that bodies may take.
#[derive(Debug)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

impl BodyBudget {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_KIB)))
    }

    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let kib = u32::try_from(kib(bytes)).unwrap_or(u32::MAX);
        let waiting = self.0.clone().acquire_many_owned(kib);
        match tokio::time::timeout(BUDGET_WAIT, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Refusal::Busy),
        }
    }
}

/// Places that a body of so many bytes takes; the budget has far fewer than four billion.
fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024).max(1)
}

/// A body that was read and decoded; its place in the budget is free when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl ReadBody {
    /// The same place in the budget for what was made of the body.
    pub(crate) fn with(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }
}

/// Reads and decodes a body.
pub(crate) async fn read(
    budget: &BodyBudget,
    headers: &HeaderMap,
    mut incoming: Incoming,
) -> Result<ReadBody, Refusal> {
    let coding = match Coding::of(headers) {
        Ok(coding) => coding,
        Err(error) => {
            discard(incoming, headers, DISCARD_LIMIT).await;
            return Err(error.into());
        }
    };
    let declared = declared_length(headers);
    if declared.is_some_and(|length| length > BODY_LIMIT) {
        discard(incoming, headers, DISCARD_LIMIT).await;
        return Err(too_large());
    }
    // Without a length, and with an encoding, it may become as long as any.
    let most = match (declared, coding) {
        (Some(length), Coding::Identity) => length,
        _ => BODY_LIMIT,
    };
    let mut place = budget.take(most).await?;
    let Some(raw) = collect(&mut incoming, declared).await? else {
        discard(incoming, headers, DISCARD_LIMIT).await;
        return Err(too_large());
    };
    let bytes = if coding == Coding::Identity {
        raw
    } else {
        apart(move || decode(coding, raw, BODY_LIMIT))
            .await
            .ok_or(Refusal::Incomplete)??
    };
    // What it could have become but did not is for others.
    drop(place.split(place.num_permits().saturating_sub(kib(bytes.len()))));
    Ok(ReadBody {
        bytes,
        _place: place,
    })
}

/// Reads to the end; `None` when it is longer than it may be.
async fn collect<B: Body<Data = Bytes> + Unpin>(
    incoming: &mut B,
    declared: Option<usize>,
) -> Result<Option<Bytes>, Refusal> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut too_slow = Instant::now() + BODY_SILENCE;
    while !incoming.is_end_stream() {
        let limit = too_slow.min(Instant::now() + BODY_SILENCE);
        let frame = match tokio::time::timeout_at(limit, incoming.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return Err(Refusal::Incomplete),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        too_slow += time_for(data.len());
        if first.is_empty() && all.is_empty() {
            // A short body comes in one piece, which needs no copy.
            first = data;
            continue;
        }
        if all.is_empty() {
            all.reserve(declared.unwrap_or(first.len()));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        if all.len().saturating_add(data.len()) > BODY_LIMIT {
            return Ok(None);
        }
        all.extend_from_slice(&data);
    }
    Ok(Some(if all.is_empty() { first } else { all.freeze() }))
}

/// How long so many bytes may take.
fn time_for(bytes: usize) -> Duration {
    let micros = u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .saturating_mul(1_000_000);
    Duration::from_micros(micros.checked_div(BODY_RATE).unwrap_or(0))
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    // hyper has checked that there is one at most, and that it is a number.
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> Refusal {
    Refusal::Body(BodyError::TooLarge { limit: BODY_LIMIT })
}

/// Throws a body away that was not asked for, as far as that is reasonable.
pub(crate) async fn discard_strangers(incoming: Incoming, headers: &HeaderMap) {
    discard(incoming, headers, STRANGER_DISCARD_LIMIT).await;
}

/// The same for a client that showed the placeholder.
pub(crate) async fn discard_known(incoming: Incoming, headers: &HeaderMap) {
    discard(incoming, headers, DISCARD_LIMIT).await;
}

async fn discard(mut incoming: Incoming, headers: &HeaderMap, limit: usize) {
    // A client that waits for leave to send will not send.
    let waits = headers.contains_key(EXPECT);
    let is_endless = declared_length(headers).is_some_and(|length| length > limit);
    if waits || is_endless {
        return;
    }
    let mut left = limit;
    let reading = async {
        while let Some(Ok(frame)) = incoming.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _in_time = tokio::time::timeout(DISCARD_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// A body of `pieces`, each of `bytes` and after `pause`; how long reading took, and what of.
    async fn read_slowly(
        pieces: usize,
        bytes: usize,
        pause: Duration,
    ) -> (Duration, Result<usize, Refusal>) {
        let body = stream::unfold(0, |number| async move {
            if number == pieces {
                return None;
            }
            tokio::time::sleep(pause).await;
            let frame = Frame::data(Bytes::from(vec![b'x'; bytes]));
            Some((Ok::<_, Infallible>(frame), number + 1))
        });
        let begun = Instant::now();
        let read = collect(&mut StreamBody::new(Box::pin(body)), None).await;
        (begun.elapsed(), read.map(|read| read.unwrap().len()))
    }

    #[tokio::test(start_paused = true)]
    async fn t25_a_body_that_trickles_is_given_up_after_a_minute() {
        let (took, read) = read_slowly(10_000, 1024, Duration::from_secs(1)).await;
        assert!(matches!(read, Err(Refusal::Incomplete)), "{read:?}");
        assert!(took >= BODY_SILENCE && took < BODY_SILENCE + Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn t25_a_body_on_a_slow_link_is_read_to_its_end() {
        let pieces = 8 * 1024 * 1024 / 65_536;
        let (took, read) = read_slowly(pieces, 65_536, Duration::from_millis(999)).await;
        assert_eq!(read.unwrap(), 8 * 1024 * 1024);
        assert!(took > BODY_SILENCE * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn t25_silence_after_a_fast_start_is_not_longer_than_any() {
        let begun = Instant::now();
        let body = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(vec![
            b'x';
            16 << 20
        ])))]);
        let body = futures_util::StreamExt::chain(body, stream::pending());
        let read = collect(&mut StreamBody::new(body), None).await;
        assert!(matches!(read, Err(Refusal::Incomplete)));
        assert_eq!(begun.elapsed().as_secs(), BODY_SILENCE.as_secs());
    }
}
