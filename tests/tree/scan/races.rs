//! Trees whose names change while they are scanned.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::tree::entry::{Entry, LinkText, SpecialKind};
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{Scan, Trouble};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::rig::{Tree, assert_same, beside, exchange, file, path, paths};

/// Scans with one thread, which does something when a path is listed for the first time.
fn scan_and(tree: &Tree, at: &str, change: impl Fn() + Sync) -> Scan {
    let done = AtomicBool::new(false);
    let skip = |here: &RelPath, _: bool| {
        if *here == path(at) && !done.swap(true, Ordering::Relaxed) {
            change();
        }
        false
    };
    let root = Root::open(&tree.path()).unwrap();
    tree.scan_with(&root, 1, Some(&skip)).unwrap()
}

/// A file that becomes a link between its listing and its opening is that link.
#[test]
fn m07_a_file_swapped_for_a_link_is_not_followed() {
    let tree = Tree::new();
    fs::write(tree.outside().join("secret"), "secret").unwrap();
    tree.write("file", "harmless");
    let scan = scan_and(&tree, "file", || {
        fs::remove_file(tree.at("file")).unwrap();
        symlink(tree.outside().join("secret"), tree.at("file")).unwrap();
    });
    assert_eq!(scan.problems, []);
    let text = tree
        .outside()
        .join("secret")
        .into_os_string()
        .into_encoded_bytes();
    let link = Entry::Link(LinkText::new(text).unwrap());
    assert_eq!(scan.tree.find(&path("file")), Some(&link));
    assert_eq!(scan.effort.files, 0);
}

/// A directory that becomes a link between its listing and its opening is that link.
#[test]
fn m09_a_directory_swapped_for_a_link_is_not_entered() {
    let tree = Tree::new();
    fs::write(tree.outside().join("secret"), "secret").unwrap();
    tree.write("d/inside", "harmless");
    let scan = scan_and(&tree, "d", || {
        fs::rename(tree.at("d"), tree.at("moved")).unwrap();
        symlink(tree.outside(), tree.at("d")).unwrap();
    });
    assert_eq!(scan.problems, []);
    assert_eq!(paths(&scan.tree), ["d", "moved", "moved/inside"]);
    assert!(scan.effort.directory_retries > 0);
}

/// While a directory and a link to the outside change places, no name from there is ever seen, by
/// both ways of opening. Each scan looks a dozen times and waits for ticks of the clock in between, so
/// few are enough here; `LABPROXY_SOAK_SCANS` sets how many.
#[test]
fn m09_no_outside_name_in_any_scan() {
    let scans = std::env::var("LABPROXY_SOAK_SCANS").map_or(60, |text| text.parse().unwrap());
    let tree = Tree::in_memory();
    for number in 0..20 {
        fs::write(tree.outside().join(format!("secret{number}")), "secret").unwrap();
        tree.write(&format!("d/e/inside{number}"), "harmless");
    }
    symlink(tree.outside(), tree.at("link")).unwrap();
    symlink(tree.outside(), tree.at("d/link")).unwrap();
    let swap = || {
        exchange(&tree.at("link"), &tree.at("d"));
        exchange(&tree.at("link"), &tree.at("d"));
        exchange(&tree.at("d/link"), &tree.at("d/e"));
        exchange(&tree.at("d/link"), &tree.at("d/e"));
    };
    beside(swap, || {
        for round in 0..scans {
            let scan = if round % 2 == 0 {
                tree.scan_by(2)
            } else {
                tree.scan_walking()
            };
            let seen = paths(&scan.tree);
            let outside: Vec<_> = seen.iter().filter(|path| path.contains("secret")).collect();
            assert!(outside.is_empty(), "{outside:?}");
            let changing = |trouble: &Trouble| *trouble == Trouble::Changing;
            assert!(
                scan.problems
                    .iter()
                    .all(|problem| changing(&problem.trouble))
            );
            if scan.is_complete() {
                assert_eq!(
                    seen.iter().filter(|path| path.contains("inside")).count(),
                    20
                );
            }
        }
    });
    assert!(tree.scan().is_complete());
}

