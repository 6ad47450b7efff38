//! Which requests a client sends again because the link to its host was lost: each is billed, and
//! the receipt says of both that they belong together.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::RequestId;

/// Requests that are remembered: twice what can be in flight, so that none of those is forgotten.
const REMEMBERED: usize = 512;
/// An answer that was passed on so shortly before a loss may never have arrived: a silent link is
/// found dead after 15 s, at a heartbeat of 2 s, looked at twice.
const LATELY: Duration = Duration::from_secs(20);

/// The last requests that came over a link.
#[derive(Debug, Default)]
pub(crate) struct Resent(Mutex<VecDeque<Sent>>);

/// A request that was sent.
#[derive(Debug)]
struct Sent {
    request: RequestId,
    body: blake3::Hash,
    /// When its answer was passed on.
    ended: Option<Instant>,
    /// A link was lost before its answer can have arrived.
    is_cut: bool,
    /// It was sent again.
    is_paired: bool,
}

impl Resent {
    /// A request with this body is sent; the earlier one that it repeats because of a lost link.
    pub(crate) fn sent(&self, request: &RequestId, body: &[u8]) -> Option<RequestId> {
        let body = blake3::hash(body);
        let mut all = self.lock();
        let earlier = all
            .iter_mut()
            .find(|sent| sent.is_cut && !sent.is_paired && sent.body == body);
        let earlier = earlier.map(|sent| {
            sent.is_paired = true;
            sent.request.clone()
        });
        if all.len() >= REMEMBERED {
            all.pop_front();
        }
        all.push_back(Sent {
            request: request.clone(),
            body,
            ended: None,
            is_cut: false,
            is_paired: false,
        });
        earlier
    }

    /// The request has ended; whether a link was lost before.
    pub(crate) fn ended(&self, request: &RequestId) -> bool {
        let mut all = self.lock();
        let found = all.iter_mut().rev().find(|sent| sent.request == *request);
        found.is_some_and(|sent| {
            sent.ended = Some(Instant::now());
            sent.is_cut
        })
    }

    /// Not a byte of it left, and its client knows: a further try repeats nothing.
    pub(crate) fn never_sent(&self, request: &RequestId) {
        self.lock().retain(|sent| sent.request != *request);
    }

    /// The link is lost.
    pub(crate) fn link_lost(&self) {
        let mut all = self.lock();
        // What arrived long ago is not sent again for want of a link.
        all.retain(|sent| sent.is_cut || sent.ended.is_none_or(|at| at.elapsed() < LATELY));
        for sent in all.iter_mut() {
            sent.is_cut = true;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> RequestId {
        RequestId::random().unwrap()
    }

    /// A body that was cut is paired with the next of the same bytes, once; one that was cut again
    /// with the one after it.
    #[tokio::test(start_paused = true)]
    async fn a_cut_request_is_paired_once() {
        let resent = Resent::default();
        let (first, second, third, fourth) = (id(), id(), id(), id());
        assert_eq!(resent.sent(&first, b"body"), None);
        assert_eq!(resent.sent(&second, b"body"), None, "no link was lost");
        assert!(!resent.ended(&second));
        tokio::time::advance(LATELY).await;
        resent.link_lost();
        assert!(resent.ended(&first));
        assert!(!resent.ended(&second), "it had arrived long before");
        assert_eq!(resent.sent(&third, b"other"), None);
        assert_eq!(resent.sent(&third, b"body"), Some(first));
        assert_eq!(resent.sent(&fourth, b"body"), None);
        resent.link_lost();
        assert_eq!(resent.sent(&id(), b"body"), Some(third));
    }

    /// An answer that was passed on to a link that was dead already.
    #[tokio::test(start_paused = true)]
    async fn an_answer_shortly_before_a_loss_may_not_have_arrived() {
        let resent = Resent::default();
        let first = id();
        assert_eq!(resent.sent(&first, b"body"), None);
        assert!(!resent.ended(&first));
        resent.link_lost();
        assert_eq!(resent.sent(&id(), b"body"), Some(first));
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let resent = Resent::default();
        for number in 0..3 * REMEMBERED {
            let _none = resent.sent(&id(), &number.to_le_bytes());
            resent.link_lost();
        }
        assert_eq!(resent.lock().len(), REMEMBERED);
    }
}
