//! Reading a request's body: bounded, and within a budget of memory that the session's requests
//! share.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::apart::apart;
use super::body::{BODY_LIMIT, BodyError, Coding, decode};
use super::refusal::Refusal;

/// Bodies of all requests of a session that are in memory at once; `design.md` 12.
const BUDGET_KIB: usize = 256 * 1024;
/// How long a request waits for a place in the budget.
const BUDGET_WAIT: Duration = Duration::from_secs(30);
/// Longest silence inside a body.
const BODY_SILENCE: Duration = Duration::from_mins(1);
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
async fn collect(
    incoming: &mut Incoming,
    declared: Option<usize>,
) -> Result<Option<Bytes>, Refusal> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while !incoming.is_end_stream() {
        let frame = match tokio::time::timeout(BODY_SILENCE, incoming.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return Err(Refusal::Incomplete),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
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
