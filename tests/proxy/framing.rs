//! How the end of an answer is known, and what an answer costs when it is not.

use std::io::Write as _;

use labproxy::ledger::Entry;

use crate::rig::{Rig, answer, ask, events, price};
use crate::upstream::{Step, Upstream, chunk, last_chunk, response};

/// How one request of a fresh session against `steps` ended: charged, held, and why if not by bill.
async fn end(steps: Vec<Step>, stream: bool) -> (u64, u64, Option<String>) {
    let upstream = Upstream::start(move |_, _| steps.clone()).await;
    let rig = Rig::new(&upstream.url()).await;
    rig.post(ask(100, stream)).await;
    let entries = rig.entries().await;
    let held = entries.iter().find_map(|entry| match entry {
        Entry::Held { amount, .. } => Some(amount.pico()),
        _ => None,
    });
    let (charged, why) = match rig.end().await {
        Entry::Settled { charged, note, .. } => (charged, note),
        Entry::Kept {
            charged, reason, ..
        } => (charged, Some(reason)),
        other => panic!("{other:?}"),
    };
    (charged.pico(), held.unwrap(), why)
}

fn until_close(version: &str, kind: &str, body: &str) -> Vec<Step> {
    let head = format!("HTTP/{version} 200 OK\r\ncontent-type: {kind}\r\n\r\n{body}");
    vec![Step::Bytes(head.into_bytes()), Step::Close]
}

/// Where only the connection's close ends a body, a stream that was cut looks like a whole one: it
/// keeps its hold unless its own last event came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_a_stream_cut_where_only_the_close_ends_it_keeps_the_hold() {
    for version in ["1.0", "1.1"] {
        let cut = events(10, 20)[..3].concat();
        let (charged, held, why) = end(until_close(version, "text/event-stream", &cut), true).await;
        assert_eq!(charged, held, "HTTP/{version}");
        assert_eq!(
            why.as_deref(),
            Some("the connection closed before the end of the stream"),
            "the reason stands once"
        );
        let whole = events(10, 20).concat();
        let (charged, ..) = end(until_close(version, "text/event-stream", &whole), true).await;
        assert_eq!(charged, price(10, 20), "HTTP/{version}");
        let (charged, ..) = end(
            until_close(version, "application/json", &answer(10, 20)),
            false,
        )
        .await;
        assert_eq!(charged, price(10, 20), "HTTP/{version}");
    }
}

/// An encoded stream that stops in the middle of its encoding may have lost all that it could say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_a_stream_whose_encoding_is_cut_is_charged_at_most() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let cut = events(10, 20)[..3].concat();
    encoder.write_all(cut.as_bytes()).unwrap();
    encoder.flush().unwrap();
    let body = encoder.get_ref().clone();
    let kind = "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n";
    let steps = vec![Step::Bytes(response("200 OK", kind, body))];
    let (charged, _, why) = end(steps, true).await;
    assert_eq!(charged, price(10, 100), "{why:?}");
}

/// A length beside chunks is not the body's: it does not reach the client, which would stop there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_beside_chunks_does_not_cut_the_answer() {
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Bytes(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\
                  transfer-encoding: chunked\r\n\r\n"
                    .to_vec(),
            ),
            Step::Bytes(chunk(answer(10, 20))),
            Step::Bytes(last_chunk()),
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert!(reply.whole);
    assert_eq!(reply.body, answer(10, 20));
    assert_eq!(reply.header("content-length"), None);
    assert_eq!(rig.spent().await, price(10, 20));
}

/// A switch of protocols is no answer: the hold is kept and the client gets an error, not a 101.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_protocols_is_not_relayed() {
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Bytes(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
                    .to_vec(),
            ),
            Step::Close,
        ]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 502);
    let Entry::Kept { reason, .. } = rig.end().await else {
        panic!("not kept");
    };
    assert_eq!(reason, "the upstream switched to another protocol");
}
