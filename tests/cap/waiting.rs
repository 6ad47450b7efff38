//! Requests that wait for room: in order, woken by what ends and by a top-up, and not for ever.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use labproxy::cap::{Ask, Denied, Grant, HoldTerms, OnCap};
use labproxy::ledger::Entry;
use labproxy::money::{PicoUsd, Rate};
use labproxy::usage::CloseReason;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bench::{Bench, ask, cents, charge, end, flat, reserve};

/// Starts a request and returns once it waits.
async fn waiting(bench: &Bench, ask: Ask) -> JoinHandle<Result<Grant, Denied>> {
    let before = bench.account.balance().waiting;
    let account = bench.account.clone();
    let task = tokio::spawn(async move { reserve(&account, ask).await });
    until("it waits", || bench.account.balance().waiting == before + 1).await;
    task
}

/// Lets other tasks go on until `done`, for at most half a minute.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let look = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

/// The first in the queue goes first, although a later one would fit sooner; a newcomer that fits
/// does not overtake them.
#[tokio::test]
async fn waiting_requests_go_in_order_and_nobody_overtakes() {
    let bench = Bench::new(OnCap::Clamp, cents(100)).await;
    let one = bench.reserve(flat(60)).await.unwrap();
    let other = bench.reserve(flat(30)).await.unwrap();
    let large = waiting(&bench, flat(70)).await;
    let small = waiting(&bench, flat(5)).await;
    // 10 cents are free: the small one would fit, and has to wait behind the large one.
    other
        .reserved
        .sent()
        .settle(charge(cents(1)), end("end_turn"));
    assert_eq!(bench.account.balance().waiting, 2);
    one.reserved
        .sent()
        .settle(charge(cents(2)), end("end_turn"));
    let large = large.await.unwrap().unwrap();
    let small = small.await.unwrap().unwrap();
    assert_eq!((large.hold, small.hold), (cents(70), cents(5)));
    let order: Vec<PicoUsd> = bench
        .entries()
        .await
        .iter()
        .filter_map(|recorded| match recorded.entry {
            Entry::Held { amount, .. } => Some(amount),
            _ => None,
        })
        .collect();
    assert_eq!(order, [60, 30, 70, 5].map(cents));
}

/// A hold that is given back wakes the queue as one that is settled does.
#[tokio::test]
async fn a_released_hold_wakes_the_queue() {
    let bench = Bench::new(OnCap::Clamp, cents(10)).await;
    let first = bench.reserve(flat(10)).await.unwrap();
    let second = waiting(&bench, flat(10)).await;
    drop(first.reserved);
    assert_eq!(second.await.unwrap().unwrap().hold, cents(10));
}

/// A caller that leaves while its top-up is written does not split the ledger's cap from the one in
/// use: the next top-up goes on from both.
#[tokio::test]
async fn a_top_up_whose_caller_left_counts_all_the_same() {
    let bench = Bench::new(OnCap::Clamp, cents(10)).await;
    let mut left = Box::pin(bench.account.top_up(cents(10)));
    assert!(futures_util::poll!(left.as_mut()).is_pending());
    drop(left);
    let balance = bench.account.top_up(cents(10)).await.unwrap();
    assert_eq!(balance.cap, cents(30));
    let entries = bench.entries().await;
    let last = entries.last().map(|recorded| recorded.entry.clone());
    let expected = Entry::ToppedUp {
        by: cents(10),
        cap: cents(30),
    };
    assert_eq!(last, Some(expected));
}

/// A top-up is durable and lets waiting requests go on.
#[tokio::test]
async fn a_top_up_wakes_the_queue() {
    let bench = Bench::new(OnCap::Clamp, cents(10)).await;
    let _first = bench.reserve(flat(10)).await.unwrap();
    let second = waiting(&bench, flat(10)).await;
    let balance = bench.account.top_up(cents(10)).await.unwrap();
    assert_eq!(balance.cap, cents(20));
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.hold, cents(10));
    assert_eq!(bench.account.balance().held, cents(20));
    let is_it = |entry: &Entry| {
        *entry
            == Entry::ToppedUp {
                by: cents(10),
                cap: cents(20),
            }
    };
    assert!(
        bench
            .entries()
            .await
            .iter()
            .any(|recorded| is_it(&recorded.entry))
    );
}

/// T38: a client that leaves while its request waits gives up its place; the next in line goes on,
/// and the departed request is never held.
#[tokio::test]
async fn t38_a_client_that_leaves_gives_its_place_up() {
    let bench = Bench::new(OnCap::Clamp, cents(100)).await;
    let one = bench.reserve(flat(95)).await.unwrap();
    let (leave, gone) = oneshot::channel::<()>();
    let leaving = flat(100);
    let departed = leaving.request.clone();
    let account = bench.account.clone();
    let first = tokio::spawn(async move {
        let gone = async { drop(gone.await) };
        account.reserve(leaving, || async { None }, gone).await
    });
    until("the first waits", || bench.account.balance().waiting == 1).await;
    let second = waiting(&bench, flat(5)).await;
    leave.send(()).unwrap();
    assert!(matches!(first.await.unwrap(), Err(Denied::ClientGone)));
    assert_eq!(second.await.unwrap().unwrap().hold, cents(5));
    drop(one);
    let entries = format!("{:?}", bench.entries().await);
    assert!(!entries.contains(departed.as_str()), "{entries}");
}

