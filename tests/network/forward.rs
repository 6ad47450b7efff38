//! The forwarder on a real ssh: what its connections see when that is cut, frozen or killed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::netpair::is_possible;
use crate::rig::{Host, expect, signal};

const REQUEST: &[u8] = b"POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const LEASE: Duration = Duration::from_mins(10);

/// One request that is answered.
fn works(host: &mut Host) {
    let mut agent = host.connect();
    agent.write_all(REQUEST).unwrap();
    let mut proxy = host.accepted();
    expect(&mut proxy, REQUEST);
    proxy.write_all(ANSWER).unwrap();
    expect(&mut agent, ANSWER);
}

fn rest(agent: &mut std::net::TcpStream) -> String {
    let mut rest = String::new();
    agent.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_short_cut_loses_and_repeats_nothing() {
    if !is_possible() {
        return;
    }
    let mut host = Host::new();
    let _link = host.link();
    let mut agent = host.connect();
    agent.write_all(REQUEST).unwrap();
    let mut proxy = host.accepted();
    expect(&mut proxy, REQUEST);
    let length = 2000 * 9;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    proxy.write_all(head.as_bytes()).unwrap();
    expect(&mut agent, head.as_bytes());
    thread::scope(|scope| {
        scope.spawn(|| {
            for line in 0..2000 {
                writeln!(proxy, "{line:08}").unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        host.net.cut();
        thread::sleep(Duration::from_secs(3));
        host.net.restore();
        for line in 0..2000 {
            expect(&mut agent, format!("{line:08}\n").as_bytes());
        }
    });
}

/// What a killed ssh leaves, by which of its two processes was killed.
fn killed(process: impl Fn(&crate::rig::Link) -> u32) {
    let mut host = Host::new();
    let link = host.link();
    works(&mut host);
    let mut unanswered = host.connect();
    unanswered.write_all(REQUEST).unwrap();
    let mut one = host.accepted();
    expect(&mut one, REQUEST);
    let mut half = host.connect();
    half.write_all(REQUEST).unwrap();
    let mut other = host.accepted();
    expect(&mut other, REQUEST);
    let part = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal";
    other.write_all(part).unwrap();
    expect(&mut half, part);
    signal(process(&link), Signal::KILL);
    // Nobody has told the forwarder: it sees the sockets close.
    assert!(rest(&mut unanswered).starts_with("HTTP/1.1 503 "));
    let cut = half.read(&mut [0; 1]).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::ConnectionReset);
    // The server closes the socket that it listens on after its connections; one that nobody has
    // accepted by then is told to come again. A request that comes later waits for the next link.
    link.server_ended();
    let mut late = host.connect();
    late.write_all(REQUEST).unwrap();
    host.forwarder.down(LEASE);
    let _next = host.link();
    let mut proxy = host.accepted();
    expect(&mut proxy, REQUEST);
    proxy.write_all(ANSWER).unwrap();
    expect(&mut late, ANSWER);
    works(&mut host);
}

#[test]
fn a_killed_client_of_ssh_is_seen_at_once() {
    if is_possible() {
        killed(crate::rig::Link::client);
    }
}

#[test]
fn a_killed_server_of_ssh_is_seen_at_once() {
    if is_possible() {
        killed(|link| link.server);
    }
}

/// (6) of the tunnel's cases: a frozen ssh still takes connections. Only the heartbeat finds it, and
/// then agents are told.
fn frozen(process: impl Fn(&crate::rig::Link) -> u32) {
    let mut host = Host::new();
    let link = host.link();
    works(&mut host);
    signal(process(&link), Signal::STOP);
    let began = Instant::now();
    let mut agent = host.connect();
    agent.write_all(REQUEST).unwrap();
    agent
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let hangs = agent.read(&mut [0; 1]).unwrap_err();
    assert_eq!(hangs.kind(), ErrorKind::WouldBlock);
    agent.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    host.forwarder.down(LEASE);
    assert!(rest(&mut agent).starts_with("HTTP/1.1 503 "));
    assert!(began.elapsed() < Duration::from_mins(1));
    let _next = host.link();
    works(&mut host);
    drop(link);
}

#[test]
fn a_frozen_client_of_ssh_is_told_by_an_answer() {
    if is_possible() {
        frozen(crate::rig::Link::client);
    }
}

#[test]
fn a_frozen_server_of_ssh_is_told_by_an_answer() {
    if is_possible() {
        frozen(|link| link.server);
    }
}
