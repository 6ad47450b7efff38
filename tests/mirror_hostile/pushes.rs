//! Lies to a push: what is said to be there, and what is done with what was sent.

use std::fs;

use labproxy::mirror::error::MirrorError;
use labproxy::mirror::peer::{PeerError, Rule};
use labproxy::mirror::push::{PushOptions, Pushed};
use labproxy::wire::mirror::{FromMirror, Ran, ToMirror};

use super::host::{Host, Lie, Say};
use super::world::{World, instead, rule};

fn push(world: &World, host: &Host, lie: &mut Lie<'_>) -> Result<Pushed, MirrorError> {
    let options = PushOptions::default();
    world.with(host, lie, |pair, ends| pair.push(ends, &options))
}

/// M-29: a host that says that it has all contents, that it did all steps, and lists what was there
/// before, is not believed; the next push knows that nothing was agreed.
#[test]
fn m29_a_push_that_did_nothing_is_found_out() {
    let world = World::new();
    fs::write(world.local().join("n"), b"edited here").unwrap();
    let before = world.outside();
    let mut lie = |order: &ToMirror<'_>, answers: &mut Vec<Say>| match order {
        ToMirror::Stage { contents } => {
            let have = (0..contents.len() as u32).collect();
            *answers = vec![Say::Message(FromMirror::Staged { have })];
        }
        ToMirror::Run => {
            let ran = Ran {
                done: u64::MAX,
                ..Ran::default()
            };
            *answers = vec![Say::Message(FromMirror::Ran(ran))];
        }
        _ => {}
    };
    for _ in 0..2 {
        let error = push(&world, &World::honest(), &mut lie).unwrap_err();
        assert!(matches!(error, MirrorError::NotEqual { count: 1, .. }));
        assert_eq!((world.outside(), world.generations()), (before.clone(), 1));
    }
}

/// M-22, M-25, M-14: numbers of contents that were not offered, silence, and answers in the wrong
/// place end a push; the workspace is not touched by any.
#[test]
fn m22_a_push_believes_no_number() {
    let world = World::new();
    fs::write(world.local().join("n"), b"edited here").unwrap();
    let before = world.outside();
    let is_stage = |order: &ToMirror<'_>| matches!(order, ToMirror::Stage { .. });
    for have in [vec![7, 3, u32::MAX], vec![0; 100_000]] {
        let mut lie = instead(is_stage, || {
            vec![Say::Message(FromMirror::Staged { have: have.clone() })]
        });
        let error = push(&world, &World::honest(), &mut lie).unwrap_err();
        assert!(matches!(error, MirrorError::NotEqual { .. }));
    }
    let places: [fn(&ToMirror<'_>) -> bool; 3] = [
        |order| matches!(order, ToMirror::Stage { .. }),
        |order| matches!(order, ToMirror::StageEnd),
        |order| matches!(order, ToMirror::Run),
    ];
    for place in places {
        let mut lie = instead(place, || vec![Say::Message(FromMirror::Taken)]);
        let error = push(&world, &World::honest(), &mut lie).unwrap_err();
        assert_eq!(rule(error), Rule::Order);
        let mut lie = instead(place, || vec![Say::Silence]);
        let error = push(&world, &World::honest(), &mut lie).unwrap_err();
        assert!(matches!(error, MirrorError::Peer(PeerError::Silent)));
        let mut lie = instead(place, || vec![Say::End]);
        let error = push(&world, &World::honest(), &mut lie).unwrap_err();
        assert!(matches!(error, MirrorError::Peer(PeerError::Ended)));
    }
    assert_eq!((world.outside(), world.generations()), (before, 1));
}

/// T-31: a push asks for the listing of what it has itself, when the host names it: it may not be
/// allowed to go there, and not to ask would tell that it is here.
#[test]
fn t31_a_push_tells_nothing_of_what_is_here() {
    let world = World::new();
    fs::create_dir(world.local().join("private")).unwrap();
    fs::write(world.local().join("private/key"), b"4567").unwrap();
    let host = Host::of(&[("a", b"first"), ("guess/key", b"4567")]);
    let error = push(&world, &host, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, MirrorError::FarChanged { .. }));
    let listed = world.heard.lock().unwrap().iter().any(|order| {
        matches!(order, ToMirror::List { directories }
            if directories.iter().any(|path| path.as_bytes() == b"guess"))
    });
    assert!(listed);
}
