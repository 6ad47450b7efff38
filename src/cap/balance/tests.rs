//! The rules of the ladder, and random histories against three plain numbers.

use proptest::prelude::*;

use super::*;
use crate::money::Rate;

fn pico(amount: u64) -> PicoUsd {
    PicoUsd::from_pico(amount)
}

/// A request that costs `fixed`, and one pico-dollar for each output token.
fn want(fixed: u64, max_tokens: u64) -> Want {
    Want {
        terms: HoldTerms {
            fixed: pico(fixed),
            per_output_token: Rate::from_pico_per_token(1),
        },
        max_tokens,
        thinking_budget: None,
        counted: true,
        out_of_patience: false,
        ticket: None,
    }
}

fn taken(hold: u64, max_tokens: u64) -> Offer {
    Offer::Take {
        hold: pico(hold),
        max_tokens,
    }
}

fn purse(mode: OnCap, cap: u64) -> Purse {
    Purse::new(mode, pico(cap), PicoUsd::ZERO)
}

/// C25: a million settlements of a millionth of a dollar are exactly one dollar.
#[test]
fn c25_a_million_settlements_sum_exactly() {
    let mut purse = purse(OnCap::Refuse, 1_000_000_000_000);
    for _ in 0..1_000_000 {
        let offer = purse.offer(&want(0, 1_000_000));
        assert_eq!(offer, taken(1_000_000, 1_000_000));
        purse.resolve(pico(1_000_000), pico(1_000_000));
    }
    assert_eq!(purse.settled, pico(1_000_000_000_000));
    assert_eq!(purse.settled.to_string(), "$1.00");
    let needs = pico(1);
    assert_eq!(purse.offer(&want(1, 0)), Offer::Deny(Denial::Cap { needs }));
}

/// K16: what fits is admitted as asked, however much is spent.
#[test]
fn k16_what_fits_is_admitted_as_asked() {
    for mode in [OnCap::Clamp, OnCap::Refuse, OnCap::Soft] {
        let mut purse = purse(mode, 100_000);
        purse.settled = pico(79_000);
        assert_eq!(purse.offer(&want(1_000, 20_000)), taken(21_000, 20_000));
    }
}

/// K17: a request that does not fit is sent with fewer tokens and held for all of those, or not
/// sent; it is never admitted at what is left.
#[test]
fn k17_a_hold_is_never_shrunk_and_admitted() {
    let mut clamping = purse(OnCap::Clamp, 50_000);
    // Half of what is free is more than 16,000 tokens need.
    assert_eq!(clamping.offer(&want(1_000, 400_000)), taken(25_000, 24_000));
    let mut refusing = purse(OnCap::Refuse, 50_000);
    let needs = pico(401_000);
    assert_eq!(
        refusing.offer(&want(1_000, 400_000)),
        Offer::Deny(Denial::Cap { needs })
    );
}

/// A clamp goes to 16,000 tokens, or to half of what is free where that is more.
#[test]
fn a_clamp_is_a_fair_share() {
    let mut small = purse(OnCap::Clamp, 20_000);
    assert_eq!(small.offer(&want(500, 128_000)), taken(16_500, 16_000));
    let mut large = purse(OnCap::Clamp, 100_000);
    assert_eq!(large.offer(&want(500, 128_000)), taken(50_000, 49_500));
    // Four agents at once: each gets half of what the others left, until 16,000 tokens do not fit.
    assert_eq!(large.offer(&want(500, 128_000)), taken(25_000, 24_500));
    assert_eq!(large.offer(&want(500, 128_000)), taken(16_500, 16_000));
    assert_eq!(large.offer(&want(500, 128_000)), Offer::Wait(Ticket(0)));
}

/// When nothing is in flight, waiting is no use: the clamp goes down to the floor, and no further.
#[test]
fn the_floor_is_the_last_clamp() {
    let mut purse = purse(OnCap::Clamp, 9_000);
    assert_eq!(purse.offer(&want(500, 128_000)), taken(9_000, 8_500));
    purse.resolve(pico(9_000), pico(600));
    let needs = pico(8_500);
    assert_eq!(
        purse.offer(&want(500, 128_000)),
        Offer::Deny(Denial::Cap { needs })
    );
    // Who asks for less than the floor may have it.
    assert_eq!(purse.offer(&want(500, 7_000)), taken(7_500, 7_000));
}

