//! The three numbers of a session and the queue for room: pure state, no time, no I/O.
//!
//! Every decision about room is made here, under one lock that the account holds, so that all
//! interleavings can be tried out in tests.

use std::collections::VecDeque;

use super::{Balance, HoldTerms, OnCap};
use crate::money::PicoUsd;
use crate::usage::CloseReason;

/// A clamp leaves at least this many output tokens while waiting could give more: most turns of an
/// agent need a few thousand.
pub(super) const CLAMP_TARGET_TOKENS: u64 = 16_000;
/// A clamp never leaves less: below, a tool call that writes a file is usually cut.
pub(super) const CLAMP_FLOOR_TOKENS: u64 = 8_000;
/// What a clamp leaves beside the thinking budget.
pub(super) const ANSWER_TOKENS_BESIDE_THINKING: u64 = 4_000;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket(u64);

/// What a request wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) terms: HoldTerms,
    pub(super) max_tokens: u64,
    pub(super) thinking_budget: Option<u64>,
    /// The prompt was counted, or cannot be.
    pub(super) counted: bool,
    /// It has waited as long as it may.
    pub(super) out_of_patience: bool,
    /// Its place in the queue, when it waits.
    pub(super) ticket: Option<Ticket>,
}

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// This much is held for it from now on.
    Take { hold: PicoUsd, max_tokens: u64 },
    /// Its prompt should be counted; then it asks again.
    Count,
    /// It has this place in the queue; when it is woken it asks again.
    Wait(Ticket),
    /// It gets nothing, and has no place in the queue.
    Deny(Denial),
}

/// Why a request gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The smallest hold that would have been taken does not fit.
    Cap { needs: PicoUsd },
    /// It would be cut again, as the last answer was at `last` tokens.
    CutAgain { last: u64, needs: PicoUsd },
    /// The session takes no more requests.
    Closed(CloseReason),
}

/// The money of one session.
#[derive(Clone, Debug)]
pub(super) struct Purse {
    mode: OnCap,
    cap: PicoUsd,
    settled: PicoUsd,
    held: PicoUsd,
    in_flight: usize,
    queue: VecDeque<Ticket>,
    next_ticket: u64,
    closed: Option<CloseReason>,
    cap_reached: bool,
    /// `max_tokens` of the last answer, when that was clamped and ended at it.
    cut_at: Option<u64>,
}

impl Purse {
    pub(super) fn new(mode: OnCap, cap: PicoUsd, settled: PicoUsd) -> Self {
        Self {
            mode,
            cap,
            settled,
            held: PicoUsd::ZERO,
            in_flight: 0,
            queue: VecDeque::new(),
            next_ticket: 0,
            closed: None,
            cap_reached: false,
            cut_at: None,
        }
    }

    /// What neither is charged nor held.
    fn free(&self) -> PicoUsd {
        self.cap
            .saturating_sub(self.settled)
            .saturating_sub(self.held)
    }

    /// Decides about one request, by the ladder of `design.md` 6.
    pub(super) fn offer(&mut self, want: &Want) -> Offer {
        if let Some(reason) = &self.closed {
            let denial = Denial::Closed(reason.clone());
            return self.deny(want, denial);
        }
        match self.mode {
            OnCap::Soft => self.offer_soft(want),
            OnCap::Refuse | OnCap::Clamp => self.offer_hard(want),
        }
    }

    fn offer_soft(&mut self, want: &Want) -> Offer {
        let hold = want.terms.hold(want.max_tokens);
        if self.settled.saturating_add(self.held) < self.cap {
            return self.take(want, want.max_tokens);
        }
        self.deny(want, Denial::Cap { needs: hold })
    }

    fn offer_hard(&mut self, want: &Want) -> Offer {
        let is_first = match want.ticket {
            Some(ticket) => self.queue.front() == Some(&ticket),
            None => self.queue.is_empty(),
        };
        let needs = want.terms.hold(self.least_tokens(want));
        if !is_first {
            return if want.out_of_patience {
                self.deny(want, Denial::Cap { needs })
            } else {
                self.wait(want)
            };
        }
        let free = self.free();
        if want.terms.hold(want.max_tokens) <= free {
            return self.take(want, want.max_tokens);
        }
        if !want.counted {
            return Offer::Count;
        }
        if self.mode == OnCap::Refuse {
            let needs = want.terms.hold(want.max_tokens);
            return self.deny(want, Denial::Cap { needs });
        }
        if let Some(max_tokens) = self.fair_share(want) {
            return self.take(want, max_tokens);
        }
        if self.in_flight > 0 && !want.out_of_patience {
            return self.wait(want);
        }
        let fits = want.terms.most_tokens(free, want.max_tokens);
        let floor = floor_tokens(want);
        match (fits, self.cut_at) {
            (Some(fits), _) if fits >= self.least_tokens(want) => self.take(want, fits),
            (Some(fits), Some(last)) if fits >= floor => {
                self.deny(want, Denial::CutAgain { last, needs })
            }
            _ => self.deny(want, Denial::Cap { needs }),
        }
    }

