//! Trees that are too much, and parts that cannot be read.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::tree::path::DEPTH_MAX;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{Options, Progress, ScanError, Trouble, scan};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::rig::{Tree, assert_same, file, paths, problems};

/// Makes a chain of directories, and puts a file into the last.
fn chain(tree: &Tree, name: &str, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at: OwnedFd = fs::File::open(tree.path()).unwrap().into();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, name, flags, Mode::empty()).unwrap();
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "file", flags, Mode::RUSR).unwrap();
    rustix::io::write(file, b"deep").unwrap();
}

/// Removes a chain from the top: what removes a temporary directory goes down by calls.
fn unchain(tree: &Tree, name: &str) {
    let root = fs::File::open(tree.path()).unwrap();
    let away = fs::File::open(tree.outside()).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    while let Ok(first) = rustix::fs::openat(&root, name, flags, Mode::empty()) {
        // What is below comes up, and the empty one goes.
        let below = rustix::fs::renameat(&first, name, &away, name);
        let _ = rustix::fs::unlinkat(&first, "file", AtFlags::empty());
        rustix::fs::unlinkat(&root, name, AtFlags::REMOVEDIR).unwrap();
        if below.is_ok() {
            rustix::fs::renameat(&away, name, &root, name).unwrap();
        }
    }
}

/// A path longer than the system takes at once is read; one that is too deep is a problem.
#[test]
fn m53_long_and_deep_paths() {
    let tree = Tree::new();
    let name = "n".repeat(200);
    chain(&tree, &name, 30);
    let long = tree.whole();
    let at = format!("{}/file", vec![name.as_str(); 30].join("/"));
    assert_eq!(file(&long.tree, &at).size, 4);
    assert_same(&tree.scan_walking(), &long);
    unchain(&tree, &name);

    chain(&tree, "d", DEPTH_MAX - 1);
    assert_eq!(tree.whole().tree.totals().files, 1);
    chain_below(&tree);
    let deepest = vec!["d"; DEPTH_MAX].join("/");
    assert_eq!(
        problems(&tree.scan()),
        [(deepest.clone(), Trouble::TooDeep)]
    );
    unchain(&tree, "d");

    chain(&tree, "d", 10_000);
    assert_eq!(problems(&tree.scan()), [(deepest, Trouble::TooDeep)]);
    unchain(&tree, "d");
}

/// One more directory, with a file, at the end of the deepest chain that is read.
fn chain_below(tree: &Tree) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at: OwnedFd = fs::File::open(tree.path()).unwrap().into();
    while let Ok(next) = rustix::fs::openat(&at, "d", flags, Mode::empty()) {
        at = next;
    }
    rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
    at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
    rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
}

/// Each limit ends a scan or leaves a file out, exactly above it.
#[test]
fn a_tree_above_a_limit_is_not_known() {
    let mut tree = Tree::new();
    for number in 0..100 {
        tree.write(&format!("d/{number}"), [0; 10]);
    }
    tree.limits.entries = 101;
    tree.limits.tree = 1_000;
    tree.limits.file = 10;
    assert!(tree.scan().is_complete());
    tree.limits.entries = 100;
    let root = || String::new();
    let above = tree.scan();
    assert_eq!(
        problems(&above),
        [(root(), Trouble::TooMany { limit: 100 })]
    );
    assert!(above.tree.entries().is_empty() && above.stamps.all().is_empty());
    tree.limits.entries = 101;
    tree.limits.tree = 999;
    assert_eq!(
        problems(&tree.scan()),
        [(root(), Trouble::TreeTooLarge { limit: 999 })]
    );
    tree.limits.tree = 2_000;
    tree.write("d/7", [0; 11]);
    let large = Trouble::TooLarge {
        size: 11,
        limit: 10,
    };
    let scan = tree.scan();
    assert_eq!(problems(&scan), [("d/7".to_owned(), large)]);
    assert_eq!(scan.tree.totals().files, 99);
}

/// A hole counts for its size, before anything of it is hashed.
#[test]
fn an_endless_hole_is_too_large() {
    let mut tree = Tree::new();
    let size = 1 << 42;
    fs::File::create(tree.at("hole"))
        .unwrap()
        .set_len(size)
        .unwrap();
    let limit = tree.limits.file;
    let large = Trouble::TooLarge { size, limit };
    tree.limits.tree = u64::MAX;
    assert_eq!(problems(&tree.scan()), [("hole".to_owned(), large)]);
    tree.limits.tree = 1 << 41;
    let large = Trouble::TreeTooLarge { limit: 1 << 41 };
    assert_eq!(problems(&tree.scan()), [(String::new(), large)]);
}

/// What may not be read is named, the rest is there, and the scan is not complete.
#[test]
fn m30_m40_what_cannot_be_read_is_a_problem() {
    let tree = Tree::new();
    for name in ["a", "secret", "z/inside"] {
        tree.write(name, name);
    }
    for name in ["secret", "z"] {
        fs::set_permissions(tree.at(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    for directory in [tree.path(), tree.place.path().to_owned()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let scan = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // Of this thread, and of those that it starts.
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            }
            tree.scan()
        });
        reading.join().unwrap()
    });
    fs::set_permissions(tree.at("z"), fs::Permissions::from_mode(0o755)).unwrap();
    let errno = Errno::ACCESS.raw_os_error();
    let denied = || Trouble::Unreadable { errno };
    let wanted = ["secret", "z"].map(|name| (name.to_owned(), denied()));
    assert_eq!(problems(&scan), wanted);
    assert!(!scan.is_complete());
    assert_eq!(paths(&scan.tree), ["a"]);
}

/// Another directory in the root's place is seen at the end.
#[test]
fn m33_a_root_that_is_replaced_meanwhile_is_a_problem() {
    let tree = Tree::new();
    tree.write("file", "");
    let calls = AtomicU32::new(0);
    let skip = |_: &_, _| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            fs::rename(tree.path(), tree.outside().join("away")).unwrap();
            fs::create_dir(tree.path()).unwrap();
        }
        false
    };
    let root = Root::open(&tree.path()).unwrap();
    let scan = tree.scan_with(&root, 2, Some(&skip)).unwrap();
    assert_eq!(problems(&scan), [(String::new(), Trouble::RootChanged)]);
}

/// A scan ends when it is told to.
#[test]
fn a_scan_is_stopped() {
    let tree = Tree::new();
    for number in 0..1_000 {
        tree.write(&number.to_string(), "");
    }
    let cancel = AtomicBool::new(false);
    let skip = |_: &_, _| {
        cancel.store(true, Ordering::Relaxed);
        false
    };
    let progress = Progress::default();
    let options = Options {
        limits: tree.limits,
        threads: 4,
        skip: Some(&skip),
        progress: &progress,
        cancel: &cancel,
    };
    let root = Root::open(&tree.path()).unwrap();
    let stopped = scan(&root, &tree.path(), options);
    assert_eq!(stopped.unwrap_err(), ScanError::Cancelled);
    assert_eq!(progress.files.load(Ordering::Relaxed), 0);
}
