//! Every interleaving of a few requests: asking, waiting, leaving, settling, topping up.
//!
//! The account adds to this state only a lock around each step and a wake of whoever is first in
//! the queue after each change; both are modelled here, so a wake that gets lost would show as a
//! request that waits for ever.

use std::collections::HashSet;

use super::*;
use crate::money::Rate;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Asking,
    Waiting { ticket: u64, is_woken: bool },
    Holding(u64),
    Done,
}

#[derive(Clone, Debug)]
struct Request {
    want: Want,
    /// Its prompt's bound once it is counted.
    counted_fixed: u64,
    phase: Phase,
}

#[derive(Clone, Debug)]
struct World {
    purse: Purse,
    requests: Vec<Request>,
    top_up: Option<u64>,
    /// Tickets in the order they were given.
    order: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Asks, or asks again when it was woken.
    Offer,
    /// Its patience ends.
    TimeOut,
    /// Its client leaves.
    Leave,
    /// Its hold ends, with this part of it charged.
    Charge(u64, u64),
}

impl World {
    /// A name for the state: whoever reached it before has seen all that follows.
    fn name(&self) -> String {
        let phases: Vec<_> = self
            .requests
            .iter()
            .map(|request| {
                let want = &request.want;
                (&request.phase, want.counted, want.out_of_patience)
            })
            .collect();
        format!(
            "{:?} {phases:?} {:?} {:?}",
            self.purse, self.top_up, self.order
        )
    }

    fn wake_first(&mut self) {
        let Some(Ticket(first)) = self.purse.first_in_queue() else {
            return;
        };
        for request in &mut self.requests {
            if let Phase::Waiting { ticket, is_woken } = &mut request.phase
                && *ticket == first
            {
                *is_woken = true;
            }
        }
    }

    fn actions(request: &Request) -> Vec<Action> {
        match request.phase {
            Phase::Asking => vec![Action::Offer],
            Phase::Waiting { is_woken: true, .. } => {
                vec![Action::Offer, Action::TimeOut, Action::Leave]
            }
            Phase::Waiting { .. } => vec![Action::TimeOut, Action::Leave],
            Phase::Holding(_) => vec![Action::Charge(1, 10), Action::Charge(1, 1)],
            Phase::Done => Vec::new(),
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Offer => self.offer(index),
            Action::TimeOut => {
                self.requests[index].want.out_of_patience = true;
                self.offer(index);
            }
            Action::Leave => {
                self.purse.leave(self.requests[index].want.ticket);
                self.requests[index].phase = Phase::Done;
                self.wake_first();
            }
            Action::Charge(part, of) => {
                let Phase::Holding(hold) = self.requests[index].phase else {
                    panic!("nothing is held");
                };
                let charged = PicoUsd::from_pico(hold * part / of);
                self.purse.resolve(PicoUsd::from_pico(hold), charged);
                self.requests[index].phase = Phase::Done;
                self.wake_first();
            }
        }
    }

    fn offer(&mut self, index: usize) {
        let want = self.requests[index].want;
        let waited = want.ticket.is_some();
        match self.purse.offer(&want) {
            Offer::Take { hold, .. } => {
                if let Some(Ticket(ticket)) = want.ticket {
                    let earlier = self.waiting_before(ticket);
                    assert!(!earlier, "{ticket} overtook");
                } else {
                    assert!(self.waiting().is_empty(), "a newcomer overtook");
                }
                self.requests[index].phase = Phase::Holding(hold.pico());
            }
            Offer::Deny(_) => self.requests[index].phase = Phase::Done,
            Offer::Count => {
                let request = &mut self.requests[index];
                request.want.counted = true;
                request.want.terms.fixed = PicoUsd::from_pico(request.counted_fixed);
                return;
            }
            Offer::Wait(Ticket(ticket)) => {
                let request = &mut self.requests[index];
                request.want.ticket = Some(Ticket(ticket));
                let is_woken = false;
                request.phase = Phase::Waiting { ticket, is_woken };
                if waited {
                    return;
                }
                self.order.push(ticket);
            }
        }
        self.wake_first();
    }

    fn waiting(&self) -> Vec<u64> {
        let tickets = self
            .requests
            .iter()
            .filter_map(|request| match request.phase {
                Phase::Waiting { ticket, .. } => Some(ticket),
                _ => None,
            });
        tickets.collect()
    }

    fn waiting_before(&self, ticket: u64) -> bool {
        let place = |ticket| self.order.iter().position(|given| *given == ticket);
        self.waiting()
            .into_iter()
            .any(|other| place(other) < place(ticket))
    }

    fn check(&self) {
        let held: u64 = self
            .requests
            .iter()
            .map(|request| match request.phase {
                Phase::Holding(hold) => hold,
                _ => 0,
            })
            .sum();
        assert_eq!(self.purse.held.pico(), held);
        let taken = self.purse.settled.pico() + held;
        assert!(taken <= self.purse.cap.pico(), "over the cap");
        assert_eq!(self.purse.queue.len(), self.waiting().len());
    }
}

/// Goes through every state that can be reached; returns how many there are.
fn explore(world: World) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![world];
    while let Some(world) = open.pop() {
        if !seen.insert(world.name()) {
            continue;
        }
        world.check();
        let mut is_end = true;
        let mut only_patience = true;
        for (index, request) in world.requests.iter().enumerate() {
            for action in World::actions(request) {
                is_end = false;
                only_patience &= matches!(action, Action::TimeOut | Action::Leave);
                let mut next = world.clone();
                next.act(index, action);
                open.push(next);
            }
        }
        if let Some(by) = world.top_up {
            let mut next = world.clone();
            next.top_up = None;
            let raised = next.purse.cap.pico() + by;
            next.purse.raise(PicoUsd::from_pico(raised));
            next.wake_first();
            open.push(next);
        }
        // Somebody waits, nobody else can do anything, and nobody wakes him: a lost wake.
        assert!(
            is_end || !only_patience || world.top_up.is_some(),
            "lost wake: {world:?}"
        );
    }
    seen.len()
}

fn world(mode: OnCap, cap: u64, asks: &[(u64, u64, u64)], top_up: Option<u64>) -> World {
    let requests = asks
        .iter()
        .map(|(fixed, counted_fixed, max_tokens)| Request {
            want: Want {
                terms: HoldTerms {
                    fixed: PicoUsd::from_pico(*fixed),
                    per_output_token: Rate::from_pico_per_token(1),
                },
                max_tokens: *max_tokens,
                thinking_budget: None,
                counted: false,
                out_of_patience: false,
                ticket: None,
            },
            counted_fixed: *counted_fixed,
            phase: Phase::Asking,
        });
    World {
        purse: Purse::new(mode, PicoUsd::from_pico(cap), PicoUsd::ZERO),
        requests: requests.collect(),
        top_up,
        order: Vec::new(),
    }
}

/// K05: in no interleaving is the cap passed, a waiting request overtaken or a wake lost; the
/// requests are such that every rung of the ladder is used.
#[test]
fn k05_no_interleaving_passes_the_cap_overtakes_or_loses_a_wake() {
    let asks = [
        (30_000, 2_000, 100_000),
        (5_000, 1_000, 128_000),
        (3_000, 3_000, 12_000),
        (40_000, 9_000, 9_000),
    ];
    let mut states = 0;
    for mode in [OnCap::Clamp, OnCap::Refuse] {
        for (cap, top_up) in [(8_000, None), (20_000, Some(15_000)), (52_000, None)] {
            states += explore(world(mode, cap, &asks, top_up));
        }
    }
    assert!(states > 10_000, "{states} states");
}
