//! Lies about contents: parts, groups, and what is said to be unchanged.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use labproxy::mirror::error::MirrorError;
use labproxy::mirror::peer::Rule;
use labproxy::mirror::pull::{PullOptions, Workspace};
use labproxy::tree::content::{ContentId, GROUP};
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::Entry;
use labproxy::wire::mirror::{FromMirror, Pieces, ToMirror};

use super::host::{Host, Say, directory, file, pieces, scanned};
use super::world::{World, instead, rule};

fn changed() -> Host {
    Host::of(&[
        ("a", b"first"),
        ("n", b"new one"),
        ("o", b"other"),
        ("z", b""),
    ])
}

fn is_fetch(order: &ToMirror<'_>) -> bool {
    matches!(order, ToMirror::Fetch { .. })
}

fn is_groups(order: &ToMirror<'_>) -> bool {
    matches!(order, ToMirror::Groups { .. })
}

fn say(parts: &[(u32, u32)], length: u32, packed: bool, bytes: &[u8]) -> FromMirror<'static> {
    FromMirror::Pieces(Pieces {
        parts: parts.to_vec(),
        length,
        packed,
        bytes: Cow::Owned(bytes.to_vec()),
    })
}

/// M-22: numbers of contents that were not asked for, or not now.
#[test]
fn m22_numbers_are_of_what_was_asked() {
    let world = World::new();
    for wish in [1, 2, 3, u32::MAX] {
        let mut lie = instead(is_fetch, || vec![Say::Message(FromMirror::Gone { wish })]);
        assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Index);
    }
    for index in [1, 2, 3, u32::MAX] {
        let mut lie = instead(is_fetch, || vec![Say::Message(pieces(index, b"new one"))]);
        assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Parts);
    }
    // After the last one nothing more is asked for.
    let mut lie = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if is_fetch(order) {
            answers.pop();
            answers.push(Say::Message(pieces(2, b"")));
        }
    };
    assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Parts);
    // Before the first: contents without an order.
    let mut lie = instead(
        |order| matches!(order, ToMirror::List { .. }),
        || vec![Say::Message(pieces(0, b"x"))],
    );
    assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Order);
}

/// M-23, M-14: parts that are longer, shorter or other than what was asked for, lengths that do not
/// add up, frames that unpack to more than they say, and nothing again and again.
#[test]
fn m23_parts_are_what_was_asked_for() {
    let world = World::new();
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let done = || FromMirror::Done;
    for lie in [
        vec![pieces(0, b"new one and more")],
        vec![pieces(0, b"new one"), pieces(0, b"again")],
        vec![pieces(0, b"new "), pieces(0, b"one and more")],
        vec![pieces(0, b"")],
        vec![pieces(0, b"new"), done()],
        vec![pieces(0, b"new"), pieces(1, b"other")],
        vec![done()],
        vec![say(&[(0, 7)], 8, false, b"new one")],
        vec![say(&[(0, 7)], 7, false, b"new one and more")],
        vec![say(&[(0, u32::MAX), (0, 8)], 7, false, b"new one")],
        vec![say(&[(0, 64 << 20)], 64 << 20, true, &bomb)],
        vec![say(&[(0, 7)], 7, true, &bomb)],
        vec![say(&[(0, 7)], 7, true, b"new one")],
    ] {
        let mut lie = instead(is_fetch, || lie.iter().cloned().map(Say::Message).collect());
        assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Parts);
    }
    for endless in [say(&[], 0, false, b""), say(&[], 0, true, b"")] {
        let mut lie = instead(is_fetch, || vec![Say::Forever(endless.clone())]);
        assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Endless);
    }
}

/// M-29: other bytes than the listing's hash says are not kept, and a host that has nothing of what
/// it lists is left after some rounds.
#[test]
fn m29_bytes_that_are_not_the_content_are_not_kept() {
    let world = World::new();
    let mut wrong = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if is_fetch(order) {
            answers[0] = Say::Message(pieces(0, b"NEW ONE"));
        }
    };
    let error = world.refuses(&changed(), &mut wrong);
    assert!(matches!(error, MirrorError::Changing(paths) if paths.len() == 1));
    let mut gone = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if let ToMirror::Fetch { wishes, .. } = order {
            let count = wishes.len() as u32;
            *answers = (0..count)
                .map(|wish| Say::Message(FromMirror::Gone { wish }))
                .chain([Say::Message(FromMirror::Done)])
                .collect();
        }
    };
    let error = world.refuses(&changed(), &mut gone);
    assert!(matches!(error, MirrorError::Changing(paths) if paths.len() == 2));
}

