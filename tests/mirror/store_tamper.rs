//! Stores that somebody edited, and trees that somebody lied about.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use jiff::Timestamp;
use labproxy::mirror::store::{BadGeneration, GenerationNumber, Keep, Part, Store, StoreError};
use labproxy::tree::apply::{Apply, Failure, Modes};
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::{Entry, Seen};
use labproxy::tree::limits::Limits;
use labproxy::tree::mirror_id::MirrorId;
use labproxy::tree::path::{Name, RelPath};
use labproxy::tree::root::Root;
use labproxy::tree::stamp::Stamps;
use labproxy::tree::step::Step;

use crate::store::{open, packs, publish, put, read};
use crate::trees::{MIB, file, groups, noise, tree};

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Wherever a pack is edited, the content that stood there is found to be another, is not served,
/// and comes back when it is put again; all others are served.
#[test]
fn t31_an_edited_pack_is_found_and_never_served() {
    let contents = [noise(1, 5_000), noise(2, 2 * MIB + 9), noise(3, 70_000)];
    let names = ["a", "b", "c"];
    let tree = tree(names.into_iter().zip(contents.iter().map(Vec::as_slice)));
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    for bytes in &contents {
        put(&store, bytes);
    }
    publish(&store, &tree);
    drop(store);
    let whole = fs::read(&packs(place.path())[0]).unwrap();
    let index = fs::read(packs(place.path())[0].with_extension("index")).unwrap();
    let length = whole.len();
    for at in (16..length)
        .step_by(length / 40)
        .chain([20, 30, 60, length - 1])
    {
        let place = tempfile::tempdir().unwrap();
        drop(open(place.path()));
        let pack = place.path().join("store/pack-00000000");
        fs::write(&pack, &whole).unwrap();
        fs::write(pack.with_extension("index"), &index).unwrap();
        flip(&pack, at as u64);
        let store = open(place.path());
        let unsound = store.verify(&tree);
        assert_eq!(unsound.len(), 1, "byte {at}");
        assert!(matches!(
            unsound[0].error,
            StoreError::Damaged { .. } | StoreError::Missing(_)
        ));
        let is_it = |name: &str| unsound[0].path.as_bytes() == name.as_bytes();
        let hurt = &contents[names.iter().position(|name| is_it(name)).unwrap()];
        assert!(!store.has(&ContentId::of(hurt)).unwrap(), "byte {at}");
        assert!(store.complete(&tree).is_err());
        put(&store, hurt);
        assert_eq!(read(&store, &ContentId::of(hurt)), *hurt);
        assert!(store.verify(&tree).is_empty(), "byte {at}");
    }
}

/// The applier proves by itself what the store gives it: no file is made of an edited pack, all others
/// are, and the store knows what is damaged.
#[test]
fn t31_no_file_is_made_of_an_edited_pack() {
    let contents = [noise(1, 5_000), noise(2, 2 * MIB + 9), noise(3, 70_000)];
    let names = ["a", "b", "c"];
    let write = |(name, bytes): (&str, &Vec<u8>)| Step::Write {
        path: RelPath::new(name).unwrap(),
        file: file(bytes),
    };
    for (name, hurt) in names.into_iter().zip(&contents) {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("root");
        fs::create_dir(&at).unwrap();
        let store = open(place.path());
        for bytes in &contents {
            put(&store, bytes);
        }
        store.sync().unwrap();
        let pack = &packs(place.path())[0];
        let inside = &hurt[hurt.len() / 2..][..64];
        let stored = fs::read(pack).unwrap();
        let stands = stored.windows(64).position(|bytes| bytes == inside);
        let stands = stands.unwrap();
        flip(pack, stands as u64);
        let root = Root::open(&at).unwrap();
        let stamps = Stamps::default();
        let apply = || Apply::new(&root, &stamps, &store, Modes::PRIVATE).unwrap();
        let steps: Vec<Step> = names.into_iter().zip(&contents).map(write).collect();
        let applied = apply().run(&steps);
        let [(path, Failure::NoContent(_))] = applied.failed.as_slice() else {
            panic!("{name}: {applied:?}");
        };
        assert_eq!(path.as_bytes(), name.as_bytes());
        for (other, bytes) in names.into_iter().zip(&contents) {
            let made = fs::read(at.join(other)).ok();
            assert_eq!(made.as_ref(), (other != name).then_some(bytes), "{name}");
        }
        assert!(!store.has(&ContentId::of(hurt)).unwrap(), "{name}");
        put(&store, hurt);
        assert!(apply().run(&[write((name, hurt))]).is_whole(), "{name}");
        assert!(fs::read(at.join(name)).unwrap() == *hurt, "{name}");
    }
}

