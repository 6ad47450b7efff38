//! How holds end: settled, given back, kept, overrun; and what the ledger says of each.

use labproxy::cap::{Denied, OnCap, REFUSALS_LISTED};
use labproxy::id::RequestId;
use labproxy::ledger::{Entry, RequestEnd, RequestFacts};
use labproxy::money::PicoUsd;
use labproxy::receipt::{Outcome, Receipt};
use labproxy::usage::{CloseReason, Settlement};

use crate::bench::{Bench, ask, cents, charge, end, flat, verdict};

/// Kinds of the session's entries, in order.
async fn kinds(bench: &Bench) -> Vec<String> {
    let entries = bench.entries().await;
    let kind = |entry: &Entry| {
        let value = serde_json::to_value(entry).unwrap();
        value["entry"].as_str().unwrap().to_owned()
    };
    entries
        .iter()
        .map(|recorded| kind(&recorded.entry))
        .collect()
}

/// K09, D01: a hold that was not sent is given back when it is dropped; one that was sent is charged
/// in full.
#[tokio::test]
async fn k09_dropping_gives_back_before_sending_and_keeps_after() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    drop(bench.reserve(flat(10)).await.unwrap());
    assert_eq!(bench.account.balance().settled, PicoUsd::ZERO);
    drop(bench.reserve(flat(10)).await.unwrap().reserved.sent());
    let balance = bench.account.balance();
    assert_eq!((balance.settled, balance.held), (cents(10), PicoUsd::ZERO));
    assert_eq!(
        kinds(&bench).await,
        ["opened", "held", "released", "held", "kept"]
    );
    assert!(bench.verify().is_sound());
}

/// A request that no connection took costs nothing, though it was about to be sent.
#[tokio::test]
async fn a_request_that_provably_never_left_is_given_back() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    let in_flight = bench.reserve(flat(10)).await.unwrap().reserved.sent();
    in_flight.never_sent("no connection took the request", RequestEnd::default());
    let balance = bench.account.balance();
    assert_eq!(
        (balance.settled, balance.held),
        (PicoUsd::ZERO, PicoUsd::ZERO)
    );
    assert_eq!(kinds(&bench).await, ["opened", "held", "released"]);
    assert!(bench.verify().is_sound());
}

/// D03, D06: free, kept and charged verdicts end a hold once each, with what the receipt says.
#[tokio::test]
async fn d03_each_verdict_ends_its_hold_once() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    let verdicts = [
        (charge(cents(3)), Outcome::Settled, 3),
        (verdict(Settlement::Free, None), Outcome::Free, 0),
        (
            verdict(Settlement::Keep("reset".into()), None),
            Outcome::Kept,
            10,
        ),
    ];
    for (verdict, _, _) in &verdicts {
        let grant = bench.reserve(flat(10)).await.unwrap();
        grant
            .reserved
            .sent()
            .settle(verdict.clone(), end("end_turn"));
    }
    let unreachable = RequestEnd {
        status: Some(502),
        ..RequestEnd::default()
    };
    let grant = bench.reserve(flat(10)).await.unwrap();
    grant
        .reserved
        .release("the upstream cannot be reached", Some(unreachable));
    assert_eq!(bench.account.balance().settled, cents(13));
    let receipt = Receipt::fold(&bench.session, &bench.entries().await).unwrap();
    assert_eq!(receipt.spent_pico_usd, cents(13));
    let found: Vec<_> = receipt
        .requests
        .iter()
        .map(|line| (line.outcome.unwrap(), line.charged_pico_usd))
        .collect();
    let mut expected: Vec<_> = verdicts
        .iter()
        .map(|(_, outcome, charged)| (*outcome, cents(*charged)))
        .collect();
    expected.push((Outcome::UpstreamError, PicoUsd::ZERO));
    assert_eq!(found, expected);
}

