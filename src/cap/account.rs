//! One session's money in use: the balance under one lock, the ledger behind it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};

use super::balance::{Denial, Offer, Purse, Ticket, Want};
use super::notices::{Notice, Notices};
use super::refusals::Refusals;
use super::{AccountSettings, Ask, Balance, Denied, Grant, HoldTerms, Reserved};
use crate::clock::SharedClock;
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Ledger, LedgerError, RequestFacts};
use crate::money::PicoUsd;
use crate::usage::CloseReason;

/// How often a waiting request looks at the clock that counts suspended time.
const CLOCK_CHECK: Duration = Duration::from_millis(250);

/// One session's money: shared by every request of the session.
#[derive(Debug)]
pub struct Account {
    session: SessionId,
    ledger: Ledger,
    settings: AccountSettings,
    clock: SharedClock,
    state: Mutex<State>,
    resolved: Notify,
    arrivals: AtomicU64,
    raising: tokio::sync::Mutex<()>,
    notices: Notices,
}

#[derive(Debug)]
struct State {
    purse: Purse,
    waiting: HashMap<Ticket, Arc<Notify>>,
    refusals: Refusals,
}

impl State {
    /// Wakes whoever is first in the queue: something changed.
    fn wake_first(&self) {
        if let Some(waiter) = self
            .purse
            .first_in_queue()
            .and_then(|first| self.waiting.get(&first))
        {
            waiter.notify_one();
        }
    }
}

/// Room that was found in memory and is not durable yet.
struct Room {
    arrival: u64,
    hold: PicoUsd,
    max_tokens: u64,
}

/// A place in the queue; dropping it gives the place up and wakes the next.
struct Place<'a> {
    account: &'a Account,
    ticket: Ticket,
    woken: Arc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.account.state();
        state.waiting.remove(&self.ticket);
        state.purse.leave(Some(self.ticket));
        state.wake_first();
    }
}

