//! How requests end, and what each end is charged.

use std::time::Duration;

use labproxy::ledger::Entry;
use labproxy::proxy::Times;

use crate::rig::{CANARY, MODEL, Rig, Setup, answer, ask, error, events, price};
use crate::upstream::{Step, Upstream, chunk, json, last_chunk, response, sse_head};

/// A JSON answer reaches the client byte for byte and is charged to the pico-dollar; the upstream
/// sees the real key and never the placeholder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_answer_is_relayed_and_priced() {
    let upstream = Upstream::start(|_, _| vec![Step::Bytes(json("200 OK", answer(10, 20)))]).await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, answer(10, 20));
    assert_eq!(rig.spent().await, price(10, 20));
    let seen = upstream.seen().remove(0);
    assert_eq!(seen.line(), "POST /v1/messages HTTP/1.1");
    assert_eq!(seen.body, ask(100, false).as_bytes());
    assert_eq!(seen.header("x-api-key"), [CANARY]);
    assert_eq!(seen.header("authorization"), Vec::<String>::new());
    assert_eq!(seen.header("accept-encoding"), ["identity"]);
    assert_eq!(seen.header("host"), [upstream.address.to_string()]);
    assert!(!seen.head.contains(&rig.placeholder));
    let Entry::Settled {
        charged, free, end, ..
    } = rig.end().await
    else {
        panic!("not settled");
    };
    assert_eq!((charged.pico(), free), (price(10, 20), false));
    assert_eq!(end.status, Some(200));
    assert!(!end.client_gone);
    assert!(
        reply
            .header("x-labproxy-request")
            .unwrap()
            .starts_with("req_")
    );
}

/// An event stream, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_stream_is_relayed_and_priced() {
    let upstream = Upstream::start(|_, _| {
        let mut steps = vec![Step::Bytes(sse_head())];
        steps.extend(
            events(10, 20)
                .into_iter()
                .map(|event| Step::Bytes(chunk(event))),
        );
        steps.push(Step::Bytes(last_chunk()));
        steps
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, true)).await;
    assert!(reply.whole);
    assert_eq!(reply.body, events(10, 20).concat());
    assert_eq!(rig.spent().await, price(10, 20));
    let Entry::Settled { end, .. } = rig.end().await else {
        panic!("not settled");
    };
    assert_eq!(end.upstream_request_id.as_deref(), Some("req_upstream1"));
    assert_eq!(end.stop_reason.as_deref(), Some("end_turn"));
    assert!(end.ttfb_ms.is_some());
}

/// A complete error of the provider is relayed and costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a18_a_529_passes_through_and_is_not_billed() {
    let body = error("overloaded_error", "Overloaded");
    let sent = body.clone();
    let upstream =
        Upstream::start(move |_, _| vec![Step::Bytes(json("529 Overloaded", &sent))]).await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (529, body.as_bytes())
    );
    assert_eq!(rig.spent().await, 0);
    assert_eq!(upstream.seen().len(), 1);
}

/// The entry of a request whose whole hold was kept, and that what is spent is that hold.
async fn kept(rig: &Rig, held: u64) -> (String, Option<labproxy::ledger::RequestEnd>) {
    let entry = rig.end().await;
    let Entry::Kept {
        charged,
        reason,
        end,
        ..
    } = entry
    else {
        panic!("not kept: {entry:#?}");
    };
    assert_eq!(charged.pico(), held);
    assert_eq!(rig.spent().await, held);
    (reason, end)
}

/// What `rig` held for its one request.
async fn held(rig: &Rig) -> u64 {
    let entries = rig.entries().await;
    let amounts: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Held { amount, .. } => Some(amount.pico()),
            _ => None,
        })
        .collect();
    assert_eq!(amounts.len(), 1, "{entries:#?}");
    amounts[0]
}

/// After the first byte was sent, everything but a complete provider-shaped error keeps the hold,
/// and the upstream sees the request once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_resets_pages_and_cut_heads_keep_the_hold_and_are_sent_once() {
    let half = json("200 OK", answer(10, 20))[..150].to_vec();
    let page = response(
        "502 Bad Gateway",
        "content-type: text/html\r\n",
        "<h1>502</h1>",
    );
    let array = json("500 Internal Server Error", "[]");
    for (what, steps, status) in [
        ("reset", vec![Step::Reset], 502),
        ("closed", vec![Step::Close], 502),
        (
            "cut head",
            vec![
                Step::Bytes(b"HTTP/1.1 200 OK\r\ncont".to_vec()),
                Step::Close,
            ],
            502,
        ),
        ("page", vec![Step::Bytes(page)], 502),
        ("not an error's shape", vec![Step::Bytes(array)], 500),
        ("cut body", vec![Step::Bytes(half), Step::Close], 200),
        (
            "no HTTP",
            vec![Step::Bytes(b"SSH-2.0-x\r\n\r\n".to_vec()), Step::Close],
            502,
        ),
    ] {
        let upstream = Upstream::start(move |_, _| steps.clone()).await;
        let rig = Rig::new(&upstream.url()).await;
        let reply = rig.post(ask(100, false)).await;
        assert_eq!(reply.status.as_u16(), status, "{what}");
        if status == 200 {
            assert!(!reply.whole, "{what}: a cut answer must not look whole");
        }
        let (_, end) = kept(&rig, held(&rig).await).await;
        assert!(!end.unwrap().client_gone, "{what}");
        assert_eq!(upstream.seen().len(), 1, "{what}");
    }
}

