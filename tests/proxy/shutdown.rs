//! The end: what is in flight finishes or is kept, and everything is in the ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use labproxy::ledger::Entry;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::rig::{Reply, Rig, answer, ask, events, price};
use crate::upstream::{Step, Upstream, chunk, json, last_chunk, sse_head, within};

/// Within the grace a stream in flight comes to its end; no new connection is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_flight_may_finish() {
    let rest = Arc::new(Notify::new());
    let wait = rest.clone();
    let upstream = Upstream::start(move |_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(&events(10, 20)[0])),
            Step::Wait(wait.clone()),
            Step::Bytes(chunk(events(10, 20)[1..].concat())),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    let response = client.message(ask(100, true)).await;
    let proxy = rig.proxy.clone();
    let ending = tokio::spawn(async move { proxy.shutdown(Duration::from_secs(15)).await });
    within(async {
        while TcpStream::connect(rig.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    rest.notify_one();
    let reply = Reply::read(response).await;
    assert!(reply.whole);
    assert_eq!(reply.body, events(10, 20).concat());
    within(ending).await.unwrap();
    assert!(matches!(rig.end().await, Entry::Settled { .. }));
    assert_eq!(rig.spent().await, price(10, 20));
}

/// After the grace what is left is broken off and kept, and when `shutdown` returns it is in the
/// ledger and no task is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_finish_is_kept() {
    let upstream = Upstream::start(|number, _| match number {
        0 => vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(&events(10, 20)[0])),
            Step::UntilClosed,
        ],
        _ => vec![Step::UntilClosed],
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let mut first = rig.client().await;
    let response = first.message(ask(100, true)).await;
    let mut second = rig.client().await;
    let request = second.request(http::Method::POST, "/v1/messages", ask(100, false));
    let waiting = tokio::spawn(second.sender.send_request(request));
    upstream.arrived(2).await;
    let begun = Instant::now();
    rig.proxy.shutdown(Duration::from_millis(200)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(!Reply::read(response).await.whole);
    assert!(within(waiting).await.unwrap().is_err());
    upstream.closed(2).await;
    let ends = rig.ends().await;
    assert_eq!(ends.len(), 2);
    for end in ends {
        let Entry::Kept { reason, .. } = end else {
            panic!("not kept: {end:?}");
        };
        assert!(reason.contains("session ended"), "{reason}");
    }
    assert_eq!(Arc::strong_count(&rig.proxy), 1, "no task holds the proxy");
}

/// A request on a connection that was open before is refused while the proxy ends, and a second
/// `shutdown` returns as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_at_once() {
    let upstream = Upstream::start(|_, _| vec![Step::Bytes(json("200 OK", answer(10, 20)))]).await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    assert_eq!(client.post(ask(100, false)).await.status, 200);
    let begun = Instant::now();
    rig.proxy.shutdown(Duration::from_secs(15)).await;
    rig.proxy.shutdown(Duration::from_secs(15)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(
        within(client.connection).await.is_ok(),
        "the connection has ended"
    );
}
