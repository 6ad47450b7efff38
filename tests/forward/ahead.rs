//! The connection to the link that is opened before its client comes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use super::rig::{ANSWER, LONG, REQUEST, Rig, accepted, assert_try_again, expect, rest};

/// A request and its answer; then one is ready, whose far end this is.
fn ready(rig: &Rig, link: &UnixListener) -> UnixStream {
    let mut near = rig.connect();
    near.write_all(REQUEST).unwrap();
    let mut far = accepted(link);
    expect(&mut far, REQUEST);
    far.write_all(ANSWER).unwrap();
    expect(&mut near, ANSWER);
    accepted(link)
}

fn assert_nothing_more(link: &UnixListener) {
    link.set_nonblocking(true).unwrap();
    assert_eq!(link.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    link.set_nonblocking(false).unwrap();
}

#[test]
fn the_next_client_gets_the_connection_that_is_ready() {
    let (rig, link) = Rig::new();
    let mut ahead = ready(&rig, &link);
    let mut next = rig.connect();
    next.write_all(REQUEST).unwrap();
    expect(&mut ahead, REQUEST);
    assert_nothing_more(&link);
    // The one after it is opened with the answer, and no sooner.
    ahead.write_all(ANSWER).unwrap();
    expect(&mut next, ANSWER);
    drop(accepted(&link));
}

/// A second answer on a connection tells of no other client.
#[test]
fn one_is_opened_for_each_client_and_not_for_each_answer() {
    let (rig, link) = Rig::new();
    let mut near = rig.connect();
    near.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    far.write_all(ANSWER).unwrap();
    expect(&mut near, ANSWER);
    let mut ahead = accepted(&link);
    // Nobody comes: it is closed, long before the proxy would.
    let began = Instant::now();
    assert_eq!(ahead.read(&mut [0; 1]).unwrap(), 0);
    assert!(began.elapsed() < Duration::from_secs(9));
    near.write_all(REQUEST).unwrap();
    expect(&mut far, REQUEST);
    far.write_all(ANSWER).unwrap();
    expect(&mut near, ANSWER);
    assert_nothing_more(&link);
}

/// The proxy closed it, or is about to: it said something before it was asked.
#[test]
fn one_that_ended_is_not_used() {
    let (rig, link) = Rig::new();
    drop(ready(&rig, &link));
    let mut ahead = ready(&rig, &link);
    ahead
        .write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        .unwrap();
    let mut next = rig.connect();
    next.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    far.write_all(ANSWER).unwrap();
    expect(&mut next, ANSWER);
    // Closed without a byte, and with ours unread.
    let end = ahead.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

#[test]
fn one_of_a_lost_link_is_closed_with_it() {
    let (mut rig, link) = Rig::new();
    let mut ahead = ready(&rig, &link);
    let began = Instant::now();
    rig.forwarder.down(LONG);
    assert_eq!(ahead.read(&mut [0; 1]).unwrap(), 0);
    assert!(began.elapsed() < Duration::from_secs(4), "not by its age");
    let other = rig.link("other.sock");
    let mut next = rig.connect();
    next.write_all(REQUEST).unwrap();
    expect(&mut accepted(&other), REQUEST);
    assert_nothing_more(&link);
}

/// The proxy may have read some of it: as with any other connection, nothing is sent twice.
#[test]
fn one_that_ends_with_a_request_is_not_replaced() {
    let (rig, link) = Rig::new();
    let mut ahead = ready(&rig, &link);
    let mut next = rig.connect();
    next.write_all(REQUEST).unwrap();
    expect(&mut ahead, REQUEST);
    drop(ahead);
    assert_try_again(&rest(&mut next));
    assert_nothing_more(&link);
}