/// A chunk is not made of a held one that was edited: that one is named, and fetched anew.
#[test]
fn t31_no_chunk_is_made_of_an_edited_one() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let old = noise(1, 3 * MIB);
    let mut new = old.clone();
    new[MIB + 5] ^= 1;
    put(&store, &old);
    store.sync().unwrap();
    let pack = &packs(place.path())[0];
    let stored = fs::read(pack).unwrap();
    let end = &old[2 * MIB - 64..2 * MIB];
    let stands = stored.windows(64).position(|bytes| bytes == end).unwrap();
    flip(pack, stands as u64);
    let mut large = store.large(ContentId::of(&new), groups(&new)).unwrap();
    assert_eq!(large.missing(), [1]);
    let part = |from: usize, to: usize| Part::Held {
        content: ContentId::of(&old),
        offset: from as u64,
        length: (to - from) as u64,
    };
    let group = 64 * 1024;
    let parts = [
        Part::New(&new[MIB..MIB + group]),
        part(MIB + group, 2 * MIB),
    ];
    let damaged = large.put(1, &parts);
    assert!(matches!(damaged, Err(StoreError::Damaged { .. })));
    let changed = large.put(1, &[Part::New(&old[MIB..2 * MIB])]);
    assert!(matches!(changed, Err(StoreError::NotTheContent(_))));
    large.put(1, &[Part::New(&new[MIB..2 * MIB])]).unwrap();
    large.finish().unwrap();
    assert_eq!(read(&store, &ContentId::of(&new)), new);
    assert!(!store.has(&ContentId::of(&old)).unwrap());
}

/// An index that was edited leads to nothing wrong: the packs are read through instead.
#[test]
fn t31_an_edited_index_is_not_believed() {
    let place = tempfile::tempdir().unwrap();
    let contents: Vec<Vec<u8>> = (0..50).map(|seed| noise(seed, 900)).collect();
    let store = open(place.path());
    for bytes in &contents {
        put(&store, bytes);
        store.sync().unwrap();
    }
    drop(store);
    let index = packs(place.path())[0].with_extension("index");
    let length = index.metadata().unwrap().len();
    for at in (0..length).step_by(97) {
        let whole = fs::read(&index).unwrap();
        flip(&index, at);
        let store = open(place.path());
        for bytes in &contents {
            assert_eq!(read(&store, &ContentId::of(bytes)), *bytes, "byte {at}");
        }
        drop(store);
        fs::write(&index, whole).unwrap();
    }
}

/// Two names of one content, hard links or not, are stored once; and no file of the store has a
/// second name.
#[test]
fn m54_t31_a_content_is_stored_once_and_under_no_other_name() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let (small, large) = (noise(1, 40_000), noise(2, 3 * MIB));
    let linked = |bytes: &[u8], group: u32| {
        let seen = Seen {
            hard_link: group,
            ..Seen::default()
        };
        let mut file = file(bytes);
        file.seen = seen;
        Entry::File(file)
    };
    let entries = [
        ("a", &small, 1),
        ("b", &small, 1),
        ("c", &large, 2),
        ("d", &large, 0),
    ];
    let entries = entries.map(|(name, bytes, group)| {
        put(&store, bytes);
        (Name::new(name.as_bytes()).unwrap(), linked(bytes, group))
    });
    let tree = Directory::new(entries.to_vec(), Seen::default()).unwrap();
    let number = publish(&store, &tree);
    let mut bytes = 0;
    for entry in fs::read_dir(place.path().join("store")).unwrap() {
        let about = entry.unwrap().metadata().unwrap();
        assert_eq!((about.nlink(), about.mode() & 0o777), (1, 0o600));
        bytes += about.len();
    }
    assert!(
        bytes < (small.len() + large.len() + 10_000) as u64,
        "{bytes}"
    );
    // The groups of names are part of what is kept, beside the hash.
    let (_, loaded) = store.load(GenerationNumber(number)).unwrap();
    assert_eq!(loaded, tree);
}