    /// The clamp that leaves room for others: what a usual turn needs, or half of what is free.
    fn fair_share(&self, want: &Want) -> Option<u64> {
        let least = self.least_tokens(want).max(CLAMP_TARGET_TOKENS);
        let usual = want.terms.hold(least.min(want.max_tokens));
        let free = self.free();
        if usual > free {
            return None;
        }
        want.terms
            .most_tokens(usual.max(free.half()), want.max_tokens)
    }

    /// The smallest `max_tokens` this request is sent with.
    fn least_tokens(&self, want: &Want) -> u64 {
        let twice_the_cut = self.cut_at.map_or(0, |last| last.saturating_mul(2));
        floor_tokens(want).max(twice_the_cut).min(want.max_tokens)
    }

    fn take(&mut self, want: &Want, max_tokens: u64) -> Offer {
        self.leave(want.ticket);
        let hold = want.terms.hold(max_tokens);
        self.held = self.held.saturating_add(hold);
        self.in_flight += 1;
        Offer::Take { hold, max_tokens }
    }

    fn wait(&mut self, want: &Want) -> Offer {
        let ticket = want.ticket.unwrap_or_else(|| {
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            self.queue.push_back(ticket);
            ticket
        });
        Offer::Wait(ticket)
    }

    fn deny(&mut self, want: &Want, denial: Denial) -> Offer {
        self.leave(want.ticket);
        if !matches!(denial, Denial::Closed(_)) {
            self.cap_reached = true;
        }
        Offer::Deny(denial)
    }

    /// Gives a place in the queue up.
    pub(super) fn leave(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.queue.retain(|waiting| *waiting != ticket);
        }
    }

    /// Who is next, when something changed.
    pub(super) fn first_in_queue(&self) -> Option<Ticket> {
        self.queue.front().copied()
    }

    /// Ends a hold and charges `charged`, 0 when nothing was sent.
    pub(super) fn resolve(&mut self, hold: PicoUsd, charged: PicoUsd) {
        debug_assert!(self.held >= hold && self.in_flight > 0, "a hold ends once");
        self.held = self.held.saturating_sub(hold);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.settled = self.settled.saturating_add(charged);
    }

    /// Notes how the last answer ended: clamped to `clamped_to` and cut there, or otherwise.
    pub(super) fn answered(&mut self, clamped_to: Option<u64>, at_max_tokens: bool) {
        self.cut_at = clamped_to.filter(|_| at_max_tokens);
    }

    /// Raises the cap.
    pub(super) fn raise(&mut self, cap: PicoUsd) {
        self.cap = cap;
    }

    /// Takes no more requests; says whether it did so far.
    pub(super) fn close(&mut self, reason: CloseReason) -> bool {
        let was_open = self.closed.is_none();
        self.closed.get_or_insert(reason);
        was_open
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) const fn cap(&self) -> PicoUsd {
        self.cap
    }

    pub(super) fn snapshot(&self) -> Balance {
        Balance {
            cap: self.cap,
            settled: self.settled,
            held: self.held,
            waiting: self.queue.len(),
            closed: self.closed.clone(),
            cap_reached: self.cap_reached,
        }
    }
}

/// The least that leaves room for an answer, or what was asked if that is less.
fn floor_tokens(want: &Want) -> u64 {
    let beside_thinking = want.thinking_budget.map_or(0, |budget| {
        budget.saturating_add(ANSWER_TOKENS_BESIDE_THINKING)
    });
    CLAMP_FLOOR_TOKENS.max(beside_thinking).min(want.max_tokens)
}

impl HoldTerms {
    /// The most output tokens, up to `limit`, whose hold is at most `amount`; `None` when not even
    /// the prompt fits.
    fn most_tokens(&self, amount: PicoUsd, limit: u64) -> Option<u64> {
        let rest = amount.checked_sub(self.fixed)?.pico();
        let rate = self.per_output_token.pico_per_token();
        Some(rest.checked_div(rate).unwrap_or(limit).min(limit))
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
