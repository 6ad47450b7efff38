//! Connections while no link works: they wait, and are answered when none comes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::ForwardEnd;

use super::rig::{ANSWER, LONG, PATIENCE, REQUEST, Rig, accepted, assert_try_again, expect, rest};

/// Nothing has come yet.
fn assert_silent(stream: &mut std::net::TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn requests_wait_for_a_link_and_are_sent_once() {
    let mut rig = Rig::without_link(LONG);
    let (mut tcp, mut unix) = (rig.connect(), rig.connect_unix());
    tcp.write_all(REQUEST).unwrap();
    unix.write_all(REQUEST).unwrap();
    assert_silent(&mut tcp);
    let link = rig.link("proxy.sock");
    for _ in 0..2 {
        let mut far = accepted(&link);
        expect(&mut far, REQUEST);
        far.write_all(ANSWER).unwrap();
        rig.frozen.push((link.try_clone().unwrap(), far));
    }
    expect(&mut tcp, ANSWER);
    expect(&mut unix, ANSWER);
}

/// A socket that nobody listens on any more: sshd is gone and the supervisor does not know yet.
#[test]
fn a_link_that_takes_no_connection_is_tried_again() {
    let (rig, link) = Rig::new();
    drop(link);
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    assert_silent(&mut tcp);
    std::fs::remove_file(rig.path("proxy.sock")).unwrap();
    let link = UnixListener::bind(rig.path("proxy.sock")).unwrap();
    expect(&mut accepted(&link), REQUEST);
}

#[test]
fn the_same_link_told_again_changes_nothing() {
    let (mut rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    let path = rig.path("proxy.sock");
    rig.forwarder
        .up(&ForwardEnd::Socket(ByteString::from(&path)));
    far.write_all(ANSWER).unwrap();
    expect(&mut tcp, ANSWER);
}

#[test]
fn when_the_lease_is_over_they_are_answered() {
    let lease = Duration::from_millis(500);
    let rig = Rig::without_link(lease);
    let began = Instant::now();
    let mut early = rig.connect();
    early.write_all(REQUEST).unwrap();
    assert_try_again(&rest(&mut early));
    assert!(began.elapsed() >= lease / 2);
    // From now on at once.
    let mut late = rig.connect();
    late.write_all(REQUEST).unwrap();
    assert_try_again(&rest(&mut late));
}

#[test]
fn a_lease_that_is_told_later_shortens_the_wait() {
    let mut rig = Rig::without_link(LONG);
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    assert_silent(&mut tcp);
    rig.forwarder.down(Duration::from_millis(1));
    assert_try_again(&rest(&mut tcp));
}

/// Half a minute, however long the lease is: clients give up after some minutes.
#[test]
fn nobody_waits_for_longer_than_half_a_minute() {
    let rig = Rig::without_link(LONG);
    let began = Instant::now();
    let mut tcp = rig.connect();
    tcp.set_read_timeout(Some(LONG)).unwrap();
    tcp.write_all(REQUEST).unwrap();
    assert_try_again(&rest(&mut tcp));
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(29), "{waited:?}");
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_nothing() {
    let mut rig = Rig::without_link(LONG);
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    let linger = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&tcp, linger).unwrap();
    drop(tcp);
    drop(rig.connect_unix());
    let mut stays = rig.connect();
    stays.write_all(b"GET /stays HTTP/1.1\r\n\r\n").unwrap();
    assert_silent(&mut stays);
    let link = rig.link("proxy.sock");
    let mut far = accepted(&link);
    expect(&mut far, b"GET /stays HTTP/1.1\r\n\r\n");
}

/// What a client that knows HTTP makes of the answer.
#[test]
fn a_real_client_reads_the_answer() {
    let rig = Rig::without_link(Duration::ZERO);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        // More than a socket's buffer holds: the answer comes while it is sent.
        let body = Full::from(vec![b'x'; 4 * 1024 * 1024]);
        let uri = format!("http://127.0.0.1:{}/v1/messages", rig.forwarder.port());
        let request = http::Request::post(uri).body(body).unwrap();
        let answer = client.request(request).await.unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["type"], "api_error");
    });
}
