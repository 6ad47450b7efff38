//! Floods: each is survived within bounded memory, and an honest request is served meanwhile.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use labproxy::ledger::Entry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rig::{Reply, Rig, Setup, answer, ask, dollars, price};
use crate::upstream::{Step, Upstream, json, within};

async fn fine() -> Upstream {
    Upstream::start(|_, seen| {
        vec![Step::Bytes(if seen.line().contains("count_tokens") {
            json("200 OK", r#"{"input_tokens":7}"#)
        } else {
            json("200 OK", answer(10, 20))
        })]
    })
    .await
}

/// Resident memory of this process in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        / 1024
}

/// Silent sockets, and sockets that trickle a head: the newest push out the oldest, and a client
/// that shows its placeholder is served at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_silent_strangers_keep_nobody_out() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut strangers = Vec::new();
    for number in 0..400 {
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        if number % 2 == 0 {
            socket.write_all(b"POST /v1/messages HT").await.unwrap();
        }
        strangers.push(socket);
    }
    let served = tokio::time::timeout(Duration::from_secs(5), rig.post(ask(100, false)));
    assert_eq!(served.await.unwrap().status, 200);
    // The first ones were pushed out.
    let mut byte = [0; 1];
    let ended = within(strangers[0].read(&mut byte)).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

/// Large bodies from many connections at once: memory stays bounded, and a small request in between
/// is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_many_large_bodies_stay_within_the_budget() {
    let upstream = fine().await;
    let setup = Setup {
        cap: dollars(1_000),
        ..Setup::default()
    };
    let rig = Arc::new(Rig::with(&upstream.url(), setup).await);
    // Each declares 31 MB and sends 1 MB: 20 of them want more than twice the budget.
    let mut sockets = Vec::new();
    let piece = vec![b' '; 1024 * 1024];
    for _ in 0..20 {
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\n\
             content-length: 31000000\r\n\r\n",
            rig.placeholder
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let piece = piece.clone();
        sockets.push(tokio::spawn(async move {
            // Those that are not read yet block here; that is the point.
            let sending = socket.write_all(&piece);
            let _sent = tokio::time::timeout(Duration::from_millis(500), sending).await;
            socket
        }));
    }
    let sockets = futures_util::future::join_all(sockets).await;
    assert!(resident() < 512, "{} MiB", resident());
    drop(sockets);
    let served = tokio::time::timeout(Duration::from_secs(20), rig.post(ask(100, false)));
    assert_eq!(served.await.unwrap().status, 200);
}

/// Three thousand refusals: the first thousand are itemised, the rest counted, and all are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_refusals_are_itemised_a_thousand_times_and_then_counted() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    for _ in 0..3_000 {
        assert_eq!(client.post("{}").await.status, 400);
    }
    assert_eq!(client.post(ask(100, false)).await.status, 200);
    let entries = rig.entries().await;
    let itemised = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Refused { .. }));
    assert_eq!(itemised.count(), 1_000);
    let counted: u64 = entries
        .iter()
        .map(|entry| match entry {
            Entry::RefusedMore { count, .. } => *count,
            _ => 0,
        })
        .sum();
    assert_eq!(counted, 2_000);
    assert_eq!(rig.proxy.counters().refused, 3_000);
}

/// 50 counts at once while the upstream does not answer them: a message is served, the counts wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_t25_a_burst_of_counts_does_not_hold_up_a_message() {
    let go = Arc::new(tokio::sync::Notify::new());
    let wait = go.clone();
    let upstream = Upstream::start(move |_, seen| {
        if seen.line().contains("count_tokens") {
            return vec![Step::Wait(wait.clone()), Step::Bytes(json("200 OK", "{}"))];
        }
        vec![Step::Bytes(json("200 OK", answer(10, 20)))]
    })
    .await;
    let rig = Arc::new(Rig::new(&upstream.url()).await);
    let body = r#"{"model":"claude-haiku-4-5","messages":[{"role":"user","content":"hi"}]}"#;
    let counts: Vec<_> = (0..50)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move {
                let mut client = rig.client().await;
                let request = client.request(Method::POST, "/v1/messages/count_tokens", body);
                Reply::read(client.send(request).await)
                    .await
                    .status
                    .as_u16()
            })
        })
        .collect();
    upstream.arrived(3).await;
    let served = tokio::time::timeout(Duration::from_secs(5), rig.post(ask(100, false)));
    assert_eq!(served.await.unwrap().status, 200);
    let waiting = upstream.seen();
    let waiting = waiting
        .iter()
        .filter(|seen| seen.line().contains("count_tokens"));
    assert_eq!(waiting.count(), 3, "one of the four slots is the ladder's");
    let releasing = tokio::spawn(async move {
        loop {
            go.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    for count in counts {
        assert_eq!(within(count).await.unwrap(), 200);
    }
    releasing.abort();
    assert_eq!(rig.spent().await, price(10, 20));
}

/// More clients than there may be connections: the next is told so, as something to try again, and
/// is served once another has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_connections_are_limited() {
    let upstream = fine().await;
    let setup = Setup {
        max_connections: 2,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    assert_eq!(one.post(ask(100, false)).await.status, 200);
    assert_eq!(two.post(ask(100, false)).await.status, 200);
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), None);
    one.leave();
    within(async {
        while rig.post(ask(100, false)).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Bodies without a declared length take the largest place only while they are read: twelve of them
/// are in flight at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_unknown_length_do_not_keep_the_largest_place() {
    let upstream = Upstream::start(|_, _| vec![Step::UntilClosed]).await;
    let rig = Rig::new(&upstream.url()).await;
    let mut sockets = Vec::new();
    for _ in 0..12 {
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        let body = ask(100, false);
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\n\
             transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            rig.placeholder,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    upstream.arrived(12).await;
    drop(sockets);
}
