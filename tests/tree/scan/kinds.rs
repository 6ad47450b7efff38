//! What a tree may hold, and how each kind is told.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use labproxy::tree::content::{ContentId, GROUP, Groups};
use labproxy::tree::directory::Totals;
use labproxy::tree::entry::{Entry, SpecialKind};
use labproxy::tree::path::Name;
use labproxy::tree::root::Root;
use rustix::fs::{CWD, FileType, Mode};

use super::rig::{Tree, assert_same, file, named, path, paths};

fn special(tree: &Tree, at: &str) -> Option<SpecialKind> {
    match tree.whole().tree.find(&path(at)) {
        Some(Entry::Special(kind)) => Some(*kind),
        _ => None,
    }
}

/// A tree of all kinds, sizes and depths is the same by any number of threads, with and without
/// `openat2`.
#[test]
fn the_same_tree_is_the_same_scan() {
    let tree = Tree::new();
    for number in 0..300 {
        tree.write(&format!("many/{number}"), format!("file {number}"));
        tree.write(&format!("d{}/e{}/f", number % 7, number % 11), [7; 3]);
    }
    for (name, length) in [
        ("empty", 0),
        ("one", 1),
        ("whole", 1 << 20),
        ("a", (1 << 20) + 1),
    ] {
        tree.write(name, vec![3; length]);
    }
    let bytes: Vec<u8> = (0..=250).cycle().take(9_000_001).collect();
    tree.write("large/odd", &bytes);
    symlink("nowhere/at all", tree.at("link")).unwrap();
    let first = tree.whole();
    for threads in [0, 1, 2, 3, 16] {
        assert_same(&tree.scan_by(threads), &first);
    }
    assert_same(&tree.scan_walking(), &first);
    assert_eq!(
        file(&first.tree, "large/odd").content,
        ContentId::of(&bytes)
    );
    assert_eq!(file(&first.tree, "empty").content, ContentId::of(b""));
    assert_eq!(
        file(&first.tree, "whole").content,
        ContentId::of(&vec![3; 1 << 20])
    );
    let mut grouped: Vec<u64> = first.groups.values().map(Groups::size).collect();
    grouped.sort_unstable();
    assert_eq!(grouped, [(1 << 20) + 1, 9_000_001]);
    for (id, groups) in &first.groups {
        assert_eq!(groups.content(), *id);
    }
    let totals = first.tree.totals();
    let stamps = u64::try_from(first.stamps.all().len()).unwrap();
    assert_eq!(totals.entries, stamps);
    assert_eq!(totals.bytes, 2 * (1 << 20) + 2 + 9_000_001 + 77 * 3 + 2_290);
}

