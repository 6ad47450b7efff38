//! Connections to the upstream: TLS, HTTP/2, what may be sent twice, and where they may go.

use std::time::Duration;

use labproxy::ledger::Entry;
use labproxy::proxy::Times;

use crate::rig::{Reply, Rig, Setup, answer, ask, events, price};
use crate::upstream::{Step, Upstream, json, within};
use crate::upstream_h2::{Frames, H2Upstream, INTERNAL, REFUSED};

fn whole() -> Frames {
    Frames::Answer {
        kind: "application/json",
        pieces: vec![answer(10, 20).into_bytes()],
        cut: false,
    }
}

async fn rig(upstream: &H2Upstream) -> Rig {
    let setup = Setup {
        ca_file: Some(upstream.ca_file.clone()),
        ..Setup::default()
    };
    Rig::with(&upstream.url(), setup).await
}

/// Over TLS and HTTP/2, JSON and events are relayed and priced, all on one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_http2_work_on_one_connection() {
    let upstream = H2Upstream::start(|number| match number % 2 {
        0 => whole(),
        _ => Frames::Answer {
            kind: "text/event-stream",
            pieces: events(10, 20).into_iter().map(String::into_bytes).collect(),
            cut: false,
        },
    })
    .await;
    let rig = rig(&upstream).await;
    assert_eq!(rig.post(ask(100, false)).await.body, answer(10, 20));
    let reply = rig.post(ask(100, true)).await;
    assert!(reply.whole);
    assert_eq!(reply.body, events(10, 20).concat());
    assert_eq!(rig.spent().await, 2 * price(10, 20));
    assert_eq!(upstream.seen(), [1, 1]);
}

/// A certificate that no root vouches for is not trusted, and nothing is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_certificate_is_refused() {
    let upstream = H2Upstream::start(|_| whole()).await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 502);
    assert!(matches!(rig.end().await, Entry::Released { .. }));
    assert_eq!(upstream.seen(), Vec::<u32>::new());
}

/// A peer that declares a stream unprocessed (GOAWAY above its last id, `REFUSED_STREAM`) gets it once
/// more, on the same hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d12_a_stream_that_was_declared_unprocessed_is_sent_once_more() {
    for first in [Frames::GoAway { last: 0 }, Frames::Reset(REFUSED)] {
        let upstream = H2Upstream::start(move |number| match number {
            0 => first.clone(),
            _ => whole(),
        })
        .await;
        let rig = rig(&upstream).await;
        assert_eq!(rig.post(ask(100, false)).await.status, 200);
        assert_eq!(upstream.seen().len(), 2);
        assert_eq!(rig.spent().await, price(10, 20));
        let entries = rig.entries().await;
        let holds = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Held { .. }));
        assert_eq!(holds.count(), 1, "one hold for both sends");
    }
}

/// Declared unprocessed twice: no third time, and the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d12_no_stream_is_sent_a_third_time() {
    let upstream = H2Upstream::start(|_| Frames::Reset(REFUSED)).await;
    let rig = rig(&upstream).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 502);
    assert!(matches!(rig.end().await, Entry::Kept { .. }));
    assert_eq!(upstream.seen().len(), 2);
}

/// Anything else that breaks a stream (GOAWAY at or above its id, another reset, a closed
/// connection, a cut body) is never sent again, and the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d12_d09_t11_no_other_stream_is_sent_again() {
    let cut = Frames::Answer {
        kind: "application/json",
        pieces: vec![answer(10, 20).into_bytes()[..40].to_vec()],
        cut: true,
    };
    for (what, first) in [
        ("goaway", Frames::GoAway { last: 1 }),
        ("reset", Frames::Reset(INTERNAL)),
        ("closed", Frames::Close),
        ("cut", cut),
    ] {
        let upstream = H2Upstream::start(move |number| match number {
            0 => first.clone(),
            _ => whole(),
        })
        .await;
        let rig = rig(&upstream).await;
        let reply = rig.post(ask(100, false)).await;
        assert!(reply.status == 502 || !reply.whole, "{what}: {reply:?}");
        assert!(matches!(rig.end().await, Entry::Kept { .. }), "{what}");
        assert_eq!(upstream.seen().len(), 1, "{what}");
    }
}

/// A connection is used again while it is fresh; when it has been idle for longer than peers keep
/// theirs, or the peer has closed it, the next request gets a new one and is sent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d14_idle_connections_are_given_up_before_the_peer_does() {
    assert!(Times::default().pool_idle < Duration::from_secs(5));
    let upstream = Upstream::start(|number, _| {
        let mut steps = vec![Step::Bytes(json("200 OK", answer(10, 20)))];
        if number == 2 {
            steps.push(Step::Close);
        }
        steps
    })
    .await;
    let times = Times {
        pool_idle: Duration::from_millis(300),
        ..Times::default()
    };
    let rig = Rig::timed(&upstream.url(), times).await;
    let post = || async { assert_eq!(rig.post(ask(100, false)).await.status, 200) };
    post().await;
    post().await;
    assert_eq!(upstream.connections(), 1, "used again");
    tokio::time::sleep(Duration::from_millis(400)).await;
    post().await;
    assert_eq!(upstream.connections(), 2, "given up after its time");
    post().await;
    assert_eq!(upstream.connections(), 3, "closed by the peer");
    assert_eq!(upstream.seen().len(), 4);
    assert_eq!(rig.spent().await, 4 * price(10, 20));
}

/// Names that resolve to a private or loopback address are refused before a byte is sent; plain
/// http to anything but loopback is, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x10_private_addresses_behind_names_are_refused() {
    // This machine's own name, where it resolves to one of its own addresses, is such a name.
    let name = rustix::system::uname()
        .nodename()
        .to_str()
        .unwrap()
        .to_owned();
    let upstream = Upstream::start(|_, _| vec![Step::Bytes(json("200 OK", answer(1, 1)))]).await;
    for url in [
        format!("http://{name}:{}", upstream.address.port()),
        "http://192.0.2.1:9".to_owned(),
    ] {
        let rig = Rig::with(&url, Setup::default()).await;
        let times = tokio::time::timeout(Duration::from_secs(11), rig.post(ask(100, false)));
        let reply: Reply = within(times).await.unwrap();
        assert_eq!(reply.status, 502, "{url}");
        assert!(matches!(rig.end().await, Entry::Released { .. }), "{url}");
    }
    assert_eq!(upstream.connections(), 0);
    let url = format!("http://localhost:{}", upstream.address.port());
    let rig = Rig::new(&url).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
}

/// Through an HTTP proxy: one CONNECT with its user's password, TLS to the real host inside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_proxy_is_asked_for_a_tunnel() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let upstream = H2Upstream::start(|_| whole()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tunnel = listener.local_addr().unwrap();
    let target = upstream.address;
    let serving = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
        client.write_all(answer).await.unwrap();
        let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
        let piping = tokio::spawn(async move {
            let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
        (String::from_utf8(head).unwrap(), piping)
    });
    let setup = Setup {
        ca_file: Some(upstream.ca_file.clone()),
        http_proxy: Some(format!("http://user:p%40ss@{tunnel}")),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    let (head, piping) = serving.await.unwrap();
    let port = target.port();
    let expected = format!(
        "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\
         Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
    );
    assert_eq!(head, expected);
    piping.abort();
}
