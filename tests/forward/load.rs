//! Many connections, large ones and slow ones: within bounds.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use labproxy::remote::forward::CONNECTIONS_MAX;

use super::rig::{ANSWER, LONG, REQUEST, Rig, accepted, assert_try_again, expect, rest};

const MIB: usize = 1024 * 1024;

/// The most memory that the forwarder ever had resident, KiB.
fn most_memory(rig: &Rig) -> u64 {
    let path = format!("/proc/{}/status", rig.forwarder.pid());
    let status = fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// 1 MiB whose every 4 KiB say where they stand, so that nothing can be lost, swapped or repeated.
fn block(which: u64) -> Vec<u8> {
    let mut block = vec![b'x'; MIB];
    for (at, page) in block.chunks_exact_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(which << 8 | at as u64).to_le_bytes());
    }
    block
}

fn send_blocks(mut to: impl Write, count: u64) {
    for which in 0..count {
        to.write_all(&block(which)).unwrap();
    }
}

fn expect_blocks(mut from: impl Read, count: u64) {
    let mut read = vec![0; MIB];
    for which in 0..count {
        from.read_exact(&mut read).unwrap();
        assert!(read == block(which), "MiB {which} is not what was sent");
    }
}

#[test]
fn as_many_connections_as_the_proxy_takes_and_the_next_waits() {
    let (rig, link) = Rig::new();
    let mut open: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|at| {
            let mut near = rig.connect();
            let request = format!("GET /{at} HTTP/1.1\r\n\r\n");
            near.write_all(request.as_bytes()).unwrap();
            let mut far = accepted(&link);
            expect(&mut far, request.as_bytes());
            (near, far)
        })
        .collect();
    let mut next = rig.connect();
    next.write_all(REQUEST).unwrap();
    // Each still works, while the next one waits.
    for (near, far) in &mut open {
        far.write_all(ANSWER).unwrap();
        expect(near, ANSWER);
    }
    link.set_nonblocking(true).unwrap();
    assert_eq!(link.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    link.set_nonblocking(false).unwrap();
    open.pop();
    expect(&mut accepted(&link), REQUEST);
    let memory = most_memory(&rig);
    assert!(memory < 8 * 1024, "{memory} KiB for idle connections");
}

/// Both ways at once, with memory that does not grow.
#[test]
fn a_gibibyte_each_way_passes_whole() {
    const COUNT: u64 = 1024;
    let (rig, link) = Rig::new();
    let near = &rig.connect();
    // Not HTTP: nothing says where it ends.
    (&*near).write_all(b"\n\n").unwrap();
    let far = &accepted(&link);
    expect(far, b"\n\n");
    let both_ways = |count| {
        thread::scope(|scope| {
            scope.spawn(move || send_blocks(near, count));
            scope.spawn(move || expect_blocks(far, count));
            scope.spawn(move || send_blocks(far, count));
            expect_blocks(near, count);
        });
    };
    both_ways(8);
    let before = most_memory(&rig);
    both_ways(COUNT);
    let after = most_memory(&rig);
    assert!(after < before + 1024, "{before} KiB, then {after}");
}

/// Most of it is passed on by the kernel; where it ends is known all the same.
#[test]
fn the_request_after_a_large_one_is_told_to_try_again() {
    const COUNT: u64 = 5;
    let (mut rig, link) = Rig::new();
    let near = rig.connect();
    let length = COUNT * MIB as u64 + 7;
    let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    thread::scope(|scope| {
        scope.spawn(|| {
            (&near).write_all(head.as_bytes()).unwrap();
            send_blocks(&near, COUNT);
            (&near).write_all(b"the end").unwrap();
        });
        let mut far = accepted(&link);
        expect(&mut far, head.as_bytes());
        expect_blocks(&far, COUNT);
        expect(&mut far, b"the end");
        far.write_all(ANSWER).unwrap();
        expect(&near, ANSWER);
        (&near).write_all(REQUEST).unwrap();
        expect(&mut far, REQUEST);
        rig.forwarder.down(LONG);
        assert_try_again(&rest(&mut near.try_clone().unwrap()));
    });
}

fn serve_one(link: &UnixListener) {
    let mut far = accepted(link);
    expect(&mut far, REQUEST);
    far.write_all(ANSWER).unwrap();
}

#[test]
fn who_reads_slowly_holds_up_nobody_and_takes_no_memory() {
    const SLOW: usize = 32;
    let (rig, link) = Rig::new();
    let slow: Vec<_> = (0..SLOW)
        .map(|_| {
            let near = rig.connect();
            (&near).write_all(b"\n\n").unwrap();
            let far = accepted(&link);
            expect(&far, b"\n\n");
            (near, far)
        })
        .collect();
    let before = most_memory(&rig);
    thread::scope(|scope| {
        for (near, far) in &slow {
            // Neither end reads until both are stuck in writing.
            scope.spawn(move || send_blocks(near, 16));
            scope.spawn(move || send_blocks(far, 16));
        }
        for _ in 0..100 {
            let mut quick = rig.connect();
            quick.write_all(REQUEST).unwrap();
            serve_one(&link);
            expect(&mut quick, ANSWER);
        }
        let after = most_memory(&rig);
        let each = (after - before) / SLOW as u64;
        assert!(each <= 2 * 64 + 16, "{each} KiB for a slow connection");
        for (near, far) in &slow {
            scope.spawn(move || expect_blocks(near, 16));
            scope.spawn(move || expect_blocks(far, 16));
        }
    });
}
