//! How connections end: in order, by an answer that says "try again", or by a reset, by what their
//! clients were told before.

use std::io::{ErrorKind, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::rig::{
    ANSWER, LONG, PATIENCE, REQUEST, Rig, accepted, assert_reset, assert_try_again, expect, rest,
    signal,
};

/// How a link dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The supervisor says so, while the far end is frozen: it accepted, and never answers.
    Told,
    /// A later link replaces it.
    Replaced,
    /// sshd is gone, and the kernel closed its sockets.
    Closed,
}

const DEATHS: [Death; 3] = [Death::Told, Death::Replaced, Death::Closed];

/// Lets a link die. What is returned lives on and must not be asked.
fn kill(rig: &mut Rig, link: UnixListener, far: UnixStream, death: Death) -> Option<UnixListener> {
    match death {
        Death::Told => {
            rig.forwarder.down(LONG);
            // Frozen, not closed: both stay open until the test ends.
            rig.frozen.push((link, far));
            None
        }
        Death::Replaced => {
            rig.frozen.push((link, far));
            Some(rig.link("second.sock"))
        }
        Death::Closed => None,
    }
}

#[test]
fn requests_and_answers_pass_unchanged_by_port_and_by_socket() {
    let (rig, link) = Rig::new();
    let (mut tcp, mut unix) = (rig.connect(), rig.connect_unix());
    for _ in 0..3 {
        tcp.write_all(REQUEST).unwrap();
        unix.write_all(REQUEST).unwrap();
    }
    let mut far = [accepted(&link), accepted(&link)];
    for _ in 0..3 {
        for far in &mut far {
            expect(&mut *far, REQUEST);
            far.write_all(ANSWER).unwrap();
        }
        expect(&mut tcp, ANSWER);
        expect(&mut unix, ANSWER);
    }
}

#[test]
fn a_client_that_says_that_it_sends_no_more_gets_its_answer() {
    let (rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    let mut far = accepted(&link);
    assert_eq!(rest(&mut far), REQUEST);
    far.write_all(ANSWER).unwrap();
    drop(far);
    assert_eq!(rest(&mut tcp), ANSWER);

    let mut unix = rig.connect_unix();
    unix.write_all(REQUEST).unwrap();
    unix.shutdown(Shutdown::Write).unwrap();
    let mut far = accepted(&link);
    assert_eq!(rest(&mut far), REQUEST);
    far.write_all(ANSWER).unwrap();
    drop(far);
    assert_eq!(rest(&mut unix), ANSWER);
}

#[test]
fn what_is_not_http_may_go_on_in_either_direction() {
    let (rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(b"\x01hello\n").unwrap();
    let mut far = accepted(&link);
    expect(&mut far, b"\x01hello\n");
    far.write_all(b"bye").unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut tcp), b"bye");
    for _ in 0..3 {
        tcp.write_all(b"more").unwrap();
        expect(&mut far, b"more");
    }
    tcp.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut far), b"");
}

#[test]
fn an_answer_that_the_end_ends_is_whole() {
    let (rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    far.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        .unwrap();
    drop(far);
    assert!(rest(&mut tcp).ends_with(b"until the end"));
}

/// (6) of the tunnel's cases: the agent is told by a 503 and does not hang.
#[test]
fn an_unanswered_request_is_told_to_try_again() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let (mut tcp, mut unix) = (rig.connect(), rig.connect_unix());
        tcp.write_all(REQUEST).unwrap();
        let mut far = accepted(&link);
        expect(&mut far, REQUEST);
        unix.write_all(REQUEST).unwrap();
        let mut far_too = accepted(&link);
        expect(&mut far_too, REQUEST);
        if matches!(death, Death::Closed) {
            drop(far_too);
        } else {
            rig.frozen.push((link.try_clone().unwrap(), far_too));
        }
        let next = kill(&mut rig, link, far, death);
        assert_try_again(&rest(&mut tcp));
        assert_try_again(&rest(&mut unix));
        // It may have been taken: it is never sent to another link.
        if let Some(next) = next {
            next.set_nonblocking(true).unwrap();
            assert_eq!(next.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn the_second_request_of_a_connection_is_told_to_try_again() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let mut tcp = rig.connect();
        let mut far = {
            tcp.write_all(REQUEST).unwrap();
            accepted(&link)
        };
        expect(&mut far, REQUEST);
        far.write_all(ANSWER).unwrap();
        expect(&mut tcp, ANSWER);
        tcp.write_all(REQUEST).unwrap();
        expect(&mut far, REQUEST);
        // That it is being worked on is no answer.
        far.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").unwrap();
        expect(&mut tcp, b"HTTP/1.1 102 Processing\r\n\r\n");
        kill(&mut rig, link, far, death);
        assert_try_again(&rest(&mut tcp));
    }
}

#[test]
fn a_large_body_on_its_way_does_not_hide_the_answer() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let mut tcp = rig.connect();
        let length = 16 * 1024 * 1024;
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        tcp.write_all(head.as_bytes()).unwrap();
        let mut far = accepted(&link);
        expect(&mut far, head.as_bytes());
        let mut writer = tcp.try_clone().unwrap();
        // A client that reads nothing before it has sent everything.
        let sending = std::thread::spawn(move || {
            writer.write_all(&vec![b'x'; length]).unwrap();
        });
        expect(&mut far, &[b'x'; 1000]);
        kill(&mut rig, link, far, death);
        sending.join().unwrap();
        assert_try_again(&rest(&mut tcp));
    }
}