/// M-01, M-02: groups that are not the content's, in any number and any length.
#[test]
fn m01_m02_groups_merge_to_the_content_or_are_refused() {
    let world = World::new();
    let large = vec![7; 40 * GROUP as usize + 1];
    let host = Host::of(&[("a", b"first"), ("large", &large)]);
    let groups = |values: Vec<u8>, last: bool| FromMirror::Groups {
        values: Cow::Owned(values),
        last,
    };
    let wrong = [
        1,
        31,
        32,
        33,
        64,
        40 * 32,
        41 * 32,
        41 * 32 + 1,
        42 * 32,
        32 << 10,
    ];
    for length in wrong {
        let mut lie = instead(is_groups, || {
            vec![Say::Message(groups(vec![0; length], true))]
        });
        let broken = rule(world.refuses(&host, &mut lie));
        assert_eq!(broken, Rule::Groups, "{length}");
    }
    for endless in [0, 1, 32, 32 << 10] {
        let mut lie = instead(is_groups, || {
            vec![Say::Forever(groups(vec![0; endless], false))]
        });
        let broken = rule(world.refuses(&host, &mut lie));
        assert_eq!(broken, Rule::Groups, "{endless}");
    }
    // Who says that it has none sends the whole, which is proven as ever.
    let mut none = instead(is_groups, || vec![Say::Message(groups(Vec::new(), true))]);
    world.pull(&host, &mut none).unwrap();
    assert_eq!(fs::read(world.local().join("large")).unwrap(), large);
    let mut bent = large.clone();
    bent[5 * GROUP as usize] = 8;
    let host = Host::of(&[("a", b"first"), ("large", &bent)]);
    let mut torn = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if is_fetch(order) {
            answers[0] = Say::Message(pieces(0, &large[..GROUP as usize]));
        }
    };
    let error = world.pull(&host, &mut torn).unwrap_err();
    assert!(matches!(
        error,
        MirrorError::Changing(_) | MirrorError::Peer(_)
    ));
    assert_eq!(fs::read(world.local().join("large")).unwrap(), large);
    world.pull(&host, &mut |_, _| {}).unwrap();
    assert_eq!(fs::read(world.local().join("large")).unwrap(), bent);
}

/// M-29: a large file is written while it comes. Where its bytes are not its content, wherever in it and
/// in one round or in all, nothing of that ever has a name; what came right in the next round stands there.
#[test]
fn m29_a_large_file_that_came_wrong_never_gets_a_name() {
    let large: Vec<u8> = (0..=250).cycle().take((3 << 20) + 77).collect();
    let honest = World::honest();
    let files = [
        ("a", &b"first"[..]),
        ("d/b", b"second"),
        ("d/c", b"third"),
        ("large", &large),
    ];
    let host = Host::of(&files);
    for answer in [0, 5, 12] {
        let world = World::new();
        let before = world.outside();
        let mut always = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
            if is_fetch(order) {
                (0..answers.len()).for_each(|at| bend_at(answers, at));
            }
        };
        let error = world.pull(&host, &mut always).unwrap_err();
        assert!(matches!(error, MirrorError::Changing(_)), "{error}");
        assert_eq!(world.outside(), before);
        let mut lies = 2;
        let mut once = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
            if is_fetch(order) && lies > 0 {
                lies -= 1;
                bend_at(answers, answer);
            }
        };
        let world = World::new();
        world.pull(&host, &mut once).unwrap();
        assert!(fs::read(world.local().join("large")).unwrap() == large);
        assert_eq!(world.generations(), 2);
        world.pull(&honest, &mut |_, _| {}).unwrap();
        assert!(!world.local().join("large").exists());
    }
}

/// Changes a byte of what an answer holds.
fn bend_at(answers: &mut [Say], at: usize) {
    if let Some(Say::Message(FromMirror::Pieces(pieces))) = answers.get_mut(at) {
        pieces.bytes.to_mut()[0] ^= 1;
    }
}