/// A time-out is a 504, keeps the hold, and the upstream saw one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_t11_a_time_out_is_a_504_and_is_sent_once() {
    let upstream = Upstream::start(|_, _| vec![Step::UntilClosed]).await;
    let times = Times {
        head: Duration::from_millis(100),
        ..Times::default()
    };
    let rig = Rig::timed(&upstream.url(), times).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 504);
    assert_eq!(reply.error().0, "timeout_error");
    kept(&rig, held(&rig).await).await;
    upstream.closed(1).await;
    assert_eq!(upstream.seen().len(), 1);
}

/// The first byte may take longer than any usual time-out: the default is beyond the SDKs' 600 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_a_late_first_byte_is_waited_for() {
    assert!(Times::default().head > Duration::from_mins(10));
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Pause(Duration::from_millis(300)),
            Step::Bytes(json("200 OK", answer(10, 20))),
        ]
    })
    .await;
    let times = Times {
        head: Duration::from_secs(20),
        silence: Duration::from_millis(50),
        ..Times::default()
    };
    let rig = Rig::timed(&upstream.url(), times).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    assert_eq!(rig.spent().await, price(10, 20));
}

/// Pings keep a stream alive for as long as they come; silence ends it and keeps the hold. The
/// default limit is 300 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s11_s19_d11_pings_keep_a_stream_alive_and_silence_ends_it() {
    assert_eq!(Times::default().silence, Duration::from_mins(5));
    let ping = || Step::Bytes(chunk("event: ping\ndata: {\"type\": \"ping\"}\n\n"));
    let upstream = Upstream::start(move |number, _| {
        let mut steps = vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(&events(10, 20)[0])),
        ];
        for _ in 0..12 {
            steps.extend([Step::Pause(Duration::from_millis(100)), ping()]);
        }
        if number == 0 {
            let rest = events(10, 20)[1..].concat();
            steps.extend([Step::Bytes(chunk(rest)), Step::Bytes(last_chunk())]);
        } else {
            steps.push(Step::UntilClosed);
        }
        steps
    })
    .await;
    let times = Times {
        silence: Duration::from_millis(600),
        ..Times::default()
    };
    let rig = Rig::timed(&upstream.url(), times).await;
    let reply = rig.post(ask(100, true)).await;
    assert!(reply.whole, "1.2 s of pings with a limit of 0.6 s");
    assert_eq!(rig.spent().await, price(10, 20));
    let reply = rig.post(ask(100, true)).await;
    assert!(!reply.whole, "a silent stream is broken off, not ended");
    upstream.closed(1).await;
    let ends = rig.ends().await;
    assert!(matches!(&ends[1], Entry::Kept { .. }), "{ends:#?}");
}

/// An `error` event after the start is passed on, and what was reported is charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d06_a19_an_error_event_after_the_start_charges_what_was_seen() {
    let failed = format!(
        "event: error\ndata: {}\n\n",
        error("overloaded_error", "Overloaded")
    );
    let body = events(1000, 20)[..1].concat() + &failed;
    let sent = body.clone();
    let upstream = Upstream::start(move |_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(&sent)),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, true)).await;
    assert_eq!((reply.whole, &reply.body[..]), (true, body.as_bytes()));
    // 1,000 of input, and the one token of output that the start reported.
    assert_eq!(rig.spent().await, price(1000, 1));
    let Entry::Settled {
        note: Some(note), ..
    } = rig.end().await
    else {
        panic!("not settled with a note");
    };
    assert!(note.contains("overloaded_error"), "{note}");
}

/// An `error` event before any usage says nothing about what was spent, so the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a19_d03_an_error_event_without_usage_keeps_the_hold() {
    let body = format!(
        "event: error\ndata: {}\n\n",
        error("overloaded_error", "Overloaded")
    );
    let sent = body.clone();
    let upstream = Upstream::start(move |_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(&sent)),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    assert_eq!(rig.post(ask(100, true)).await.body, body);
    kept(&rig, held(&rig).await).await;
}

/// A stream that ends in order but without its last event is charged what was seen, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d07_a_stream_without_its_last_event_is_marked_as_incomplete() {
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(events(10, 20)[..3].concat())),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    assert!(rig.post(ask(100, true)).await.whole);
    let Entry::Settled {
        note: Some(note),
        charged,
        ..
    } = rig.end().await
    else {
        panic!("not settled with a note");
    };
    assert!(note.contains("without its last event"), "{note}");
    assert!(charged.pico() >= price(10, 1));
}