/// With a thinking budget an answer of 4,000 tokens must fit beside it: the provider refuses a
/// budget above `max_tokens`.
#[test]
fn a_clamp_leaves_room_beside_the_thinking_budget() {
    let thinking = |max_tokens| Want {
        thinking_budget: Some(31_999),
        ..want(0, max_tokens)
    };
    let mut plenty = purse(OnCap::Clamp, 40_000);
    assert_eq!(plenty.offer(&thinking(128_000)), taken(35_999, 35_999));
    let mut little = purse(OnCap::Clamp, 35_000);
    let needs = pico(35_999);
    assert_eq!(
        little.offer(&thinking(128_000)),
        Offer::Deny(Denial::Cap { needs })
    );
}

/// A prompt whose bound does not fit is counted before anything else, and only then.
#[test]
fn a_prompt_is_counted_only_when_its_bound_does_not_fit() {
    for mode in [OnCap::Clamp, OnCap::Refuse] {
        let mut purse = purse(mode, 100_000);
        let uncounted = |fixed| Want {
            counted: false,
            ..want(fixed, 20_000)
        };
        assert_eq!(purse.offer(&uncounted(90_000)), Offer::Count);
        assert_eq!(purse.offer(&uncounted(80_000)), taken(100_000, 20_000));
    }
}

/// After an answer that a clamp cut, the next request must get twice as much, or as much as it asks
/// for; another answer that was not cut ends that.
#[test]
fn a_cut_answer_is_not_repeated() {
    let mut purse = purse(OnCap::Clamp, 20_000);
    assert_eq!(purse.offer(&want(0, 128_000)), taken(16_000, 16_000));
    purse.resolve(pico(16_000), pico(1_000));
    purse.answered(Some(16_000), true);
    let needs = pico(32_000);
    assert_eq!(
        purse.offer(&want(0, 128_000)),
        Offer::Deny(Denial::CutAgain {
            last: 16_000,
            needs
        })
    );
    assert_eq!(purse.offer(&want(0, 10_000)), taken(10_000, 10_000));
    purse.resolve(pico(10_000), pico(0));
    let mut topped_up = purse.clone();
    topped_up.raise(pico(40_000));
    assert_eq!(topped_up.offer(&want(0, 128_000)), taken(32_000, 32_000));
    purse.answered(None, false);
    assert_eq!(purse.offer(&want(0, 128_000)), taken(16_000, 16_000));
}

/// An answer that ends at the `max_tokens` that was asked for is the client's own affair.
#[test]
fn an_answer_cut_by_its_own_limit_is_not_held_against_the_next() {
    let mut purse = purse(OnCap::Clamp, 20_000);
    purse.answered(None, true);
    assert_eq!(purse.offer(&want(0, 128_000)), taken(16_000, 16_000));
}

/// Soft: admitted while what is charged and held is below the cap; the overshoot is what is in
/// flight.
#[test]
fn soft_overshoots_by_what_is_in_flight_and_no_more() {
    let mut purse = purse(OnCap::Soft, 1_000);
    assert_eq!(purse.offer(&want(0, 999)), taken(999, 999));
    assert_eq!(purse.offer(&want(0, 5_000)), taken(5_000, 5_000));
    let needs = pico(1);
    assert_eq!(purse.offer(&want(0, 1)), Offer::Deny(Denial::Cap { needs }));
}

