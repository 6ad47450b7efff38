//! How requests end, and what each end is charged.

use labproxy::ledger::Entry;

use crate::rig::{CANARY, Rig, answer, ask, error, events, price};
use crate::upstream::{Step, Upstream, chunk, json, last_chunk, sse_head};

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