/// A stream whose connection breaks keeps the hold, and the client's connection breaks too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d03_d07_a_broken_stream_breaks_for_the_client_and_keeps_the_hold() {
    for last in [Step::Reset, Step::Close] {
        let upstream = Upstream::start(move |_, _| {
            vec![
                Step::Bytes(sse_head()),
                Step::Bytes(chunk(events(10, 20)[..3].concat())),
                Step::Pause(Duration::from_millis(50)),
                last.clone(),
            ]
        })
        .await;
        let rig = Rig::new(&upstream.url()).await;
        let reply = rig.post(ask(100, true)).await;
        assert!(!reply.whole);
        assert_eq!(reply.body, events(10, 20)[..3].concat());
        kept(&rig, held(&rig).await).await;
    }
}

/// A refusal of the model is an answer with status 200, and stays one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a20_a_refusal_of_the_model_stays_a_200() {
    let body = answer(10, 20).replace("end_turn", "refusal");
    let sent = body.clone();
    let upstream = Upstream::start(move |_, _| vec![Step::Bytes(json("200 OK", &sent))]).await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (200, body.as_bytes())
    );
    assert_eq!(rig.spent().await, price(10, 20));
}

/// An error that comes in chunks is delivered whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s13_a_chunked_error_is_delivered_whole_and_is_free() {
    let body = error("invalid_request_error", "messages: too short");
    let sent = body.clone();
    let upstream = Upstream::start(move |_, _| {
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let (one, two) = sent.split_at(20);
        vec![
            Step::Bytes(head.into()),
            Step::Bytes(chunk(one)),
            Step::Pause(Duration::from_millis(20)),
            Step::Bytes(chunk(two)),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (400, body.as_bytes())
    );
    assert_eq!(rig.spent().await, 0);
}

/// A redirect is neither followed nor relayed, and the credential goes nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x08_a_redirect_is_neither_followed_nor_relayed() {
    let other = Upstream::start(|_, _| vec![Step::Bytes(json("200 OK", answer(1, 1)))]).await;
    let location = format!("location: {}/v1/messages\r\n", other.url());
    let upstream = Upstream::start(move |_, _| {
        vec![Step::Bytes(response(
            "307 Temporary Redirect",
            &location,
            "",
        ))]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("location"), None);
    assert!(reply.error().1.contains("redirect"), "{:?}", reply.error());
    assert_eq!(other.connections(), 0);
    kept(&rig, held(&rig).await).await;
}

/// When nothing listens, nothing was sent: the hold is given back and the client may try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_is_down_costs_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let rig = Rig::new(&url).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.error().0, "api_error");
    assert_eq!(reply.header("x-should-retry"), None);
    assert!(matches!(rig.end().await, Entry::Released { .. }));
    assert_eq!(rig.spent().await, 0);
}

/// Prices follow the upstream's clock: the answer of a day on which the price is another one is
/// charged at that day's price.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t23_the_upstreams_date_chooses_the_price() {
    let model = "claude-sonnet-5-5";
    let body = answer(0, 0).replace(MODEL, model).replace(
        "\"input_tokens\":0",
        "\"input_tokens\":0,\"cache_read_input_tokens\":1000",
    );
    let upstream = Upstream::start(move |number, _| {
        let date = [
            "Tue, 06 Oct 2026 23:00:00 GMT",
            "Wed, 07 Oct 2026 01:00:00 GMT",
        ][number];
        let headers = format!("content-type: application/json\r\ndate: {date}\r\n");
        vec![Step::Bytes(response("200 OK", &headers, &body))]
    })
    .await;
    let setup = Setup {
        now: "2026-10-07T00:30:00Z",
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let mut charges = Vec::new();
    for _ in 0..2 {
        let before = rig.spent().await;
        rig.post(ask(100, false).replace(MODEL, model)).await;
        charges.push(rig.spent().await - before);
    }
    // A cache read cost 0.20 dollars a million until that day, and 0.10 since.
    assert_eq!(charges, [200_000_000, 100_000_000]);
}

/// A clock that is further off than any price row can bear: nothing more is forwarded until it is
/// set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t23_a_wrong_clock_stops_requests_until_it_is_set() {
    let upstream = Upstream::start(|_, _| {
        let headers = "content-type: application/json\r\ndate: Tue, 01 Dec 2026 12:00:00 GMT\r\n";
        vec![Step::Bytes(response("200 OK", headers, answer(10, 20)))]
    })
    .await;
    let setup = Setup {
        now: "2027-12-01T12:00:00Z",
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 402);
    assert!(reply.error().1.contains("clock"), "{:?}", reply.error());
    rig.clock.set("2026-12-01T12:00:00Z".parse().unwrap());
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    assert_eq!(upstream.seen().len(), 2);
}
