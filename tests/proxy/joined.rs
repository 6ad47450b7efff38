//! Pieces of an answer that have already come are passed on as one.

use std::time::Duration;

use http_body_util::BodyExt as _;
use labproxy::ledger::Entry;
use proptest::prelude::Rng as _;
use proptest::test_runner::TestRunner;

use crate::rig::{Reply, Rig, ask, events, price};
use crate::upstream::{Step, Upstream, chunk, last_chunk, sse_head, within};

/// Two dozen events in one write are few pieces for the client, whole and in order; that the
/// connection broke comes after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_pieces_that_have_come_are_joined_and_a_break_comes_after_them() {
    let event = |number: usize| format!("event: x\ndata: {{\"n\":{number:02}}}\n\n");
    let body: String = (0..24).map(event).collect();
    for end in [None, Some(Step::Close)] {
        let broken = end.is_some();
        let upstream = Upstream::start(move |_, _| {
            let mut bytes = sse_head();
            for number in 0..24 {
                bytes.extend(chunk(event(number)));
            }
            if !broken {
                bytes.extend(last_chunk());
            }
            [Step::Bytes(bytes)]
                .into_iter()
                .chain(end.clone())
                .collect()
        })
        .await;
        let rig = Rig::new(&upstream.url()).await;
        let mut incoming = rig.client().await.message(ask(100, true)).await.into_body();
        let mut pieces = Vec::new();
        let whole = loop {
            match within(incoming.frame()).await {
                Some(Ok(frame)) => pieces.push(frame.into_data().unwrap()),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        assert_eq!(pieces.concat(), body.as_bytes());
        assert_eq!(whole, !broken);
        // The first may have been on its way before the others came.
        assert!(pieces.len() <= 4, "{} pieces", pieces.len());
    }
}

/// Random pieces in random writes with an end, a cut, or a client that is slow to read: the same
/// bytes in the same order, the same end, the same charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_t21_random_writes_change_neither_bytes_nor_end_nor_charge() {
    const ROUNDS: usize = 300;
    const USAGE: (u64, u64) = (10, 20);
    let mut runner = TestRunner::deterministic();
    let mut below = |most: u32| usize::try_from(runner.rng().next_u32() % most).unwrap();
    let filler = "event: x\ndata: {}\n\n";
    let rounds: Vec<(String, Vec<usize>, usize)> = (0..ROUNDS)
        .map(|_| {
            let mut parts = events(USAGE.0, USAGE.1);
            parts.insert(1, filler.repeat(below(400)));
            let body = parts.concat();
            let lengths = (0..body.len()).map(|_| 1 + below(300)).collect();
            (body, lengths, below(7))
        })
        .collect();
    let script = rounds.clone();
    let upstream = Upstream::start(move |number, _| {
        let (body, lengths, kind) = &script[number];
        let mut steps = Vec::new();
        let mut bytes = sse_head();
        let mut rest = body.as_bytes();
        for (index, length) in lengths.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            rest = after;
            bytes.extend(chunk(piece));
            if index % (2 + kind) == 0 {
                steps.push(Step::Bytes(std::mem::take(&mut bytes)));
            }
        }
        if kind % 3 == 1 {
            steps.extend([Step::Bytes(bytes), Step::Close]);
        } else {
            bytes.extend(last_chunk());
            steps.push(Step::Bytes(bytes));
        }
        steps
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let mut charged = 0;
    for (number, (body, _, kind)) in rounds.iter().enumerate() {
        // A cut answer closes its client's connection.
        let response = rig.client().await.message(ask(100, true)).await;
        if kind % 4 == 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let reply = Reply::read(response).await;
        assert_eq!(reply.body, body.as_bytes(), "round {number}");
        assert_eq!(reply.whole, kind % 3 != 1, "round {number}");
        charged += price(USAGE.0, USAGE.1);
    }
    assert_eq!(rig.spent().await, charged);
    let ends = rig.ends().await;
    assert_eq!(ends.len(), ROUNDS);
    assert!(ends.iter().all(|end| matches!(end, Entry::Settled { .. })));
}