/// Where the system has no `openat2`, or forbids it, the walk by names is as strict.
#[test]
fn m21_without_openat2_nothing_leads_outside() {
    let tree = Tree::new();
    fs::write(tree.outside().join("secret"), "secret").unwrap();
    tree.write("a/b/c/file", "here");
    for (text, link) in [("../../outside", "a/out"), ("..", "a/b/up"), ("/", "top")] {
        symlink(text, tree.at(link)).unwrap();
    }
    let scan = tree.scan_walking();
    assert_eq!(scan.problems, []);
    let wanted = ["a", "a/b", "a/b/c", "a/b/c/file", "a/b/up", "a/out", "top"];
    assert_eq!(paths(&scan.tree), wanted);
    assert_same(&scan, &tree.scan());
}

/// Renames elsewhere on the machine do not disturb a scan.
#[test]
fn m20_a_storm_of_renames_outside_disturbs_nothing() {
    let tree = Tree::in_memory();
    for number in 0..200 {
        tree.write(&format!("d{}/{number}", number % 20), number.to_string());
    }
    let quiet = tree.whole();
    for name in ["one", "other"] {
        fs::create_dir(tree.outside().join(name)).unwrap();
    }
    let storm = || exchange(&tree.outside().join("one"), &tree.outside().join("other"));
    beside(storm, || {
        for _ in 0..50 {
            assert_same(&tree.scan_by(2), &quiet);
        }
    });
}

/// What is renamed from where it was not yet read to where all was read is not missed.
#[test]
fn m20_what_moves_behind_the_scan_is_not_missed() {
    let tree = Tree::new();
    for name in ["a/first", "b/wanders", "b/w/below", "b/z", "c"] {
        tree.write(name, name);
    }
    let scan = scan_and(&tree, "c", || {
        fs::rename(tree.at("b/z"), tree.at("b/y")).unwrap();
    });
    assert_eq!(scan.problems, []);
    let scan = scan_and(&tree, "b/wanders", || {
        fs::rename(tree.at("b/wanders"), tree.at("a/wanders")).unwrap();
        fs::rename(tree.at("b/w"), tree.at("a/w")).unwrap();
    });
    assert_eq!(scan.problems, []);
    let wanted = [
        "a",
        "a/first",
        "a/w",
        "a/w/below",
        "a/wanders",
        "b",
        "b/y",
        "c",
    ];
    assert_eq!(paths(&scan.tree), wanted);
    assert_eq!(file(&scan.tree, "a/wanders").size, 9);
}

/// What is removed while it is read is simply not there.
#[test]
fn what_vanishes_is_absent() {
    let tree = Tree::new();
    for name in ["a", "d/e/f", "z"] {
        tree.write(name, name);
    }
    let scan = scan_and(&tree, "a", || {
        fs::remove_file(tree.at("a")).unwrap();
        fs::remove_dir_all(tree.at("d")).unwrap();
    });
    assert_eq!(scan.problems, []);
    assert_eq!(paths(&scan.tree), ["z"]);
}

/// A FIFO that changes places with a file is never opened: no writer finds a reader.
#[test]
fn t29_what_is_swapped_in_is_never_opened() {
    let tree = Tree::in_memory();
    tree.write("file", "content");
    rustix::fs::mknodat(CWD, tree.at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::hard_link(tree.at("fifo"), tree.outside().join("fifo")).unwrap();
    let tries = AtomicU32::new(0);
    let swap_and_try = || {
        exchange(&tree.at("fifo"), &tree.at("file"));
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let opened = rustix::fs::open(tree.outside().join("fifo"), flags, Mode::empty());
        assert_eq!(opened.unwrap_err(), Errno::NXIO, "somebody reads");
        tries.fetch_add(1, Ordering::Relaxed);
    };
    beside(swap_and_try, || {
        for _ in 0..8 {
            let scan = tree.scan_by(2);
            for (_, entry) in scan.tree.entries() {
                let fifo = *entry == Entry::Special(SpecialKind::Fifo);
                assert!(fifo || matches!(entry, Entry::File(file) if file.size == 7));
            }
        }
    });
    assert!(tries.into_inner() > 0);
}