/// K10: a hundred interleaved requests, each settled with its own amount: every charge stands with
/// its own request.
#[tokio::test]
async fn k10_each_settlement_is_its_own_requests() {
    let bench = Bench::new(OnCap::Refuse, cents(10_000)).await;
    let mut in_flight = Vec::new();
    for number in 0..100 {
        let ask = flat(number + 1);
        let name = ask.request.clone();
        let grant = bench.reserve(ask).await.unwrap();
        in_flight.push((number, name, grant.reserved.sent()));
    }
    // Settled in another order than they were held.
    in_flight.sort_by_key(|(number, ..)| (number * 37) % 100);
    let mut expected = Vec::new();
    for (number, name, in_flight) in in_flight {
        in_flight.settle(charge(PicoUsd::from_pico(number)), end("end_turn"));
        expected.push((name, PicoUsd::from_pico(number)));
    }
    let receipt = Receipt::fold(&bench.session, &bench.entries().await).unwrap();
    let mut found: Vec<_> = receipt
        .requests
        .iter()
        .map(|line| (line.id.clone(), line.charged_pico_usd))
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// T09: a charge above its hold is charged in full, recorded, and closes the session.
#[tokio::test]
async fn t09_an_overrun_is_charged_in_full_and_closes() {
    let bench = Bench::new(OnCap::Clamp, cents(100)).await;
    let grant = bench.reserve(flat(10)).await.unwrap();
    grant
        .reserved
        .sent()
        .settle(charge(cents(12)), end("end_turn"));
    assert_eq!(bench.account.balance().settled, cents(12));
    let denied = bench.reserve(flat(1)).await.unwrap_err();
    assert!(
        matches!(denied, Denied::Closed(CloseReason::Overrun(_))),
        "{denied}"
    );
    assert_eq!(
        kinds(&bench).await,
        ["opened", "held", "settled", "overrun", "closed"]
    );
    let entries = bench.entries().await;
    let by = |entry: &Entry| matches!(entry, Entry::Overrun { by, .. } if *by == cents(2));
    assert!(entries.iter().any(|recorded| by(&recorded.entry)));
    assert!(bench.verify().is_sound());
}

/// Soft holds are expected costs: more than that is no overrun, and the receipt shows the overshoot.
#[tokio::test]
async fn soft_charges_above_the_hold_do_not_close() {
    let bench = Bench::new(OnCap::Soft, cents(10)).await;
    let grant = bench.reserve(flat(5)).await.unwrap();
    grant
        .reserved
        .sent()
        .settle(charge(cents(12)), end("end_turn"));
    let denied = bench.reserve(flat(1)).await.unwrap_err();
    assert!(matches!(denied, Denied::Cap { .. }), "{denied}");
    let receipt = Receipt::fold(&bench.session, &bench.entries().await).unwrap();
    assert_eq!(receipt.over_cap_pico_usd, cents(2));
    assert!(bench.verify().is_sound());
}

/// A verdict that closes the session closes it, once, with its reason.
#[tokio::test]
async fn a_verdict_may_close_the_session() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    let one = bench.reserve(flat(10)).await.unwrap().reserved.sent();
    let other = bench.reserve(flat(10)).await.unwrap().reserved.sent();
    let close = || {
        verdict(
            Settlement::Keep("fast".into()),
            Some(CloseReason::ServedFast),
        )
    };
    one.settle(close(), end("end_turn"));
    other.settle(close(), end("end_turn"));
    let kinds = kinds(&bench).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "closed").count(), 1);
    assert_eq!(
        bench.account.balance().closed,
        Some(CloseReason::ServedFast)
    );
}

/// A clamped answer that ended at `max_tokens` is not asked for again under the same clamp.
#[tokio::test]
async fn a_clamped_and_cut_answer_is_refused_the_next_time() {
    let bench = Bench::new(OnCap::Clamp, PicoUsd::from_pico(20_000)).await;
    let large = || ask(PicoUsd::ZERO, 1, 128_000);
    let grant = bench.reserve(large()).await.unwrap();
    assert_eq!((grant.max_tokens, grant.hold.pico()), (16_000, 16_000));
    grant
        .reserved
        .sent()
        .settle(charge(PicoUsd::from_pico(900)), end("max_tokens"));
    let denied = bench.reserve(large()).await.unwrap_err();
    assert!(
        matches!(denied, Denied::CutAgain { last: 16_000 }),
        "{denied}"
    );
    assert!(bench.account.balance().cap_reached);
}

