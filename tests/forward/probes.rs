//! Asking whether the whole chain works.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use labproxy::remote::forward::{ProbeError, probe};

use super::rig::{LONG, PATIENCE, Rig, accepted};

#[test]
fn any_answer_of_the_proxy_shows_that_the_way_is_open() {
    let (rig, link) = Rig::new();
    // Asked past the forwarder.
    let direct = UnixListener::bind(rig.path("direct.sock")).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for link in [&link, &direct] {
                let mut far = accepted(link);
                let mut head = [0; 4096];
                let length = far.read(&mut head).unwrap();
                assert!(head[..length].starts_with(b"HEAD /api/hello HTTP/1.1\r\n"));
                far.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 9\r\n\r\n")
                    .unwrap();
            }
        });
        let passed = rig.forwarder.prober().probe(PATIENCE).unwrap();
        assert_eq!(passed.status, 401);
        let passed = probe::through_socket(&rig.path("direct.sock"), PATIENCE).unwrap();
        assert_eq!(passed.status, 401);
    });
}

#[test]
fn a_frozen_link_is_told_by_its_silence() {
    let (rig, _link) = Rig::new();
    let limit = Duration::from_millis(200);
    let failed = rig.forwarder.prober().probe(limit);
    assert!(matches!(failed, Err(ProbeError::Silent(_))), "{failed:?}");
}

#[test]
fn the_forwarders_own_answer_is_no_way_through() {
    let rig = Rig::without_link(Duration::ZERO);
    let failed = rig.forwarder.prober().probe(PATIENCE);
    assert!(matches!(failed, Err(ProbeError::NoLink)), "{failed:?}");
}

/// ssh takes the connection and closes it: the controller's end is gone.
#[test]
fn a_link_that_closes_is_no_way_through() {
    let (rig, link) = Rig::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                drop(accepted(&link));
            }
        });
        let failed = rig.forwarder.prober().probe(PATIENCE);
        assert!(matches!(failed, Err(ProbeError::NoLink)), "{failed:?}");
        let failed = probe::through_socket(&rig.path("proxy.sock"), PATIENCE);
        assert!(
            matches!(failed, Err(ProbeError::Closed | ProbeError::Broken(_))),
            "{failed:?}"
        );
    });
}

#[test]
fn what_does_not_speak_http_is_no_proxy() {
    let (mut rig, link) = Rig::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut far = accepted(&link);
            far.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").unwrap();
        });
        let failed = probe::through_socket(&rig.path("proxy.sock"), PATIENCE);
        assert!(matches!(failed, Err(ProbeError::NotHttp)), "{failed:?}");
    });
    rig.forwarder.down(LONG);
    drop(link);
    let failed = probe::through_socket(&rig.path("proxy.sock"), PATIENCE);
    assert!(matches!(failed, Err(ProbeError::Connect(_))), "{failed:?}");
}
