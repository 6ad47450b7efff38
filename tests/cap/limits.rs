//! Never over: how much is admitted, and what is held and charged for it.

use futures_util::future::join_all;
use labproxy::cap::{Denied, OnCap};
use labproxy::ledger::Entry;
use labproxy::money::PicoUsd;

use crate::bench::{Bench, ask, cents, charge, end, flat};

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

/// 64 clients with requests of what Claude Code asks for (128,000 tokens, $2.82 at worst) under a cap
/// of $2, clamped and waiting for each other: at no moment is more charged and held than the cap,
/// and what stays unused is less than one turn's worst case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k01_clamped_and_waiting_requests_never_pass_the_cap() {
    // $25 for a million tokens of output, and a prompt of 30 cents at worst.
    let claude = || ask(cents(30), 25_000_000, 128_000);
    let cap = cents(200);
    let bench = Bench::new(OnCap::Clamp, cap).await;
    let clients = (0..64u64).map(|client| {
        let account = bench.account.clone();
        tokio::spawn(async move {
            let mut served = 0;
            loop {
                match crate::bench::reserve(&account, claude()).await {
                    Ok(grant) => {
                        let now = account.balance();
                        let taken = now.settled.checked_add(now.held).unwrap();
                        assert!(taken <= cap, "{now:?}");
                        assert!(grant.max_tokens >= 8_000);
                        assert_eq!(grant.hold, claude().terms.hold(grant.max_tokens));
                        let in_flight = grant.reserved.sent();
                        tokio::task::yield_now().await;
                        // Mostly a fraction of what was held, as real turns cost.
                        in_flight.settle(charge(cents(1 + client % 7)), end("end_turn"));
                        served += 1;
                    }
                    Err(Denied::Cap { .. }) => return served,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    let served: Vec<u64> = join_all(clients)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    bench.account.idle().await;
    let balance = bench.account.balance();
    assert_eq!(balance.held, PicoUsd::ZERO);
    let unused = cap.checked_sub(balance.settled).unwrap();
    assert!(unused < claude().terms.hold(8_000), "{unused} unused");
    assert!(served.iter().sum::<u64>() > 20, "{served:?}");
    let verified = bench.verify();
    assert_eq!(verified.problems, []);
    assert_eq!(verified.charged, balance.settled);
}
