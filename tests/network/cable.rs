//! The network itself does what the tests on it rely on.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::netpair::{FAR, NetPair, is_possible};
use crate::rig::PATIENCE;

/// A connection from the near to the far machine, both ends.
fn connected(net: &NetPair) -> (TcpStream, TcpStream, Duration) {
    let listener = net.in_far(|| TcpListener::bind((FAR, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let (near, took) = net.in_near(|| {
        let began = Instant::now();
        let near = TcpStream::connect(address).unwrap();
        (near, began.elapsed())
    });
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    (near, far, took)
}

#[test]
fn a_cut_cable_passes_nothing_and_a_restored_one_everything() {
    if !is_possible() {
        return;
    }
    let net = NetPair::joined();
    let (mut near, mut far, _) = connected(&net);
    near.write_all(b"one").unwrap();
    let mut read = [0; 3];
    far.read_exact(&mut read).unwrap();
    net.cut();
    near.write_all(b"two").unwrap();
    far.set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let nothing = far.read(&mut read).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    net.restore();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"two");
}

#[test]
fn a_long_way_takes_its_time() {
    if !is_possible() {
        return;
    }
    let net = NetPair::delayed(Duration::from_millis(40));
    let (_near, _far, took) = connected(&net);
    assert!(took >= Duration::from_millis(80), "{took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}