/// M-29: who says that nothing has changed gets the last generation, no more: what of it is no
/// longer sound in the store is found and fetched, whatever the host says.
#[test]
fn m29_unchanged_is_no_proof_of_what_is_stored() {
    let world = World::new();
    let unchanged = World::honest();
    // In truth another tree is there, and the hash of the old one is told.
    let mut lie = instead(
        |order| matches!(order, ToMirror::Scan),
        || vec![Say::Message(scanned(&World::honest().tree))],
    );
    let pulled = world.pull(&changed(), &mut lie).unwrap();
    assert!(!pulled.is_new);
    assert_eq!(pulled.generation.tree, unchanged.tree.hash());
    assert_eq!(world.generations(), 1);
    // A store that was damaged is not excused by it.
    spoil(&world);
    let (found, pulled) = world
        .with(&unchanged, &mut |_, _| {}, |pair, ends| {
            let (_, tree) = pair
                .store()
                .load(labproxy::mirror::store::GenerationNumber(1))?;
            let found = pair.store().verify(&tree).len();
            // Nor is it made good from here, where nothing is left.
            fs::remove_file(world.local().join("a")).unwrap();
            fs::remove_dir_all(world.local().join("d")).unwrap();
            Ok((found, pair.pull(ends, PullOptions::default())?))
        })
        .unwrap();
    assert!(found > 0);
    assert!(!pulled.is_new);
    assert_eq!(pulled.received.contents, found as u64);
    assert_eq!(world.generations(), 1);
}

/// Turns a bit of the store's packs around behind its back.
fn spoil(world: &World) {
    let state = world.local().with_file_name("state");
    let mut spoiled = 0;
    walk(&state, &mut |path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("pack") && !name.ends_with("index") {
            let mut bytes = fs::read(path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
            spoiled += 1;
        }
    });
    assert!(spoiled > 0);
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, visit);
        } else {
            visit(&path);
        }
    }
}

/// T-31: what is here and was never shared is asked for like anything else, so that a host that
/// lists its hash learns nothing: neither of a file nor of a directory.
#[test]
fn t31_a_foreign_hash_is_requested_in_full() {
    let world = World::new();
    fs::write(world.local().join("token"), b"0123").unwrap();
    fs::create_dir(world.local().join("private")).unwrap();
    fs::write(world.local().join("private/key"), b"4567").unwrap();
    let Host {
        tree: private,
        contents: mut guessed,
    } = Host::of(&[("key", b"4567")]);
    guessed.insert(ContentId::of(b"0123"), b"0123".to_vec());
    let honest = World::honest();
    let mut entries: Vec<_> = honest.tree.entries().to_vec();
    entries.push((super::host::name("guess"), Entry::Directory(private)));
    entries.push((super::host::name("probe"), file(4, ContentId::of(b"0123"))));
    let tree = Directory::new(entries, honest.tree.seen()).unwrap();
    let host = Host {
        tree,
        contents: guessed,
    };
    let pulled = world.pull(&host, &mut |_, _| {}).unwrap();
    assert!(matches!(pulled.workspace, Workspace::Edited(_)));
    assert_eq!(asked(&world), (true, vec!["guess/key", "probe"]));
    // What the host itself sent is not asked for again, wherever it stands.
    let again = host.tree.get(b"guess").unwrap().clone();
    let moved = Host {
        tree: directory(vec![("moved", again)]),
        contents: host.contents,
    };
    world.pull(&moved, &mut |_, _| {}).unwrap();
    assert_eq!(asked(&world), (false, Vec::new()));
}

/// Whether a directory below the root was listed, and which files were fetched.
fn asked(world: &World) -> (bool, Vec<&'static str>) {
    let (mut listed, mut fetched) = (false, Vec::new());
    for order in world.heard.lock().unwrap().iter() {
        match order {
            ToMirror::List { directories } => {
                listed |= directories.iter().any(|path| path.as_bytes() == b"guess");
            }
            ToMirror::Fetch { wishes, .. } => {
                for wish in wishes {
                    for known in ["guess/key", "probe"] {
                        if wish.path.as_bytes() == known.as_bytes() {
                            assert_eq!((wish.offset, wish.length), (0, 4));
                            fetched.push(known);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    fetched.sort_unstable();
    (listed, fetched)
}

/// M-04: the host names no file of this machine: what is asked for is of its own tree, and the older
/// version that parts are taken from is one that the store proved.
#[test]
fn m04_the_basis_is_chosen_here() {
    let world = World::new();
    let secret = vec![3; 20 * GROUP as usize];
    fs::write(world.local().join("large"), &secret).unwrap();
    let mut guess = secret.clone();
    guess[0] = 4;
    let host = Host::of(&[("a", b"first"), ("large", &guess)]);
    world.pull(&host, &mut |_, _| {}).unwrap();
    let mut whole = 0;
    for order in world.heard.lock().unwrap().iter() {
        if let ToMirror::Fetch { wishes, .. } = order {
            whole += wishes.iter().map(|wish| wish.length).sum::<u64>();
        }
    }
    assert_eq!(whole, guess.len() as u64);
    assert_eq!(fs::read(world.local().join("large")).unwrap(), secret);
}
