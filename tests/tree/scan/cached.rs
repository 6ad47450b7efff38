//! What is not read again, and when it is.

use std::fs;
use std::sync::atomic::AtomicBool;

use labproxy::tree::content::ContentId;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{
    Cache, CacheError, FrozenWriters, Options, Progress, Scan, scan_cached,
};

use super::rig::{Tree, assert_same, file};

fn scan_with(tree: &Tree, cache: &Cache) -> Scan {
    let options = Options {
        limits: tree.limits,
        threads: 2,
        skip: None,
        progress: &Progress::default(),
        cancel: &AtomicBool::new(false),
    };
    let root = Root::open(&tree.path()).unwrap();
    scan_cached(&root, &tree.path(), options, cache).unwrap()
}

/// Where stamps tell every change, what has the stamp of a frozen scan is not read; an edit is
/// found, also one that restores size and time.
#[test]
fn what_has_its_stamp_still_is_not_read() {
    let tree = Tree::new();
    let root = Root::open(&tree.path()).unwrap();
    for name in ["kept", "edited", "large"] {
        tree.write(name, name);
    }
    tree.write("large", vec![5; 3 << 20]);
    let before = tree.whole();
    // The tick of the last write is over, since the scan has waited for it.
    let cache = match Cache::of(&before, &root, &FrozenWriters::promised()) {
        Ok(cache) => cache,
        Err(error) => {
            assert_eq!(error, CacheError::FileSystem);
            eprintln!("skipped: {error}");
            return;
        }
    };
    assert_eq!(cache.len(), 3);
    let unchanged = scan_with(&tree, &cache);
    assert_same(&unchanged, &before);
    assert_eq!(unchanged.effort.bytes, 0);

    let time = fs::metadata(tree.at("edited")).unwrap().modified().unwrap();
    tree.write("edited", "detide");
    let edited = fs::File::options().write(true).open(tree.at("edited"));
    edited.unwrap().set_modified(time).unwrap();
    let after = scan_with(&tree, &cache);
    let found = file(&after.tree, "edited").content;
    assert_eq!(found, ContentId::of(b"detide"));
    assert_same(&after, &tree.whole());
}

/// A file system in memory stamps no store through a mapping: nothing is known by a stamp there.
#[test]
fn stamps_prove_nothing_in_memory() {
    let tree = Tree::in_memory();
    tree.write("file", "content");
    let root = Root::open(&tree.path()).unwrap();
    let scan = tree.whole();
    let refused = Cache::of(&scan, &root, &FrozenWriters::promised());
    assert_eq!(refused.unwrap_err(), CacheError::FileSystem);
}

/// A scan with a problem, or of another root, is no ground for a cache.
#[test]
fn only_a_whole_scan_of_this_root_is_kept() {
    let mut tree = Tree::new();
    let (root, other) = (tree.path(), tree.outside());
    let [root, other] = [root, other].map(|path| Root::open(&path).unwrap());
    tree.write("file", "content");
    let frozen = FrozenWriters::promised();
    let refused = Cache::of(&tree.whole(), &other, &frozen).unwrap_err();
    assert_eq!(refused, CacheError::OtherRoot);
    tree.limits.file = 1;
    let refused = Cache::of(&tree.scan(), &root, &frozen).unwrap_err();
    assert_eq!(refused, CacheError::Incomplete);
}