/// T25: the first 1,000 refusals are itemised, the rest are counted, and the receipt adds up.
#[tokio::test]
async fn t25_refusals_are_itemised_up_to_a_thousand() {
    let bench = Bench::new(OnCap::Refuse, cents(1)).await;
    for _ in 0..2_500 {
        let ask = flat(2);
        let request = ask.request.clone();
        let facts = ask.facts.clone();
        let denied = bench.reserve(ask).await.unwrap_err();
        let reason = denied.to_string();
        bench.account.record_refusal(request, facts, 402, reason);
    }
    bench.account.idle().await;
    let receipt = Receipt::fold(&bench.session, &bench.entries().await).unwrap();
    assert_eq!(receipt.requests.len() as u64, REFUSALS_LISTED);
    assert_eq!(receipt.refusals_beyond_listed, 1_500);
    assert!(receipt.cap_reached);
    assert_eq!(
        receipt.unused_because.as_deref(),
        Some("the next request could have cost $0.02, and only $0.01 is left")
    );
}

/// The receipt lists requests in the order they arrived, although a refusal is written later.
#[tokio::test]
async fn requests_are_listed_in_order_of_arrival() {
    let bench = Bench::new(OnCap::Refuse, cents(10)).await;
    let too_large = flat(20);
    let (first, facts): (RequestId, RequestFacts) =
        (too_large.request.clone(), too_large.facts.clone());
    bench.reserve(too_large).await.unwrap_err();
    let second = flat(5);
    let second_name = second.request.clone();
    let _grant = bench.reserve(second).await.unwrap();
    bench
        .account
        .record_refusal(first.clone(), facts, 402, "cap".into());
    let receipt = Receipt::fold(&bench.session, &bench.entries().await).unwrap();
    let names: Vec<_> = receipt
        .requests
        .iter()
        .map(|line| line.id.clone())
        .collect();
    assert_eq!(names, [first, second_name]);
}

/// T20: the daily ceiling refuses although the cap has room, and the room in memory is given back.
#[tokio::test]
async fn t20_the_daily_ceiling_stops_a_session_with_room() {
    let bench = Bench::with_ceiling(OnCap::Clamp, cents(100), Some(cents(15))).await;
    let grant = bench.reserve(flat(10)).await.unwrap();
    let denied = bench.reserve(flat(10)).await.unwrap_err();
    assert!(
        matches!(&denied, Denied::Daily { ceiling, spent }
            if (*ceiling, *spent) == (cents(15), cents(10))),
        "{denied}"
    );
    assert_eq!(bench.account.balance().held, cents(10));
    drop(grant);
    bench.reserve(flat(10)).await.unwrap();
    bench.account.top_up(cents(900)).await.unwrap();
    let denied = bench.reserve(flat(16)).await.unwrap_err();
    assert!(matches!(denied, Denied::Daily { .. }), "{denied}");
}

/// K14: when the ledger cannot take the hold nothing is granted and no room is lost; once it is
/// poisoned the account is closed.
#[tokio::test]
async fn k14_a_hold_that_is_not_durable_is_not_granted() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    bench.break_the_ledger();
    let denied = bench.reserve(flat(10)).await.unwrap_err();
    assert!(matches!(denied, Denied::Ledger(_)), "{denied}");
    assert_eq!(bench.account.balance().held, PicoUsd::ZERO);
    assert!(bench.ledger.is_poisoned());
    let denied = bench.reserve(flat(10)).await.unwrap_err();
    assert!(
        matches!(denied, Denied::Closed(CloseReason::LedgerFailed(_))),
        "{denied}"
    );
}
