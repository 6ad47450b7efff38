//! `count_tokens` calls: those that the ladder makes to lower a hold, and how many may run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Proxy;
use super::upstream::Outgoing;

/// `count_tokens` calls in flight; `design.md` 6.
const MAX_IN_FLIGHT: usize = 4;
/// Of these, what clients' own calls may take: one slot is always left for the ladder.
const MAX_CLIENTS: usize = 3;
/// Clients' calls that may wait for a slot: the CLI makes 25 at once.
const MAX_WAITING: usize = 128;
/// How long a client's call waits for a slot.
const CLIENT_WAIT: Duration = Duration::from_secs(30);
/// How long the ladder waits for a count; `design.md` 6.
const COUNT_LIMIT: Duration = Duration::from_secs(5);
/// After a failed count the ladder does without for this long; `design.md` 6.
const REST_AFTER_FAILURE: Duration = Duration::from_mins(1);
/// Counts that are remembered, by hash of the counted body.
const MAX_CACHED: usize = 256;
/// A count's answer is one short object.
const MAX_ANSWER: usize = 64 * 1024;
/// Clients' calls in a burst, and how often one more is let through after it: ten a second, far
/// more than a person's use makes, far fewer than a loop's.
const BURST: u32 = 100;
const REFILL: Duration = Duration::from_millis(100);

/// The counting of one proxy.
#[derive(Debug)]
pub(crate) struct Counts {
    in_flight: Arc<Semaphore>,
    clients: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cached: HashMap<blake3::Hash, u64>,
    order: VecDeque<blake3::Hash>,
    failed: Option<Instant>,
    tokens: u32,
    refilled: Instant,
}

/// What is known of a body's count without asking.
enum Known {
    Count(u64),
    /// A call failed a short while ago.
    Resting,
    Nothing,
}

/// A client's permission to make one call.
#[derive(Debug)]
pub(crate) struct ClientSlot {
    _clients: OwnedSemaphorePermit,
    _in_flight: OwnedSemaphorePermit,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            clients: Arc::new(Semaphore::new(MAX_CLIENTS)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            state: Mutex::new(State {
                cached: HashMap::new(),
                order: VecDeque::new(),
                failed: None,
                tokens: BURST,
                refilled: Instant::now(),
            }),
        }
    }

    /// Waits for a slot for a client's own call; `None` when there are too many.
    pub(crate) async fn client_slot(&self) -> Option<ClientSlot> {
        if !self.take_token() {
            return None;
        }
        let _place = self.waiting.clone().try_acquire_owned().ok()?;
        let slot = async {
            let clients = self.clients.clone().acquire_owned().await.ok()?;
            let in_flight = self.in_flight.clone().acquire_owned().await.ok()?;
            Some(ClientSlot {
                _clients: clients,
                _in_flight: in_flight,
            })
        };
        tokio::time::timeout(CLIENT_WAIT, slot).await.ok()?
    }

    fn take_token(&self) -> bool {
        let mut state = self.lock();
        let since = state.refilled.elapsed();
        let more = since.as_millis() / REFILL.as_millis();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(BURST);
            state.tokens = state.tokens.saturating_add(more).min(BURST);
            state.refilled = Instant::now();
        }
        match state.tokens.checked_sub(1) {
            Some(left) => {
                state.tokens = left;
                true
            }
            None => false,
        }
    }

    /// Asks the provider how many tokens `body` has; `None` when it does not say in time, or failed
    /// to a short while ago.
    pub(crate) async fn count(
        &self,
        proxy: &Arc<Proxy>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Option<u64> {
        let hash = blake3::hash(&body);
        match self.known(&hash) {
            Known::Count(tokens) => return Some(tokens),
            Known::Resting => return None,
            Known::Nothing => {}
        }
        let asked = async {
            let _slot = self.in_flight.acquire().await.ok()?;
            ask(proxy, headers.clone(), body).await
        };
        let counted = tokio::time::timeout(COUNT_LIMIT, asked)
            .await
            .ok()
            .flatten();
        let mut state = self.lock();
        let Some(tokens) = counted else {
            tracing::warn!("count_tokens failed; holds are not lowered by it for a while");
            state.failed = Some(Instant::now());
            return None;
        };
        if state.cached.insert(hash, tokens).is_none() {
            state.order.push_back(hash);
        }
        if state.order.len() > MAX_CACHED
            && let Some(oldest) = state.order.pop_front()
        {
            state.cached.remove(&oldest);
        }
        Some(tokens)
    }

    fn known(&self, hash: &blake3::Hash) -> Known {
        let state = self.lock();
        if let Some(tokens) = state.cached.get(hash) {
            return Known::Count(*tokens);
        }
        match state.failed {
            Some(failed) if failed.elapsed() < REST_AFTER_FAILURE => Known::Resting,
            _ => Known::Nothing,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call; `None` for anything but a plain count.
async fn ask(proxy: &Arc<Proxy>, mut headers: HeaderMap, body: Bytes) -> Option<u64> {
    let credential = proxy.credentials.current();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    credential.apply(&mut headers);
    let ready = proxy.upstream.ready().await.ok()?;
    let (response, lease) = ready
        .send(Outgoing {
            method: Method::POST,
            path: PathAndQuery::from_static("/v1/messages/count_tokens"),
            headers,
            body,
        })
        .await
        .ok()?;
    let is_plain = !response.headers().contains_key(CONTENT_ENCODING);
    if response.status() != StatusCode::OK || !is_plain {
        return None;
    }
    let text = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .ok()?
        .to_bytes();
    lease.give_back();
    let answer: serde_json::Value = serde_json::from_slice(&text).ok()?;
    // Every prompt has tokens: none is a count that failed.
    answer
        .get("input_tokens")?
        .as_u64()
        .filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn t25_clients_never_take_the_slot_that_is_kept_for_the_ladder() {
        let counts = Counts::new();
        let mut slots = Vec::new();
        for _ in 0..MAX_CLIENTS {
            slots.push(counts.client_slot().await.unwrap());
        }
        let waiting = tokio::time::timeout(Duration::from_millis(20), counts.client_slot());
        assert!(waiting.await.is_err());
        assert!(counts.in_flight.try_acquire().is_ok());
        slots.pop();
        assert!(counts.client_slot().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn t25_a_flood_is_let_through_at_a_steady_rate() {
        let counts = Counts::new();
        let mut passed = 0;
        while counts.take_token() {
            passed += 1;
        }
        assert_eq!(passed, BURST);
        tokio::time::advance(REFILL * 2).await;
        assert!(counts.take_token() && counts.take_token());
        assert!(!counts.take_token());
    }
}
