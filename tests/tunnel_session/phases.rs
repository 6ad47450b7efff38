//! The steps of a start: each is named when it is slow or fails.

use std::sync::atomic::Ordering;
use std::time::Duration;

use labproxy::tunnel::error::TunnelError;
use labproxy::tunnel::phase::Phase;

use crate::rig::{LOOK_EVERY, Rig};

const LEASE: Duration = Duration::from_secs(5);

/// A forward behind which nobody answers is named; no program was started.
#[tokio::test(flavor = "multi_thread")]
async fn tb07_a_slow_phase_is_named() {
    let rig = Rig::new();
    rig.pipes.is_deaf.store(true, Ordering::SeqCst);
    let error = rig.try_open(LEASE).await.expect_err("nothing answers");
    let is_named = match &*error {
        TunnelError::Slow { phase, .. } => *phase == Phase::Forward,
        TunnelError::NotForwarding { .. } => true,
        _ => false,
    };
    assert!(is_named, "{error:?}");
}

/// Through a link whose forward is of no use everything on the host is still ended and confirmed,
/// whether the end was asked for before that was known or after.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_needs_no_forward() {
    for is_known in [false, true] {
        let rig = Rig::new();
        rig.pipes.is_deaf.store(true, Ordering::SeqCst);
        let (tunnel, mut opening) = rig.begin(LEASE);
        if is_known {
            opening.ready().await.expect_err("nothing answers");
        } else {
            let supervisor = rig.session().join("supervisor");
            while !supervisor.exists() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        let report = tunnel.end(Duration::from_secs(1)).await.unwrap().unwrap();
        assert!(report.left.is_empty(), "{report:?}");
    }
}

/// Without a connection the first try is the last, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_link_that_fails_is_not_tried_again() {
    let rig = Rig::new();
    rig.pipes.refused.store(true, Ordering::SeqCst);
    let error = rig.try_open(LEASE).await.expect_err("it is refused");
    let TunnelError::Link(link) = &*error else {
        panic!("{error:?}");
    };
    assert_eq!(link.failure.message(), "the test refuses links");
}
