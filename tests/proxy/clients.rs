//! Clients that leave: before the request is sent, while the answer is on its way, and after.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use labproxy::cap::OnCap;
use labproxy::ledger::{Entry, RequestEnd};
use labproxy::proxy::credential::CredentialSource;
use labproxy::proxy::{OnClientGone, Times};
use labproxy::secret::CredentialKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::rig::{Rig, Setup, answer, ask, error, events, price};
use crate::upstream::{Step, Upstream, chunk, json, last_chunk, sse_head, within};

/// A stream whose first three events come at once, and the rest when the test says so.
async fn two_halves(rest: Arc<Notify>) -> Upstream {
    Upstream::start(move |_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(events(10, 20)[..3].concat())),
            Step::Wait(rest.clone()),
            Step::Bytes(chunk(events(10, 20)[3..].concat())),
            Step::Bytes(last_chunk()),
            Step::UntilClosed,
        ]
    })
    .await
}

/// Reads the three events, then leaves.
async fn read_three_and_leave(rig: &Rig) {
    let mut client = Raw::send(rig, &ask(100, true)).await;
    client.read_until("\"hello\"").await;
    client.leave().await;
}

/// A client on a bare socket.
struct Raw(TcpStream);

impl Raw {
    async fn send(rig: &Rig, body: &str) -> Self {
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-length: {}\r\n\
             content-type: application/json\r\n\r\n{body}",
            rig.placeholder,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        Self(socket)
    }

    async fn read_until(&mut self, text: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            let length = within(self.0.read_buf(&mut seen)).await.unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
        }
    }

    /// Closes its side and waits until the proxy has noticed and closed the other.
    async fn leave(mut self) {
        self.0.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _closed = within(self.0.read_to_end(&mut rest)).await;
    }
}

fn gone(end: &RequestEnd) -> bool {
    end.client_gone
}

/// The client closes after three events: the rest is read without it, and the exact usage is
/// charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_d04_d08_the_rest_of_the_answer_is_read_for_its_usage() {
    let rest = Arc::new(Notify::new());
    let upstream = two_halves(rest.clone()).await;
    let rig = Rig::new(&upstream.url()).await;
    read_three_and_leave(&rig).await;
    rest.notify_one();
    let Entry::Settled { charged, end, .. } = rig.end().await else {
        panic!("not settled");
    };
    assert_eq!(charged.pico(), price(10, 20));
    assert!(gone(&end), "the entry tells that the client left");
}

/// With `cancel` the upstream's connection is closed within a second, and the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_d08_cancel_closes_the_upstream_and_keeps_the_hold() {
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(events(10, 20)[..3].concat())),
            Step::UntilClosed,
        ]
    })
    .await;
    let setup = Setup {
        on_client_gone: OnClientGone::Cancel,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    read_three_and_leave(&rig).await;
    let left = Instant::now();
    upstream.closed(1).await;
    assert!(left.elapsed() < Duration::from_secs(1));
    let Entry::Kept {
        reason,
        end: Some(end),
        charged,
        ..
    } = rig.end().await
    else {
        panic!("not kept");
    };
    assert!(reason.contains("client left"), "{reason}");
    assert!(gone(&end));
    assert_eq!(charged.pico(), rig.spent().await);
}

/// An answer that never ends is read for a bounded time, then the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_reading_on_has_an_end() {
    assert_eq!(Times::default().drain, Duration::from_mins(1));
    let upstream = two_halves(Arc::new(Notify::new())).await;
    let times = Times {
        drain: Duration::from_millis(100),
        ..Times::default()
    };
    let rig = Rig::timed(&upstream.url(), times).await;
    read_three_and_leave(&rig).await;
    let Entry::Kept { end: Some(end), .. } = rig.end().await else {
        panic!("not kept");
    };
    assert!(gone(&end));
}

/// A client that leaves before there is an answer: with `drain` the answer is awaited and charged,
/// with `cancel` the connection closes and the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_d02_leaving_before_the_answer() {
    for on_client_gone in [OnClientGone::Drain, OnClientGone::Cancel] {
        let rest = Arc::new(Notify::new());
        let wait = rest.clone();
        let upstream = Upstream::start(move |_, _| match on_client_gone {
            OnClientGone::Drain => vec![
                Step::Wait(wait.clone()),
                Step::Bytes(json("200 OK", answer(10, 20))),
            ],
            OnClientGone::Cancel => vec![Step::UntilClosed],
        })
        .await;
        let rig = Rig::with(
            &upstream.url(),
            Setup {
                on_client_gone,
                ..Setup::default()
            },
        )
        .await;
        let client = Raw::send(&rig, &ask(100, false)).await;
        upstream.arrived(1).await;
        client.leave().await;
        match on_client_gone {
            OnClientGone::Drain => {
                rest.notify_one();
                let Entry::Settled { charged, end, .. } = rig.end().await else {
                    panic!("not settled");
                };
                assert_eq!((charged.pico(), gone(&end)), (price(10, 20), true));
            }
            OnClientGone::Cancel => {
                upstream.closed(1).await;
                let Entry::Kept { end: Some(end), .. } = rig.end().await else {
                    panic!("not kept");
                };
                assert!(gone(&end));
            }
        }
    }
}

