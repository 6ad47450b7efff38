//! Never over: how much is admitted, and what is held and charged for it.

use futures_util::future::join_all;
use labproxy::cap::{Denied, OnCap};
use labproxy::ledger::Entry;
use labproxy::money::PicoUsd;

use crate::bench::{Bench, cents, charge, end, flat};

/// 64 parallel requests of 10 cents each at worst under a cap of a dollar: exactly 10 are admitted,
/// and each of them is in the ledger before it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k01_exactly_ten_of_64_parallel_requests_fit() {
    let bench = Bench::new(OnCap::Refuse, cents(100)).await;
    let asks = (0..64).map(|_| {
        let account = bench.account.clone();
        tokio::spawn(async move { crate::bench::reserve(&account, flat(10)).await })
    });
    let mut grants = Vec::new();
    let mut denied = 0;
    for outcome in join_all(asks).await {
        match outcome.unwrap() {
            Ok(grant) => grants.push(grant),
            Err(Denied::Cap { cap, needs, .. }) => {
                assert_eq!((cap, needs), (cents(100), cents(10)));
                denied += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((grants.len(), denied), (10, 54));
    let balance = bench.account.balance();
    assert_eq!((balance.settled, balance.held), (PicoUsd::ZERO, cents(100)));
    let held = bench.entries().await;
    let held = held
        .iter()
        .filter(|recorded| matches!(recorded.entry, Entry::Held { .. }));
    assert_eq!(held.count(), 10);
    for grant in grants {
        grant
            .reserved
            .sent()
            .settle(charge(cents(10)), end("end_turn"));
    }
    let balance = bench.account.balance();
    assert_eq!((balance.settled, balance.held), (cents(100), PicoUsd::ZERO));
    assert!(balance.cap_reached);
}