#[test]
fn half_a_head_gets_its_answer_when_it_is_whole() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let mut tcp = rig.connect();
        let (one, other) = REQUEST.split_at(20);
        tcp.write_all(one).unwrap();
        let mut far = accepted(&link);
        expect(&mut far, one);
        kill(&mut rig, link, far, death);
        tcp.set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let early = tcp.read(&mut [0; 1]).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::WouldBlock, "{death:?}");
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(other).unwrap();
        assert_try_again(&rest(&mut tcp));
    }
}

#[test]
fn a_head_request_is_refused_without_a_body() {
    let (mut rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(b"HEAD / HTTP/1.1\r\n\r\n").unwrap();
    let far = accepted(&link);
    kill(&mut rig, link, far, Death::Closed);
    let answer = rest(&mut tcp);
    assert!(answer.starts_with(b"HTTP/1.1 503 "));
    assert!(answer.ends_with(b"\r\n\r\n"));
}

#[test]
fn half_an_answer_ends_in_a_reset() {
    let parts: [&[u8]; 4] = [
        b"HT",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhal\r\n",
    ];
    for death in DEATHS {
        for part in parts {
            let (mut rig, link) = Rig::new();
            let mut tcp = rig.connect();
            tcp.write_all(REQUEST).unwrap();
            let mut far = accepted(&link);
            expect(&mut far, REQUEST);
            far.write_all(part).unwrap();
            expect(&mut tcp, part);
            kill(&mut rig, link, far, death);
            assert_reset(&mut tcp);
        }
    }
}

/// Nobody can reset a unix socket; what matters is that nothing is added that looks like an end.
#[test]
fn half_an_answer_by_socket_ends_there() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let mut unix = rig.connect_unix();
        unix.write_all(REQUEST).unwrap();
        let mut far = accepted(&link);
        expect(&mut far, REQUEST);
        let part = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal";
        far.write_all(part).unwrap();
        expect(&mut unix, part);
        kill(&mut rig, link, far, death);
        let mut rest = Vec::new();
        let end = unix.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{end:?}");
    }
}

#[test]
fn an_idle_connection_is_closed() {
    for death in DEATHS {
        let (mut rig, link) = Rig::new();
        let mut tcp = rig.connect();
        tcp.write_all(REQUEST).unwrap();
        let mut far = accepted(&link);
        expect(&mut far, REQUEST);
        far.write_all(ANSWER).unwrap();
        expect(&mut tcp, ANSWER);
        kill(&mut rig, link, far, death);
        assert_eq!(rest(&mut tcp), b"", "{death:?}");
    }
}

/// The kernel closes the sockets of a killed process in order; a client must not take that for the
/// end of its answer.
#[test]
fn a_killed_forwarder_resets_half_an_answer() {
    let (rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    let part = b"HTTP/1.1 200 OK\r\n\r\nuntil the end, which";
    far.write_all(part).unwrap();
    expect(&mut tcp, part);
    signal(rig.forwarder.pid(), Signal::KILL);
    assert_reset(&mut tcp);
}

#[test]
fn the_far_end_sees_that_a_client_left() {
    let (rig, link) = Rig::new();
    let mut tcp = rig.connect();
    tcp.write_all(REQUEST).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, REQUEST);
    far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal")
        .unwrap();
    drop(tcp);
    let deadline = Instant::now() + PATIENCE;
    // A relay can know it only by what it cannot pass on.
    while far.write_all(b"x").is_ok() {
        assert!(Instant::now() < deadline, "it never learned");
    }
}

#[test]
fn an_early_answer_passes_while_the_body_is_thrown_away() {
    let (rig, link) = Rig::new();
    let mut tcp: TcpStream = rig.connect();
    let length = 8 * 1024 * 1024;
    let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    tcp.write_all(head.as_bytes()).unwrap();
    let mut far = accepted(&link);
    expect(&mut far, head.as_bytes());
    far.write_all(ANSWER).unwrap();
    drop(far);
    let mut writer = tcp.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&vec![b'x'; length]));
    assert_eq!(rest(&mut tcp), ANSWER);
    sending.join().unwrap().unwrap();
}
