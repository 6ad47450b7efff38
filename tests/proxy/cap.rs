//! The cap through the whole proxy: counting, clamping, refusing, and that nothing goes over.

use std::sync::Arc;
use std::time::Duration;

use labproxy::cap::OnCap;
use labproxy::ledger::Entry;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::rig::{MODEL, Rig, Setup, answer, ask, dollars, events, price};
use crate::upstream::{Step, Upstream, chunk, json as json_response, last_chunk, sse_head, within};

/// 200 KB of text that the provider counts as 1,000 tokens.
fn long_ask(max_tokens: u64) -> String {
    json!({
        "model": MODEL,
        "max_tokens": max_tokens,
        "system": "x".repeat(150_000),
        "metadata": { "user_id": "u" },
        "messages": [{ "role": "user", "content": "hi" }],
    })
    .to_string()
}

fn is_count(line: &str) -> bool {
    line.contains("count_tokens")
}

/// When the body's own bound does not fit, the provider is asked for a count, once for the same
/// body; the call has only its endpoint's keys and the real credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_lowers_a_hold_that_does_not_fit() {
    let upstream = Upstream::start(|_, seen| {
        vec![Step::Bytes(if is_count(seen.line()) {
            json_response("200 OK", r#"{"input_tokens":1000}"#)
        } else {
            json_response("200 OK", answer(1000, 20))
        })]
    })
    .await;
    let setup = Setup {
        // The body's own bound needs about 30 cents.
        cap: 100_000_000_000,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    for _ in 0..2 {
        let reply = rig.post(long_ask(1_000)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-labproxy-max-tokens"), None);
    }
    let seen = upstream.seen();
    let counts: Vec<_> = seen.iter().filter(|seen| is_count(seen.line())).collect();
    assert_eq!(counts.len(), 1, "the second time it is remembered");
    assert_eq!(counts[0].line(), "POST /v1/messages/count_tokens HTTP/1.1");
    assert_eq!(counts[0].header("x-api-key"), [crate::rig::CANARY]);
    let body: serde_json::Value = serde_json::from_slice(&counts[0].body).unwrap();
    let keys: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["model", "system", "messages"]);
    let entries = rig.entries().await;
    let holds: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Held { amount, .. } => Some(amount.pico()),
            _ => None,
        })
        .collect();
    // 1,000 × 1.02 + 512 tokens at most, at the one-hour write's rate at most, and the output.
    for hold in holds {
        assert!(hold <= 1_532 * 2_000_000 + 1_000 * 5_000_000, "{hold}");
        assert!(hold >= price(1000, 20));
    }
    assert_eq!(
        rig.proxy.counters().free,
        0,
        "the ladder's own calls are not a client's"
    );
}

/// A failed count is not asked again for a while, and the request is refused by its own bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_count_is_not_repeated() {
    let upstream =
        Upstream::start(|_, _| vec![Step::Bytes(json_response("404 Not Found", "{}"))]).await;
    let setup = Setup {
        cap: 100_000_000_000,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    for _ in 0..3 {
        let reply = rig.post(long_ask(1_000)).await;
        assert_eq!(reply.status, 402);
        let (kind, text) = reply.error();
        assert_eq!(kind, "billing_error");
        assert!(
            text.starts_with("labproxy: session cap $0.10 reached"),
            "{text}"
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(rig.ends().await.len(), 3);
    assert!(rig.account.balance().cap_reached);
}

/// 64 parallel requests against a cap that fits ten: ten are sent, 54 are told why not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k01_ten_of_64_parallel_requests_are_sent() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let upstream = Upstream::start(|_, seen| {
        if is_count(seen.line()) {
            return vec![Step::Bytes(json_response("404 Not Found", "{}"))];
        }
        vec![
            Step::Pause(Duration::from_millis(500)),
            Step::Bytes(json_response("200 OK", answer(10, 1_000))),
        ]
    })
    .await;
    // One hold: read from a first rig, so that the cap fits ten exactly.
    let probe = Rig::new(&upstream.url()).await;
    probe.post(ask(1_000, false)).await;
    let hold = probe
        .entries()
        .await
        .iter()
        .find_map(|entry| match entry {
            Entry::Held { amount, .. } => Some(amount.pico()),
            _ => None,
        })
        .unwrap();
    let setup = Setup {
        cap: 10 * hold,
        on_cap: OnCap::Refuse,
        ..Setup::default()
    };
    let rig = Arc::new(Rig::with(&upstream.url(), setup).await);
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(rig.client().await);
    }
    let sends = clients.into_iter().map(|mut client| {
        let go = go.clone();
        tokio::spawn(async move {
            let _start = go.acquire().await.unwrap();
            client.post(ask(1_000, false)).await.status.as_u16()
        })
    });
    let sends: Vec<_> = sends.collect();
    go.add_permits(64);
    let mut statuses = Vec::new();
    for send in sends {
        statuses.push(within(send).await.unwrap());
    }
    let sent = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 402).count();
    assert_eq!((sent, refused), (10, 54));
    assert_eq!(rig.spent().await, 10 * price(10, 1_000));
}