/// A client that leaves while its request waits for room: the request is never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t38_a_request_whose_client_left_in_the_queue_is_never_sent() {
    let rest = Arc::new(Notify::new());
    let wait = rest.clone();
    let upstream = Upstream::start(move |_, seen| {
        if seen.line().contains("count_tokens") {
            return vec![Step::Bytes(json("404 Not Found", ""))];
        }
        vec![
            Step::Wait(wait.clone()),
            Step::Bytes(json("200 OK", answer(10, 20))),
        ]
    })
    .await;
    // Room for one hold of 8,000 tokens of output, not for two.
    let setup = Setup {
        cap: 60_000_000_000,
        on_cap: OnCap::Clamp,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let mut first = rig.client().await;
    let request = first.request(http::Method::POST, "/v1/messages", ask(8_000, false));
    let first_answer = first.sender.send_request(request);
    let first_answer = tokio::spawn(first_answer);
    upstream.arrived(1).await;
    let second = Raw::send(&rig, &ask(8_000, false)).await;
    within(async {
        while rig.account.balance().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    second.leave().await;
    assert_eq!(rig.account.balance().waiting, 0);
    rest.notify_one();
    assert_eq!(within(first_answer).await.unwrap().unwrap().status(), 200);
    assert_eq!(rig.spent().await, price(10, 20));
    let messages = upstream.seen();
    let messages = messages
        .iter()
        .filter(|seen| seen.line().starts_with("POST /v1/messages H"));
    assert_eq!(messages.count(), 1);
}

/// A client that leaves while the connection to the upstream is made: nothing is sent, and the hold
/// is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t38_a_request_whose_client_left_during_the_connect_is_never_sent() {
    // An HTTP proxy that takes the connection and answers only when the test says so.
    let go = Arc::new(Notify::new());
    let wait = go.clone();
    let tunnel =
        Upstream::start(move |_, _| vec![Step::Wait(wait.clone()), Step::UntilClosed]).await;
    let setup = Setup {
        http_proxy: Some(tunnel.url()),
        ..Setup::default()
    };
    let rig = Rig::with("https://api.example.com", setup).await;
    let mut client = rig.client().await;
    let request = client.request(http::Method::POST, "/v1/messages", ask(100, false));
    let answer = tokio::spawn(client.sender.send_request(request));
    tunnel.arrived(1).await;
    client.leave();
    assert!(within(answer).await.unwrap().is_err());
    go.notify_one();
    tunnel.closed(1).await;
    assert!(matches!(rig.end().await, Entry::Released { .. }));
    assert_eq!(rig.spent().await, 0);
}

/// Every end is one entry, whichever side closes first, and however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d04_both_close_orders_make_one_entry_each() {
    let upstream = Upstream::start(|number, _| {
        let mut steps = vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(events(10, 20)[..3].concat())),
        ];
        steps.push(if number % 2 == 0 {
            Step::Reset
        } else {
            Step::UntilClosed
        });
        steps
    })
    .await;
    let setup = Setup {
        times: Times {
            drain: Duration::from_millis(50),
            ..Times::default()
        },
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    for number in 0..10 {
        let mut client = rig.client().await;
        let response = client.message(ask(100, true)).await;
        if number % 3 == 0 {
            drop(response);
            client.leave();
        } else {
            let mut body = response.into_body();
            if number % 2 == 0 {
                while let Some(Ok(_)) = within(body.frame()).await {}
            }
            drop(body);
            client.leave();
        }
    }
    assert_eq!(rig.ends().await.len(), 10);
    let held: u64 = rig
        .entries()
        .await
        .iter()
        .filter_map(|entry| match entry {
            Entry::Held { amount, .. } => Some(amount.pico()),
            _ => None,
        })
        .sum();
    assert_eq!(rig.spent().await, held, "every hold is kept");
}

/// A client that leaves while the credential is read again: the request is not sent a second time,
/// and the 401 was free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t38_a_request_whose_client_left_during_the_refresh_is_not_sent_again() {
    let body = error("authentication_error", "expired");
    let upstream =
        Upstream::start(move |_, _| vec![Step::Bytes(json("401 Unauthorized", &body))]).await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let script = format!(
        "if [ -e {begun} ]; then : > {again}; while [ ! -e {go} ]; do sleep 0.01; done; fi; \
         : > {begun}; echo key-$$",
        begun = path("begun"),
        again = path("again"),
        go = path("go"),
    );
    let setup = Setup {
        credential: Some(CredentialSource::Command {
            kind: CredentialKind::ApiKey,
            argv: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        }),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let client = Raw::send(&rig, &ask(100, false)).await;
    within(async {
        while !directory.path().join("again").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    client.leave().await;
    std::fs::write(directory.path().join("go"), "").unwrap();
    let Entry::Settled {
        free: true, end, ..
    } = rig.end().await
    else {
        panic!("not free");
    };
    assert!(gone(&end));
    assert_eq!(upstream.seen().len(), 1);
}