impl Account {
    /// An account that begins at `cap` with `settled` already charged (after a resume).
    pub fn new(
        session: SessionId,
        ledger: Ledger,
        cap: PicoUsd,
        settled: PicoUsd,
        settings: AccountSettings,
        clock: SharedClock,
    ) -> Arc<Self> {
        Arc::new(Self {
            session,
            ledger,
            state: Mutex::new(State {
                purse: Purse::new(settings.on_cap, cap, settled),
                waiting: HashMap::new(),
                refusals: Refusals::default(),
            }),
            settings,
            clock,
            resolved: Notify::new(),
            arrivals: AtomicU64::new(0),
            raising: tokio::sync::Mutex::new(()),
            notices: Notices::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds room for a request by the ladder of `design.md` 6: as asked; with a counted prompt;
    /// clamped to a fair share; after waiting; clamped to the floor; refused.
    ///
    /// `count` is asked at most once, and only when the body's own bound does not fit. `gone`
    /// resolves when the client leaves; the request then gives up its place.
    ///
    /// # Errors
    /// Why there is no room.
    pub async fn reserve<C, F, G>(
        self: &Arc<Self>,
        ask: Ask,
        count: C,
        gone: G,
    ) -> Result<Grant, Denied>
    where
        C: FnOnce() -> F + Send,
        F: Future<Output = Option<HoldTerms>> + Send,
        G: Future<Output = ()> + Send,
    {
        let mut gone = pin!(gone);
        let arrival = self.next_arrival();
        let (hold, max_tokens) = self.find_room(&ask, arrival, count, gone.as_mut()).await?;
        let room = Room {
            arrival,
            hold,
            max_tokens,
        };
        self.hold_durably(ask, room, gone).await
    }

    async fn find_room<C, F, G>(
        &self,
        ask: &Ask,
        arrival: u64,
        count: C,
        mut gone: Pin<&mut G>,
    ) -> Result<(PicoUsd, u64), Denied>
    where
        C: FnOnce() -> F + Send,
        F: Future<Output = Option<HoldTerms>> + Send,
        G: Future<Output = ()> + Send,
    {
        let mut want = Want {
            terms: ask.terms,
            max_tokens: ask.max_tokens,
            thinking_budget: ask.thinking_budget,
            counted: false,
            out_of_patience: false,
            ticket: None,
        };
        let mut count = Some(count);
        let mut place: Option<Place<'_>> = None;
        let deadline = self.clock.since_boot().saturating_add(self.settings.wait);
        loop {
            want.ticket = place.as_ref().map(|place| place.ticket);
            let (offer, balance) = self.offer(&want, &ask.request, arrival);
            match offer {
                Offer::Take { hold, max_tokens } => return Ok((hold, max_tokens)),
                Offer::Deny(denial) => return Err(denied(denial, &balance)),
                Offer::Count => {
                    want.counted = true;
                    let Some(count) = count.take() else { continue };
                    let counted = tokio::select! {
                        biased;
                        () = &mut gone => return Err(Denied::ClientGone),
                        counted = count() => counted,
                    };
                    if let Some(terms) = counted
                        && terms.hold(want.max_tokens) < want.terms.hold(want.max_tokens)
                    {
                        want.terms = terms;
                    }
                }
                Offer::Wait(ticket) => {
                    let place = place.get_or_insert_with(|| self.place(ticket));
                    tokio::select! {
                        biased;
                        () = &mut gone => return Err(Denied::ClientGone),
                        () = place.woken.notified() => {}
                        () = tokio::time::sleep(CLOCK_CHECK) => {}
                    }
                    want.out_of_patience = self.clock.since_boot() >= deadline;
                }
            }
        }
    }

    fn offer(&self, want: &Want, request: &RequestId, arrival: u64) -> (Offer, Balance) {
        let mut state = self.state();
        let offer = state.purse.offer(want);
        if let Offer::Deny(Denial::Cap { needs } | Denial::CutAgain { needs, .. }) = &offer {
            state.refusals.was_denied(request.clone(), arrival, *needs);
        }
        if let Offer::Take { .. } = &offer {
            self.notices.money(&state.purse);
        }
        (offer, state.purse.snapshot())
    }

    fn place(&self, ticket: Ticket) -> Place<'_> {
        let woken = Arc::new(Notify::new());
        let mut state = self.state();
        state.waiting.insert(ticket, Arc::clone(&woken));
        // What changed between the offer and now would otherwise be slept through.
        state.wake_first();
        Place {
            account: self,
            ticket,
            woken,
        }
    }

    /// Makes the hold durable: only then may the request be sent.
    async fn hold_durably<G>(
        self: &Arc<Self>,
        ask: Ask,
        room: Room,
        mut gone: Pin<&mut G>,
    ) -> Result<Grant, Denied>
    where
        G: Future<Output = ()> + Send,
    {
        let Room {
            arrival,
            hold,
            max_tokens,
        } = room;
        let held = vec![Entry::Held {
            request: ask.request.clone(),
            facts: ask.facts,
            arrival,
            max_tokens_sent: max_tokens,
            amount: hold,
        }];
        let told = self.notices.copy(&held);
        let durable = self.ledger.append(&self.session, held);
        // From here on the hold may become durable even if this future is dropped, so the guard
        // stands: its `Released` is queued behind the `Held`.
        let clamped_to = (max_tokens < ask.max_tokens).then_some(max_tokens);
        let reserved = Reserved::new(Arc::clone(self), ask.request, hold, clamped_to);
        let durable = tokio::select! {
            biased;
            () = &mut gone => {
                reserved.release("the client left before the request was sent", None);
                return Err(Denied::ClientGone);
            }
            durable = durable => durable,
        };
        match durable {
            Ok(()) => {
                self.notices.tell(told);
                Ok(Grant {
                    hold,
                    max_tokens,
                    reserved,
                })
            }
            Err(error) => {
                reserved.never_held();
                if self.ledger.is_poisoned() {
                    self.close(CloseReason::LedgerFailed(error.cause()));
                }
                Err(match *error {
                    LedgerError::Daily { ceiling, spent } => Denied::Daily { ceiling, spent },
                    _ => Denied::Ledger(error),
                })
            }
        }
    }

    /// Ends a hold. The entries are queued before the room is given to others, so that in the
    /// ledger, too, `settled + held ≤ cap` holds after every entry.
    pub(super) fn resolve(
        &self,
        hold: PicoUsd,
        charged: PicoUsd,
        entries: Vec<Entry>,
        change: impl FnOnce(&mut Purse),
    ) {
        let told = self.notices.copy(&entries);
        if !entries.is_empty() {
            self.ledger.append_later(&self.session, entries);
        }
        let mut state = self.state();
        state.purse.resolve(hold, charged);
        change(&mut state.purse);
        self.notices.tell(told);
        self.notices.money(&state.purse);
        state.wake_first();
        let is_idle = state.purse.in_flight() == 0;
        drop(state);
        if is_idle {
            self.resolved.notify_waiters();
        }
    }

    /// What happens to a request that does not fit.
    pub const fn on_cap(&self) -> super::OnCap {
        self.settings.on_cap
    }

    /// Whether an overshoot of a hold is an error: in the soft mode holds are only expected costs.
    pub(super) const fn is_hard(&self) -> bool {
        !matches!(self.settings.on_cap, super::OnCap::Soft)
    }

    fn next_arrival(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Records a refusal: itemised for the first 1,000, then counted.
    pub fn record_refusal(
        &self,
        request: RequestId,
        facts: RequestFacts,
        status: u16,
        reason: String,
    ) {
        let arrival = self.next_arrival();
        let entry = self
            .state()
            .refusals
            .record(request, facts, arrival, status, reason);
        if let Some(entry) = entry {
            let entries = vec![entry];
            self.notices.tell(self.notices.copy(&entries));
            self.ledger.append_later(&self.session, entries);
        }
    }

    /// Raises the cap, durably; waiting requests go on. A caller that leaves before the answer
    /// changes nothing: what the ledger has taken is raised here, too.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub async fn top_up(self: &Arc<Self>, amount: PicoUsd) -> Result<Balance, Arc<LedgerError>> {
        let account = Arc::clone(self);
        tokio::spawn(async move { account.raise(amount).await })
            .await
            .unwrap_or_else(|_| Err(Arc::new(LedgerError::Poisoned)))
    }

    async fn raise(&self, amount: PicoUsd) -> Result<Balance, Arc<LedgerError>> {
        let one_at_a_time = self.raising.lock().await;
        let cap = self.state().purse.cap().saturating_add(amount);
        self.ledger
            .append(&self.session, vec![Entry::ToppedUp { by: amount, cap }])
            .await?;
        let mut state = self.state();
        state.purse.raise(cap);
        self.notices.money(&state.purse);
        state.wake_first();
        let balance = state.purse.snapshot();
        drop(state);
        drop(one_at_a_time);
        Ok(balance)
    }

    /// Takes no more requests.
    pub fn close(&self, reason: CloseReason) {
        let mut state = self.state();
        let is_recorded = !matches!(reason, CloseReason::Ending | CloseReason::LedgerFailed(_));
        let was_open = state.purse.close(reason.clone());
        self.notices.money(&state.purse);
        state.wake_first();
        let counted = state.refusals.take_counted();
        drop(state);
        let closed = (was_open && is_recorded).then_some(Entry::Closed { reason });
        let entries: Vec<Entry> = closed.into_iter().chain(counted).collect();
        if !entries.is_empty() {
            self.ledger.append_later(&self.session, entries);
        }
    }

    /// Hears of what becomes of it from now on. Who does not listen holds up nobody, and loses the oldest.
    pub fn watch(&self) -> broadcast::Receiver<Notice> {
        self.notices.watch()
    }

    /// The state now.
    pub fn balance(&self) -> Balance {
        self.state().purse.snapshot()
    }

    /// Resolves when no request is in flight and everything queued so far is in the ledger.
    pub async fn idle(&self) {
        loop {
            let resolved = self.resolved.notified();
            if self.state().purse.in_flight() == 0 {
                break;
            }
            resolved.await;
        }
        let counted = self.state().refusals.take_counted();
        if let Some(entry) = counted {
            self.ledger.append_later(&self.session, vec![entry]);
        }
        if let Err(error) = self.ledger.flush().await {
            tracing::error!(%error, "the last entries are not in the ledger");
        }
    }
}

fn denied(denial: Denial, balance: &Balance) -> Denied {
    match denial {
        Denial::Cap { needs } => Denied::Cap {
            cap: balance.cap,
            settled: balance.settled,
            held: balance.held,
            needs,
        },
        Denial::CutAgain { last, .. } => Denied::CutAgain { last },
        Denial::Closed(reason) => Denied::Closed(reason),
    }
}