/// A session that is closed denies everybody, those who wait too.
#[test]
fn a_closed_session_denies() {
    let mut purse = purse(OnCap::Clamp, 10_000);
    assert_eq!(purse.offer(&want(0, 9_000)), taken(9_000, 9_000));
    assert_eq!(purse.offer(&want(0, 9_000)), Offer::Wait(Ticket(0)));
    assert!(purse.close(CloseReason::ServedFast));
    assert!(!purse.close(CloseReason::Ending));
    let denied = Offer::Deny(Denial::Closed(CloseReason::ServedFast));
    let waiting = Want {
        ticket: Some(Ticket(0)),
        ..want(0, 9_000)
    };
    assert_eq!(purse.offer(&waiting), denied);
    assert_eq!(purse.offer(&want(0, 1)), denied);
    assert_eq!(purse.first_in_queue(), None);
    assert!(!purse.cap_reached);
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        fixed: u64,
        rate: u64,
        max_tokens: u64,
        thinking: Option<u64>,
    },
    /// Ends one of the holds, charging so many hundredths of it.
    Resolve {
        which: usize,
        percent: u64,
    },
    /// Ends one of the holds with a charge above it.
    Overrun {
        which: usize,
        by: u64,
    },
    Raise(u64),
    Cut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let amount = prop_oneof![0..50_000u64, Just(u64::MAX), Just(0)];
    let tokens = prop_oneof![0..200_000u64, Just(u64::MAX)];
    prop_oneof![
        4 => (amount, prop_oneof![0..4u64, Just(u64::MAX)], tokens, proptest::option::of(0..50_000u64))
            .prop_map(|(fixed, rate, max_tokens, thinking)| Step::Ask { fixed, rate, max_tokens, thinking }),
        3 => (any::<usize>(), 0..=100u64).prop_map(|(which, percent)| Step::Resolve { which, percent }),
        1 => (any::<usize>(), 1..1_000u64).prop_map(|(which, by)| Step::Overrun { which, by }),
        1 => (0..100_000u64).prop_map(Step::Raise),
        1 => (0..40_000u64).prop_map(Step::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Random histories against three numbers: what is admitted is held in full, with at most what
    /// was asked and at least the floor, and `settled + held ≤ cap` but for recorded overruns.
    #[test]
    fn k07_random_histories_agree_with_three_numbers(
        refuses in any::<bool>(),
        cap in 0..200_000u64,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mode = if refuses { OnCap::Refuse } else { OnCap::Clamp };
        let mut purse = purse(mode, cap);
        let (mut cap, mut settled, mut overran) = (u128::from(cap), 0u128, 0u128);
        let mut holds: Vec<PicoUsd> = Vec::new();
        for step in steps {
            match step {
                Step::Ask { fixed, rate, max_tokens, thinking } => {
                    let terms = HoldTerms {
                        fixed: pico(fixed),
                        per_output_token: Rate::from_pico_per_token(rate),
                    };
                    let want = Want {
                        terms,
                        thinking_budget: thinking,
                        // Nobody waits here: a queue has its own test.
                        out_of_patience: true,
                        ..want(0, max_tokens)
                    };
                    let floor = floor_tokens(&want);
                    let free = purse.free();
                    match purse.offer(&want) {
                        Offer::Take { hold, max_tokens: sent } => {
                            prop_assert_eq!(hold, terms.hold(sent));
                            prop_assert!(hold <= free);
                            prop_assert!(sent <= max_tokens && sent >= floor);
                            prop_assert!(!refuses || sent == max_tokens);
                            holds.push(hold);
                        }
                        Offer::Deny(Denial::Cap { needs }) => prop_assert!(needs > free),
                        Offer::Deny(Denial::CutAgain { needs, .. }) => {
                            prop_assert!(!refuses && needs > free);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Resolve { which, percent } if !holds.is_empty() => {
                    let hold = holds.swap_remove(which % holds.len());
                    let charged = u64::try_from(u128::from(hold.pico()) * u128::from(percent) / 100);
                    let charged = charged.unwrap();
                    purse.resolve(hold, pico(charged));
                    settled += u128::from(charged);
                }
                Step::Overrun { which, by } if !holds.is_empty() => {
                    let hold = holds.swap_remove(which % holds.len());
                    purse.resolve(hold, hold.saturating_add(pico(by)));
                    settled += u128::from(hold.pico()) + u128::from(by);
                    overran += u128::from(by);
                }
                Step::Raise(by) => {
                    cap += u128::from(by);
                    purse.raise(pico(u64::try_from(cap).unwrap()));
                }
                Step::Cut(at) => purse.answered(Some(at), at % 2 == 0),
                Step::Resolve { .. } | Step::Overrun { .. } => {}
            }
            let held: u128 = holds.iter().map(|hold| u128::from(hold.pico())).sum();
            prop_assert_eq!(u128::from(purse.settled.pico()), settled);
            prop_assert_eq!(u128::from(purse.held.pico()), held);
            prop_assert_eq!(purse.in_flight, holds.len());
            prop_assert!(settled + held <= cap + overran);
        }
    }
}
