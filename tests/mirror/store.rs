//! Contents and generations in the store.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use labproxy::mirror::store::{CHUNK, Part, Store, StoreError};
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::limits::Limits;

use crate::trees::{MIB, MIRROR, groups, noise, tree};

pub(crate) fn open(directory: &Path) -> Store {
    Store::open(&directory.join("store"), MIRROR, Limits::default()).unwrap()
}

pub(crate) fn put(store: &Store, bytes: &[u8]) {
    store.put(ContentId::of(bytes), bytes).unwrap();
}

pub(crate) fn read(store: &Store, id: &ContentId) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut content = store.open_content(id).unwrap();
    content.read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn publish(store: &Store, tree: &Directory) -> u64 {
    let complete = store.complete(tree).unwrap();
    complete.publish(Timestamp::UNIX_EPOCH).unwrap().number.0
}

pub(crate) fn packs(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("store")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_pack = |path: &PathBuf| path.file_name().unwrap().len() == "pack-00000000".len();
    let mut packs: Vec<PathBuf> = paths.filter(is_pack).collect();
    packs.sort();
    packs
}

/// Contents of every size that has a form of its own come back, before and after a restart.
#[test]
fn contents_come_back() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let sizes = [
        0,
        1,
        100_000,
        MIB - 1,
        MIB,
        MIB + 1,
        2 * MIB,
        3 * MIB + 70_000,
    ];
    let contents: Vec<Vec<u8>> = sizes.iter().zip(0..).map(|(n, s)| noise(s, *n)).collect();
    for bytes in &contents {
        let id = ContentId::of(bytes);
        let mut writer = store.writer(id, bytes.len() as u64);
        for part in bytes.chunks(300_007) {
            writer.take(part).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(read(&store, &id), *bytes, "{}", bytes.len());
    }
    let files: Vec<String> = (0..contents.len()).map(|n| n.to_string()).collect();
    let named = files.iter().map(String::as_str);
    let tree = tree(named.zip(contents.iter().map(Vec::as_slice)));
    assert_eq!(publish(&store, &tree), 1);
    drop(store);
    let store = open(place.path());
    for bytes in &contents {
        assert_eq!(read(&store, &ContentId::of(bytes)), *bytes);
    }
    let (head, loaded) = store.load(store.latest().unwrap().unwrap().number).unwrap();
    assert_eq!((loaded.hash(), head.totals), (tree.hash(), tree.totals()));
    assert!(store.verify(&loaded).is_empty());
}

/// A hundred edits of a large file write a hundred chunks, and the rest is not written again.
#[test]
fn an_edit_of_a_large_content_writes_what_changed() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let old = noise(1, 8 * MIB + 5);
    put(&store, &old);
    let mut new = old.clone();
    new[3 * MIB + 10] ^= 1;
    new.extend_from_slice(b"appended");
    let id = ContentId::of(&new);
    let mut large = store.large(id, groups(&new)).unwrap();
    assert_eq!(large.missing(), [3, 8]);
    let wrong = large.put(3, &[Part::New(&old[3 * MIB..4 * MIB])]);
    assert!(matches!(wrong, Err(StoreError::NotTheContent(_))));
    // The edited group came; the groups around it are those of the old content.
    let from = 3 * CHUNK;
    let held = |offset: u64, length: u64| Part::Held {
        content: ContentId::of(&old),
        offset,
        length,
    };
    let edited = Part::New(&new[3 * MIB..3 * MIB + 65_536]);
    large
        .put(3, &[edited, held(from + 65_536, CHUNK - 65_536)])
        .unwrap();
    large
        .put(8, &[held(8 * CHUNK, 5), Part::New(b"appended")])
        .unwrap();
    large.finish().unwrap();
    store.sync().unwrap();
    assert_eq!(read(&store, &id), new);
    let bytes: u64 = packs(place.path())
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert!(bytes < 9 * CHUNK + 20_000 + CHUNK, "{bytes}");
    let again = store.large(id, groups(&new)).unwrap();
    assert!(again.missing().is_empty());
}

/// Bytes that are not the content that they were said to be are refused, and found by nobody.
#[test]
fn m29_what_is_not_the_content_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    for (said, sent) in [
        (noise(1, 10), noise(2, 10)),
        (noise(1, 10), noise(1, 9)),
        (noise(1, 2 * MIB), noise(2, 2 * MIB)),
        (noise(1, 2 * MIB), noise(1, 2 * MIB - 1)),
        (noise(1, 2 * MIB), noise(1, 2 * MIB + 1)),
    ] {
        let id = ContentId::of(&said);
        let error = store.put(id, &sent).unwrap_err();
        assert!(matches!(error, StoreError::NotTheContent(_)), "{error}");
        assert!(!store.has(&id).unwrap());
    }
    let (one, other) = (noise(1, 2 * MIB), noise(2, 2 * MIB));
    let foreign = store.large(ContentId::of(&one), groups(&other));
    assert!(matches!(foreign, Err(StoreError::NotTheContent(_))));
}