/// A tree cannot be published on the word of its host: each content must be here, of the size that
/// was said, and a tree's hash is that of what is here.
#[test]
fn m29_a_tree_is_published_only_with_all_its_contents() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let (here, away) = (noise(1, 100), noise(2, 100));
    put(&store, &here);
    let missing = tree([("a", here.as_slice()), ("b", away.as_slice())]);
    let error = store.complete(&missing).unwrap_err();
    assert!(
        matches!(error, StoreError::Incomplete { count: 1, first } if first == ContentId::of(&away))
    );
    let mut longer = file(&here);
    longer.size += 1;
    let entry = (Name::new(&b"a"[..]).unwrap(), Entry::File(longer));
    let lied = Directory::new(vec![entry], Seen::default()).unwrap();
    assert!(matches!(
        store.complete(&lied),
        Err(StoreError::Incomplete { .. })
    ));
    assert!(store.latest().unwrap().is_none());
}

/// Every changed byte of a generation's file is found when it is read.
#[test]
fn t31_an_edited_generation_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    put(&store, b"x");
    let number = GenerationNumber(publish(
        &store,
        &tree([("a", b"x".as_slice()), ("b", b"x")]),
    ));
    let path = place.path().join("store/generation-0000000001");
    let length = path.metadata().unwrap().len();
    for at in 0..length {
        flip(&path, at);
        let error = store.load(number).unwrap_err();
        assert!(matches!(&error, StoreError::Generation { path: named, .. } if *named == path));
        flip(&path, at);
    }
    store.load(number).unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in [0, 1, 30, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(store.load(number).is_err());
    }
    fs::write(&path, &whole).unwrap();
    fs::copy(&path, place.path().join("store/generation-0000000002")).unwrap();
    let renamed = store.load(GenerationNumber(2)).unwrap_err();
    let other = |error| {
        matches!(
            error,
            StoreError::Generation {
                why: BadGeneration::Other(_),
                ..
            }
        )
    };
    assert!(other(renamed));
    let foreign = MirrorId::from_random([8; 16]);
    let foreign = Store::open(&place.path().join("store"), foreign, Limits::default()).unwrap();
    assert!(other(foreign.load(number).unwrap_err()));
}

/// What is kept is kept whole; the rest goes, and with it the bytes.
#[test]
fn generations_are_collected_by_age_and_size() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let day = |day: i64| Timestamp::from_second(day * 86_400).unwrap();
    let common = noise(100, 300_000);
    put(&store, &common);
    let trees: Vec<Directory> = (0..6)
        .map(|round| {
            let own = noise(round, 2 * MIB);
            put(&store, &own);
            let tree = tree([("own", own.as_slice()), ("common", common.as_slice())]);
            let complete = store.complete(&tree).unwrap();
            complete.publish(day(round.cast_signed())).unwrap();
            tree
        })
        .collect();
    let keep = |bytes: u64| Keep {
        newest: 1,
        age: std::time::Duration::from_hours(24 * 3),
        bytes,
        pinned: vec![GenerationNumber(1)],
    };
    let numbers = || -> Vec<u64> { store.numbers().unwrap().iter().map(|n| n.0).collect() };
    assert_eq!(
        store
            .collect(&keep(u64::MAX), day(5))
            .unwrap()
            .generations
            .len(),
        1
    );
    assert_eq!(numbers(), [1, 3, 4, 5, 6]);
    store.collect(&keep(3 << 20), day(5)).unwrap();
    assert_eq!(numbers(), [1, 6]);
    let here: HashSet<usize> = [0, 5].into();
    for (round, tree) in trees.iter().enumerate() {
        let is_here = store.verify(tree).is_empty();
        assert_eq!(is_here, here.contains(&round), "{round}");
    }
    drop(store);
    let store = open(place.path());
    assert!(
        here.iter()
            .all(|round| store.verify(&trees[*round]).is_empty())
    );
    let bytes: u64 = packs(place.path())
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert!(bytes < 5 << 20, "{bytes}");
    assert_eq!(publish(&store, &trees[5]), 7);
}