/// T38: a client that has left before its hold is durable gets nothing; the hold is given back in
/// memory and in the ledger.
#[tokio::test]
async fn t38_a_client_that_leaves_during_the_commit_is_not_sent() {
    let bench = Bench::new(OnCap::Clamp, cents(10)).await;
    let outcome = bench
        .account
        .reserve(flat(10), || async { None }, ready(()))
        .await;
    assert!(matches!(outcome, Err(Denied::ClientGone)));
    // A whole task that goes away does the same.
    let account = bench.account.clone();
    let task = tokio::spawn(async move { reserve(&account, flat(10)).await });
    until("it holds", || bench.account.balance().held > PicoUsd::ZERO).await;
    task.abort();
    drop(task.await);
    bench.account.idle().await;
    assert_eq!(bench.account.balance().held, PicoUsd::ZERO);
    let released = |entry: &Entry| matches!(entry, Entry::Released { .. });
    let entries = bench.entries().await;
    let count = |kind: fn(&Entry) -> bool| {
        entries
            .iter()
            .filter(|recorded| kind(&recorded.entry))
            .count()
    };
    assert_eq!(count(|entry| matches!(entry, Entry::Held { .. })), 2);
    assert_eq!(count(released), 2);
}

/// After `wait` by the clock that counts suspended time, a request takes what there is or goes.
#[tokio::test]
async fn a_request_waits_no_longer_than_it_may() {
    let bench = Bench::new(OnCap::Clamp, cents(100)).await;
    let _in_flight = bench.reserve(flat(95)).await.unwrap();
    let all = waiting(&bench, flat(10)).await;
    bench.clock.advance(Duration::from_mins(2));
    let denied = all.await.unwrap().unwrap_err();
    assert!(
        matches!(&denied, Denied::Cap { held, needs, .. } if (*held, *needs) == (cents(95), cents(10))),
        "{denied}"
    );
    // One that can be clamped to the floor gets that: 5 cents are 10,000 tokens of this rate.
    let per_token = cents(5).pico() / 10_000;
    let clamped = waiting(&bench, ask(PicoUsd::ZERO, per_token, 128_000)).await;
    bench.clock.advance(Duration::from_mins(2));
    let grant = clamped.await.unwrap().unwrap();
    assert_eq!((grant.max_tokens, grant.hold), (10_000, cents(5)));
    assert!(bench.account.balance().cap_reached);
}

/// A session that closes sends everybody in the queue away.
#[tokio::test]
async fn closing_ends_every_wait() {
    let bench = Bench::new(OnCap::Clamp, cents(10)).await;
    let _in_flight = bench.reserve(flat(10)).await.unwrap();
    let first = waiting(&bench, flat(10)).await;
    let second = waiting(&bench, flat(10)).await;
    bench.account.close(CloseReason::Ending);
    for task in [first, second] {
        let denied = task.await.unwrap().unwrap_err();
        assert!(
            matches!(denied, Denied::Closed(CloseReason::Ending)),
            "{denied}"
        );
    }
    assert_eq!(bench.account.balance().waiting, 0);
}

/// The prompt is counted at most once, only when its bound does not fit, and its terms replace the
/// bound's only where they are lower.
#[tokio::test]
async fn a_prompt_is_counted_once_and_only_when_needed() {
    let bench = Bench::new(OnCap::Refuse, cents(10)).await;
    let counted = Arc::new(AtomicU32::new(0));
    let terms = |fixed| {
        let counted = counted.clone();
        move || {
            counted.fetch_add(1, Ordering::Relaxed);
            ready(Some(HoldTerms {
                fixed: cents(fixed),
                per_output_token: Rate::from_pico_per_token(0),
            }))
        }
    };
    let account = &bench.account;
    let fits = account.reserve(flat(9), terms(1), pending()).await.unwrap();
    assert_eq!((fits.hold, counted.load(Ordering::Relaxed)), (cents(9), 0));
    let lower = account
        .reserve(flat(20), terms(1), pending())
        .await
        .unwrap();
    assert_eq!((lower.hold, counted.load(Ordering::Relaxed)), (cents(1), 1));
    let denied = account.reserve(flat(20), terms(50), pending()).await;
    assert!(
        matches!(denied, Err(Denied::Cap { needs, .. }) if needs == cents(20)),
        "{denied:?}"
    );
    assert_eq!(counted.load(Ordering::Relaxed), 2);
}

/// K20: thirty subagents share one cap; each of those that do not fit is refused at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k20_thirty_subagents_share_one_cap() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    let agents: Vec<_> = (0..30)
        .map(|_| {
            let account = bench.account.clone();
            tokio::spawn(async move {
                let mut refused = 0;
                for _ in 0..20 {
                    match reserve(&account, flat(9)).await {
                        Ok(grant) => grant
                            .reserved
                            .sent()
                            .settle(charge(cents(2)), end("end_turn")),
                        Err(Denied::Cap { .. }) => refused += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
                refused
            })
        })
        .collect();
    let mut refused = 0;
    for agent in agents {
        refused += agent.await.unwrap();
    }
    bench.account.idle().await;
    let balance = bench.account.balance();
    assert_eq!(balance.held, PicoUsd::ZERO);
    assert_eq!(balance.settled, cents(2 * (600 - refused)));
    assert!(balance.settled <= cents(100), "{balance:?}");
    assert!(bench.verify().is_sound());
}