/// Whoever opened a FIFO for reading would let a writer in; nobody does, and nothing waits.
#[test]
fn m47_a_fifo_does_not_block() {
    let tree = Tree::new();
    rustix::fs::mknodat(CWD, tree.at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    UnixListener::bind(tree.at("socket")).unwrap();
    let kind = |name| special(&tree, name);
    assert_eq!(kind("fifo"), Some(SpecialKind::Fifo));
    assert_eq!(kind("socket"), Some(SpecialKind::Socket));
}

/// A device is told by its kind; this one has no driver, so that opening it would be an error.
#[test]
fn t29_a_device_is_told_and_not_opened() {
    let tree = Tree::new();
    let device = rustix::fs::makedev(4_000, 1);
    let made = [
        ("character", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
    ]
    .map(|(name, kind)| rustix::fs::mknodat(CWD, tree.at(name), kind, Mode::RWXU, device));
    if made.iter().any(Result::is_err) {
        eprintln!("skipped: no device can be made here: {made:?}");
        return;
    }
    let kind = |name| special(&tree, name);
    assert_eq!(kind("character"), Some(SpecialKind::CharacterDevice));
    assert_eq!(kind("block"), Some(SpecialKind::BlockDevice));
}

/// Names are bytes: none is changed, merged or lost.
#[test]
fn m48_names_of_any_bytes_are_kept() {
    let tree = Tree::new();
    let long = [b'x'; 255];
    let names: [&[u8]; 6] = [b"\xff\xfe", b"a\nb", b"-rf", &long, b"\x1b[2J\r\x9b", b" "];
    for (name, number) in names.iter().zip(0_u8..) {
        fs::write(named(&tree.path(), name), [number]).unwrap();
    }
    let scan = tree.whole();
    assert_eq!(scan.tree.entries().len(), names.len());
    for (name, number) in names.iter().zip(0_u8..) {
        let Some(Entry::File(file)) = scan.tree.get(name) else {
            panic!("{name:?} is missing");
        };
        assert_eq!(file.content, ContentId::of(&[number]));
    }
}

/// Two spellings of one letter are two names.
#[test]
fn m50_composed_and_decomposed_twins_are_two() {
    let tree = Tree::new();
    tree.write("\u{e9}", "composed");
    tree.write("e\u{301}", "decomposed");
    let scan = tree.whole();
    assert_eq!(scan.tree.totals().files, 2);
    assert_eq!(
        file(&scan.tree, "\u{e9}").content,
        ContentId::of(b"composed")
    );
}

/// `A` and `a` are two names.
#[test]
fn m51_case_twins_are_two() {
    let tree = Tree::new();
    tree.write("A", "large");
    tree.write("a", "small");
    let scan = tree.whole();
    assert_eq!(paths(&scan.tree), ["A", "a"]);
    assert_eq!(file(&scan.tree, "a").content, ContentId::of(b"small"));
}

/// Names of one inode are known as such, in the order of a walk; another name outside counts too.
#[test]
fn m54_hard_links_are_grouped() {
    let tree = Tree::new();
    for name in ["a", "c/x", "d", "single"] {
        tree.write(name, name);
    }
    fs::hard_link(tree.at("c/x"), tree.at("b")).unwrap();
    fs::hard_link(tree.at("c/x"), tree.at("z")).unwrap();
    fs::hard_link(tree.at("a"), tree.at("y")).unwrap();
    fs::hard_link(tree.at("d"), tree.outside().join("d")).unwrap();
    let scan = tree.whole();
    let number = |at| file(&scan.tree, at).seen.hard_link;
    let numbers = ["a", "y", "b", "c/x", "z", "d", "single"].map(number);
    assert_eq!(numbers, [1, 1, 2, 2, 2, 3, 0]);
    assert_eq!(file(&scan.tree, "b").content, ContentId::of(b"c/x"));
    assert_same(&tree.scan_by(1), &scan);
}

/// The owner's right to execute is the tree's; the other bits are not, or are only seen.
#[test]
fn m56_modes_are_exact_and_steady() {
    let tree = Tree::new();
    tree.write("tool", "#!/bin/sh\n");
    let set = |mode| {
        fs::set_permissions(tree.at("tool"), fs::Permissions::from_mode(mode)).unwrap();
        let scan = tree.whole();
        (scan.tree.plain().hash(), file(&scan.tree, "tool").clone())
    };
    let (plain, file) = set(0o600);
    assert!(!file.executable);
    for mode in [0o644, 0o655, 0o666, 0o600] {
        assert_eq!(set(mode), (plain, file.clone()), "{mode:o}");
    }
    let (other, executable) = set(0o700);
    assert!(executable.executable && other != plain);
    assert_eq!(executable.content, file.content);
    let (hash, setuid) = set(0o4755);
    assert!(setuid.seen.setuid && !setuid.seen.setgid, "{setuid:?}");
    assert_eq!(hash, other);
    for _ in 0..3 {
        assert_eq!(set(0o755), (other, executable.clone()));
        assert_eq!(set(0o644), (plain, file.clone()));
    }
}

/// Attributes beside a file's content are neither read nor a problem.
#[test]
fn m58_attributes_and_labels_are_left_alone() {
    let tree = Tree::new();
    tree.write("labelled", "content");
    let before = tree.whole();
    for name in ["user.note", "security.selinux"] {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(tree.at("labelled"), name, b"any", flags);
        if let Err(error) = set {
            eprintln!("skipped: {name} cannot be set here: {error}");
        }
    }
    assert!(tree.whole().tree == before.tree);
}

/// An edit that keeps size and time is found.
#[test]
fn m61_an_edit_with_its_time_restored_is_found() {
    let tree = Tree::new();
    tree.write("file", "one");
    let (before, time) = (tree.whole(), fs::metadata(tree.at("file")).unwrap());
    tree.write("file", "two");
    let written = fs::File::options()
        .write(true)
        .open(tree.at("file"))
        .unwrap();
    written.set_modified(time.modified().unwrap()).unwrap();
    let after = tree.whole();
    assert_ne!(after.tree.hash(), before.tree.hash());
    assert_eq!(file(&after.tree, "file").content, ContentId::of(b"two"));
    let stamps = [before, after].map(|scan| *scan.stamps.get(&path("file")).unwrap());
    assert_eq!(stamps[0].modified, stamps[1].modified);
}

/// A hole is hashed without being read, wherever it begins and ends.
#[test]
fn a_hole_costs_no_reading() {
    let tree = Tree::new();
    let size = 100 * 1024 * 1024 + 777;
    let sparse = fs::File::create(tree.at("sparse")).unwrap();
    sparse.set_len(size).unwrap();
    for at in [
        0,
        5 * GROUP,
        5 * GROUP + 4_095,
        900 * GROUP - 1,
        1_000 * GROUP + 17,
    ] {
        sparse.write_all_at(b"data", at).unwrap();
    }
    let empty = fs::File::create(tree.at("empty")).unwrap();
    empty.set_len(size).unwrap();
    let wanted = ["sparse", "empty"].map(|name| {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(fs::File::open(tree.at(name)).unwrap())
            .unwrap();
        ContentId(*hasher.finalize().as_bytes())
    });
    let scan = tree.whole();
    let found = ["sparse", "empty"].map(|name| file(&scan.tree, name).content);
    assert_eq!(found, wanted);
    assert_eq!(scan.tree.totals().bytes, 2 * size, "holes count");
    assert!(scan.effort.bytes < 4 * 1024 * 1024, "{:?}", scan.effort);
}

/// What another file system is mounted on is told and not entered.
#[test]
fn a_mountpoint_is_not_entered() {
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let done = Command::new("umount").arg("-l").arg(&self.0).status();
            assert!(done.unwrap().success());
        }
    }
    let tree = Tree::new();
    fs::create_dir(tree.at("mount")).unwrap();
    tree.write("file", "over");
    tree.write("same/inside", "x");
    let mut mounted = Vec::new();
    for (from, to, flag) in [
        ("none", "mount", ["-t", "tmpfs"].as_slice()),
        ("same", "bound", &["--bind"]),
        ("same/inside", "file", &["--bind"]),
    ] {
        fs::create_dir_all(tree.at("bound")).unwrap();
        let from = if from == "none" {
            from.into()
        } else {
            tree.at(from)
        };
        let done = Command::new("mount")
            .args(flag)
            .arg(from)
            .arg(tree.at(to))
            .output();
        if !done.is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return;
        }
        mounted.push(Mounted(tree.at(to)));
    }
    fs::write(tree.at("mount/hidden"), "").unwrap();
    let scans = [tree.whole(), tree.scan_walking()];
    for scan in scans {
        assert_eq!(scan.problems, []);
        assert_eq!(
            paths(&scan.tree),
            ["bound", "file", "mount", "same", "same/inside"]
        );
        for at in ["bound", "file", "mount"] {
            let found = scan.tree.find(&path(at));
            assert_eq!(
                found,
                Some(&Entry::Special(SpecialKind::Mountpoint)),
                "{at}"
            );
        }
    }
}

/// An excluded directory is not entered, an excluded file not opened.
#[test]
fn what_is_left_out_is_not_looked_at() {
    let tree = Tree::new();
    for name in ["kept", "build/x", "d/build/y", "d/kept"] {
        tree.write(name, name);
    }
    let skip = |at: &labproxy::tree::path::RelPath, is_directory: bool| {
        let name = at.split_last().map(|(_, name)| name);
        is_directory && name == Name::new(*b"build").ok()
    };
    let root = Root::open(&tree.path()).unwrap();
    let scan = tree.scan_with(&root, 2, Some(&skip)).unwrap();
    assert_eq!(paths(&scan.tree), ["d", "d/kept", "kept"]);
    assert!(scan.is_complete());
    let totals = Totals {
        entries: 3,
        files: 2,
        bytes: 10,
    };
    assert_eq!(scan.tree.totals(), totals);
}
