//! Looks at large files: a hint that saves time, and decides nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use labproxy::mirror::peer::Rule;
use labproxy::mirror::pull::{Pulled, Workspace};
use labproxy::wire::mirror::{FromMirror, Glimpse, ToMirror};

use super::finished::finished;
use super::host::{Host, Say, path};
use super::world::{World, instead, rule};

/// Bytes from which on a file is looked at, and some more.
const LARGE: usize = (16 << 20) + 70_001;
const GROUP: usize = 64 << 10;

/// Bytes without a period.
fn large() -> Vec<u8> {
    let words = 0_u32..(LARGE / 4 + 1) as u32;
    let mut bytes: Vec<u8> = words
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect();
    bytes.truncate(LARGE);
    bytes
}

fn edited(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[3 * GROUP + 5] ^= 1;
    bytes[200 * GROUP] ^= 1;
    bytes
}

fn host(bytes: &[u8]) -> Host {
    Host::of(&[("a", b"first"), ("d/large", bytes)])
}

/// A mirror that has pulled a large file, and looked at it.
fn world(bytes: &[u8]) -> World {
    let world = World::fresh();
    for _ in 0..2 {
        pull(&world, bytes);
    }
    world
}

fn pull(world: &World, bytes: &[u8]) -> Pulled {
    world.pull(&host(bytes), &mut |_, _| {}).unwrap()
}

#[track_caller]
fn is_brought(world: &World, pulled: &Pulled, bytes: &[u8]) {
    let Workspace::Brought { kept, .. } = &pulled.workspace else {
        panic!("{:?}", pulled.workspace);
    };
    assert!(kept.is_empty(), "{kept:?}");
    assert!(fs::read(at(world)).unwrap() == bytes);
}

fn at(world: &World) -> std::path::PathBuf {
    world.local().join("d/large")
}

fn looks(world: &World) -> usize {
    let heard = world.heard.lock().unwrap();
    let glances = heard.iter().filter(|order| is_glance(order));
    glances.count()
}

fn is_glance(order: &ToMirror<'_>) -> bool {
    matches!(order, ToMirror::Glance { .. })
}

/// The first pull does not look, the next ones do once; what changed arrives, whatever became of the
/// file, and both ends agree.
#[test]
fn a_large_file_that_looks_changed_is_pulled() {
    let first = large();
    let world = World::fresh();
    pull(&world, &first);
    assert_eq!(looks(&world), 0);
    pull(&world, &first);
    assert_eq!(looks(&world), 1);
    let longer = [edited(&first).as_slice(), &vec![7; 3 * GROUP]].concat();
    let shorter = &first[..LARGE - 20 * GROUP];
    for new in [&edited(&first), &longer, &first, shorter, b"small", &first] {
        finished(&at(&world));
        is_brought(&world, &pull(&world, new), new);
        let again = pull(&world, new);
        assert!(!again.is_new);
        is_brought(&world, &again, new);
    }
}

/// An edit made here is found whatever it is, nothing of it is lost, and the pull goes on when it
/// is taken back.
#[test]
fn an_edit_of_a_large_file_here_is_not_lost() {
    type Edit = fn(&Path);
    let first = large();
    let edits: [(&str, Edit); 7] = [
        ("a byte", |at| {
            let file = fs::File::options().write(true).open(at).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"!", 9_000_000).unwrap();
            file.set_modified(before).unwrap();
        }),
        ("an end", |at| {
            let file = fs::File::options().write(true).open(at).unwrap();
            file.write_all_at(b"!", LARGE as u64).unwrap();
        }),
        ("a cut", |at| {
            let file = fs::File::options().write(true).open(at).unwrap();
            file.set_len(100_000).unwrap();
        }),
        ("a mode", |at| {
            fs::set_permissions(at, Permissions::from_mode(0o700)).unwrap();
        }),
        ("gone", |at| fs::remove_file(at).unwrap()),
        ("a link", |at| {
            fs::remove_file(at).unwrap();
            symlink("../../beside/precious", at).unwrap();
        }),
        ("a directory", |at| {
            fs::remove_file(at).unwrap();
            fs::create_dir(at).unwrap();
        }),
    ];
    let (mut old, mut new) = (first.clone(), edited(&first));
    let world = world(&old);
    for (what, edit) in edits {
        edit(&at(&world));
        if at(&world).symlink_metadata().is_ok() {
            finished(&at(&world));
        }
        let before = world.outside();
        let pulled = pull(&world, &new);
        let Workspace::Edited(edited) = &pulled.workspace else {
            panic!("{what}: {:?}", pulled.workspace);
        };
        assert_eq!(*edited, [path("d/large")], "{what}");
        assert!(world.outside() == before, "{what}");
        let _gone = fs::remove_file(at(&world));
        let _gone = fs::remove_dir(at(&world));
        fs::write(at(&world), &old).unwrap();
        is_brought(&world, &pull(&world, &new), &new);
        std::mem::swap(&mut old, &mut new);
    }
}

/// M-14: whatever a host says of how its files look, the workspace becomes what its tree says, and an
/// edit is found.
#[test]
fn m14_a_look_that_lies_changes_nothing() {
    let first = large();
    let new = edited(&first);
    let seen = |number| {
        Some(Glimpse {
            inode: number,
            size: number,
            modified: (i64::MIN, u64::MAX),
            changed: (i64::MAX, 0),
        })
    };
    let world = world(&first);
    let mut number = 0;
    let mut any = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if is_glance(order) {
            number += 1;
            // Another each time, nothing, or the same as before.
            let seen = [seen(number), None, seen(1)][number as usize % 3];
            let seen = vec![seen];
            *answers = vec![Say::Message(FromMirror::Glanced { seen })];
        }
    };
    for bytes in [&first, &first, &new, &new, &first, &first, &new, &first] {
        finished(&at(&world));
        let pulled = world.pull(&host(bytes), &mut any).unwrap();
        is_brought(&world, &pulled, bytes);
    }
    for seen in [vec![], vec![None, None], vec![seen(1), seen(2)]] {
        let world = self::world(&first);
        let mut lie = instead(is_glance, || {
            let seen = seen.clone();
            vec![Say::Message(FromMirror::Glanced { seen })]
        });
        assert_eq!(rule(world.refuses(&host(&new), &mut lie)), Rule::Index);
    }
}
