//! Deltas of large contents: what moved does not come again, and what they say is proven.

use std::fs;

use labproxy::mirror::peer::Rule;
use labproxy::mirror::pull::{Pulled, Workspace};
use labproxy::wire::delta::DELTA_MAX;
use labproxy::wire::mirror::{FromMirror, ToMirror};

use super::host::{Host, Say};
use super::world::{World, instead, rule};

/// Bytes without a period, in more than one segment.
fn large() -> Vec<u8> {
    let words = 0_u32..2_500_000;
    words
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

fn host(bytes: &[u8]) -> Host {
    Host::of(&[("a", b"first"), ("d/large", bytes)])
}

fn is_delta(order: &ToMirror<'_>) -> bool {
    matches!(order, ToMirror::Delta { .. })
}

fn deltas(world: &World) -> usize {
    let heard = world.heard.lock().unwrap();
    heard.iter().filter(|order| is_delta(order)).count()
}

fn world(bytes: &[u8]) -> World {
    let world = World::fresh();
    world.pull(&host(bytes), &mut |_, _| {}).unwrap();
    assert_eq!(deltas(&world), 0);
    world
}

#[track_caller]
fn is_brought(world: &World, pulled: &Pulled, bytes: &[u8]) {
    assert!(matches!(pulled.workspace, Workspace::Brought { .. }));
    assert!(fs::read(world.local().join("d/large")).unwrap() == bytes);
    assert_eq!(world.generations() as u64, pulled.generation.number.0);
}

/// Inserted, taken out, at the beginning and in the middle, together with edits: only what is new comes.
#[test]
fn what_moved_in_a_large_file_does_not_come_again() {
    let first = large();
    let middle = first.len() / 2 + 77;
    let insert = |at: usize, more: &[u8]| {
        let mut bytes = first.clone();
        bytes.splice(at..at, more.iter().copied());
        bytes
    };
    let mut edited = insert(middle, b"in the middle");
    edited[100] ^= 1;
    edited.drain(9_000_000..9_100_000);
    let cases = [
        insert(0, b"at the beginning"),
        insert(0, &vec![9; 300_000]),
        insert(middle, b"in the middle"),
        first[5..].to_vec(),
        [&first[..1_000_000], &first[1_400_000..]].concat(),
        edited,
    ];
    for new in cases {
        let world = world(&first);
        let pulled = world.pull(&host(&new), &mut |_, _| {}).unwrap();
        is_brought(&world, &pulled, &new);
        let came = pulled.received.bytes;
        assert!(came < 600_000, "{came} bytes came");
        assert!(deltas(&world) > 0);
    }
}

/// A content that has nothing in common is asked for once by its delta, and then comes as it is; in-place
/// edits are not asked for so at all.
#[test]
fn what_is_new_comes_as_it_is() {
    let first = large();
    let other: Vec<u8> = first
        .iter()
        .map(|byte| byte.wrapping_mul(7) ^ 0x55)
        .collect();
    let world = world(&first);
    let pulled = world.pull(&host(&other), &mut |_, _| {}).unwrap();
    is_brought(&world, &pulled, &other);
    assert_eq!(pulled.received.bytes, other.len() as u64);
    assert_eq!(deltas(&world), 1);
    let mut edited = other.clone();
    for at in (0..edited.len()).step_by(1 << 20) {
        edited[at] ^= 1;
    }
    let pulled = world.pull(&host(&edited), &mut |_, _| {}).unwrap();
    is_brought(&world, &pulled, &edited);
    assert_eq!(deltas(&world), 0);
    assert_eq!(pulled.received.bytes, 10 << 16);
}

/// M-14: a delta that makes other bytes, or none, or is none, is not used: the bytes come as they
/// are, and what was pulled is what the other end's tree says.
#[test]
fn m14_a_delta_that_lies_is_not_used() {
    let first = large();
    let new = [b"at the beginning".as_slice(), &first].concat();
    let lies: [fn(Vec<u8>) -> Vec<u8>; 6] = [
        |_| Vec::new(),
        |_| vec![0xff; 1_000],
        |mut delta| {
            // A byte of what is new.
            let at = delta.len() / 2;
            delta[at] ^= 1;
            delta
        },
        |mut delta| {
            delta.pop();
            delta
        },
        |mut delta| {
            delta.push(0);
            delta
        },
        // Copies without end: the library's own form of 4 GiB from the start.
        |delta| [&delta[..4], &[0x4f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]].concat(),
    ];
    for lie in lies {
        let world = world(&first);
        let mut told = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
            if is_delta(order)
                && let Some(Say::Message(FromMirror::Delta { delta })) = answers.pop()
            {
                let delta = lie(delta.into_owned()).into();
                answers.push(Say::Message(FromMirror::Delta { delta }));
            }
        };
        let pulled = world.pull(&host(&new), &mut told).unwrap();
        is_brought(&world, &pulled, &new);
        assert_eq!(deltas(&world), 1);
        assert!(pulled.received.bytes >= first.len() as u64);
    }
    for bad in [FromMirror::Gone { wish: 1 }, FromMirror::Done] {
        let world = world(&first);
        let mut lie = instead(is_delta, || vec![Say::Message(bad.clone())]);
        let broken = rule(world.refuses(&host(&new), &mut lie));
        assert!(matches!(broken, Rule::Index | Rule::Order), "{broken:?}");
    }
    let world = world(&first);
    let long = vec![0; DELTA_MAX];
    let mut lie = instead(is_delta, || {
        let delta = long.clone().into();
        vec![Say::Message(FromMirror::Delta { delta })]
    });
    let pulled = world.pull(&host(&new), &mut lie).unwrap();
    is_brought(&world, &pulled, &new);
}