/// One of the ways in which an upstream may behave.
#[derive(Clone, Debug)]
enum Hostile {
    Json {
        input: u64,
        output: u64,
    },
    Stream {
        input: u64,
        output: u64,
        cut: Option<usize>,
    },
    Error(u16),
    Garbage(Vec<u8>),
    Reset,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let tokens = prop_oneof![0..5_000u64, Just(u64::MAX), Just(1 << 40)];
    prop_oneof![
        3 => (0..400u64, 0..2_000u64)
            .prop_map(|(input, output)| Hostile::Json { input, output }),
        3 => (0..400u64, 0..2_000u64, proptest::option::of(0..900usize))
            .prop_map(|(input, output, cut)| Hostile::Stream { input, output, cut }),
        1 => (tokens, 0..2_000u64).prop_map(|(input, output)| Hostile::Json { input, output }),
        1 => prop_oneof![Just(400u16), Just(429), Just(500), Just(529)].prop_map(Hostile::Error),
        1 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(Hostile::Garbage),
        1 => Just(Hostile::Reset),
    ]
}

fn steps(hostile: &Hostile) -> Vec<Step> {
    match hostile {
        Hostile::Json { input, output } => {
            vec![Step::Bytes(json_response(
                "200 OK",
                answer(*input, *output),
            ))]
        }
        Hostile::Stream { input, output, cut } => {
            let body = events(*input, *output).concat();
            let length = cut.unwrap_or(body.len()).min(body.len());
            let mut steps = vec![Step::Bytes(sse_head())];
            steps.extend(
                body.as_bytes()[..length]
                    .chunks(61)
                    .map(|piece| Step::Bytes(chunk(piece))),
            );
            steps.push(match cut {
                Some(cut) if cut % 2 == 0 => Step::Reset,
                _ => Step::Bytes(last_chunk()),
            });
            steps
        }
        Hostile::Error(status) => {
            let body = crate::rig::error("api_error", "no");
            vec![Step::Bytes(json_response(&format!("{status} X"), body))]
        }
        Hostile::Garbage(bytes) => vec![Step::Bytes(bytes.clone()), Step::Close],
        Hostile::Reset => vec![Step::Reset],
    }
}

/// Whatever the upstream does: charged and held stay within the cap at every entry of the ledger,
/// and no charge is above its hold, but for a prompt beyond its bound, which closes the session.
#[test]
fn hostile_answers_never_lead_over_the_cap() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 24,
        max_shrink_iters: 40,
        ..Config::default()
    });
    let plans = proptest::collection::vec((hostile(), any::<bool>(), 1..3_000u64), 1..25);
    runner
        .run(&plans, |plan| {
            runtime.block_on(run(&plan));
            Ok(())
        })
        .unwrap();
}

async fn run(plan: &[(Hostile, bool, u64)]) {
    let script: Vec<Hostile> = plan.iter().map(|(hostile, ..)| hostile.clone()).collect();
    let upstream = Upstream::start(move |number, seen| {
        if is_count(seen.line()) {
            return vec![Step::Bytes(json_response("404 Not Found", "{}"))];
        }
        steps(&script[number % script.len()])
    })
    .await;
    let cap = 150_000_000_000;
    let setup = Setup {
        cap,
        ..Setup::default()
    };
    let rig = Arc::new(Rig::with(&upstream.url(), setup).await);
    let sends = plan.iter().map(|(_, stream, max_tokens)| {
        let (rig, body) = (rig.clone(), ask(*max_tokens, *stream));
        tokio::spawn(async move {
            let mut client = rig.client().await;
            let request = client.request(http::Method::POST, "/v1/messages", body);
            if let Ok(response) = within(client.sender.send_request(request)).await {
                crate::rig::Reply::read(response).await;
            }
        })
    });
    for send in sends.collect::<Vec<_>>() {
        within(send).await.unwrap();
    }
    let entries = rig.entries().await;
    let (mut settled, mut holds) = (0u64, std::collections::HashMap::new());
    let mut overrun = false;
    for entry in &entries {
        match entry {
            Entry::Held {
                request, amount, ..
            } => {
                assert_eq!(holds.insert(request.clone(), amount.pico()), None);
            }
            Entry::Released { request, .. } => drop(holds.remove(request).unwrap()),
            Entry::Settled {
                request, charged, ..
            }
            | Entry::Kept {
                request, charged, ..
            } => {
                let hold = holds.remove(request).expect("one end for each hold");
                settled += charged.pico();
                overrun |= charged.pico() > hold;
            }
            _ => {}
        }
        let held: u64 = holds.values().sum();
        assert!(overrun || settled + held <= cap, "{entries:#?}");
    }
    assert!(holds.is_empty(), "{holds:?}");
    let closed = rig.account.balance().closed.is_some();
    assert!(!overrun || closed, "an overrun closes the session");
    assert!(settled <= dollars(5) || closed);
}
