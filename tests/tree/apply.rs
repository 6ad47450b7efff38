//! What each kind of step does.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use labproxy::tree::apply::{Apply, Call, Contents, Failure, Modes, is_unfinished};
use labproxy::tree::entry::File;
use labproxy::tree::root::Root;
use rustix::io::Errno;

use crate::apply_rig::{
    Memory, Node, Place, Tree, before_and_after, copy, directory, executable, file, link, path,
    plan, remove, rename, scan, symlink, tree, write,
};

/// A tree becomes another one that differs by every kind of change, kinds included, on file systems
/// that lack any of what is tried first.
#[test]
fn every_kind_of_change_is_made_wherever_it_is() {
    let (before, after) = before_and_after();
    let memory = Memory::of_tree(&after);
    for lacking in 0..16_u32 {
        let place = Place::new(&before);
        let (now, stamps) = scan(&place.root);
        let root = Root::open(&place.root).unwrap();
        let ask = |call| match call {
            Call::CreateUnnamed if lacking & 1 != 0 => Err(Errno::OPNOTSUPP),
            Call::Exchange if lacking & 2 != 0 => Err(Errno::INVAL),
            Call::RenameNew if lacking & 4 != 0 => Err(Errno::INVAL),
            Call::Clone if lacking & 8 != 0 => Err(Errno::OPNOTSUPP),
            _ => Ok(()),
        };
        let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
            .unwrap()
            .asking(&ask);
        let steps = plan(&now, &after);
        let applied = apply.run(&steps);
        assert!(applied.is_whole(), "{lacking}: {applied:?}");
        assert_eq!(applied.done, u64::try_from(steps.len()).unwrap());
        assert_eq!(place.now(), after, "{lacking}");
        // What the applier says is there now is there.
        let (_, stamps) = scan(&place.root);
        for (at, stamp) in apply.into_changes() {
            if stamp.is_none_or(|stamp| rustix::fs::FileType::from_raw_mode(stamp.mode).is_file()) {
                assert_eq!(stamps.get(&at), stamp.as_ref(), "{at:?}");
            }
        }
    }
}

/// Links are made as the text that they are, whatever it says, and nothing here follows one.
#[test]
fn m06_links_are_text() {
    let place = Place::new(&Tree::new());
    let all = ["..", "../outside", "/", "/etc/passwd", "y/../..", ".", "d"];
    let mut steps: Vec<_> = (0..)
        .zip(all)
        .map(|(at, text)| symlink(&format!("l{at}"), text))
        .collect();
    steps.extend((0..all.len()).map(|at| write(&format!("l{at}/below"), b"x")));
    steps.push(directory("l1/directory"));
    let applied = place.apply(&Memory::of(&[b"x"]), &steps);
    assert_eq!(applied.done, u64::try_from(all.len()).unwrap());
    assert_eq!(applied.kept.len(), all.len() + 1);
    let links = (0..)
        .zip(all)
        .map(|(at, text)| (path(&format!("l{at}")), link(text)));
    assert_eq!(place.now(), links.collect());
    assert_eq!(place.victims(), Tree::new());
}

/// Modes are those that were asked for, whatever the umask is, and the executable bit goes both
/// ways without a change of anything else, round after round.
///
/// A umask is a process's, so this is one of its own.
#[test]
fn m56_modes_are_exact() {
    let output = Command::new("sh")
        .args(["-c", "umask 077; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "apply::modes_under_a_umask", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{output:?}");
}

/// Also passes by itself, under any umask.
#[test]
#[ignore = "started by another test under a umask"]
fn modes_under_a_umask() {
    let memory = Memory::of(&[b"x", b"y"]);
    for modes in [Modes::SHARED, Modes::PRIVATE] {
        let place = Place::new(&Tree::new());
        let mode = |at: &str| place.at(at).metadata().unwrap().mode() & 0o7777;
        let run = |steps: &[_]| {
            let (_, stamps) = scan(&place.root);
            let root = Root::open(&place.root).unwrap();
            let applied = Apply::new(&root, &stamps, &memory, modes)
                .unwrap()
                .run(steps);
            assert!(applied.is_whole(), "{applied:?}");
        };
        run(&[directory("d"), write("d/f", b"x")]);
        let inode = place.at("d/f").metadata().unwrap().ino();
        for _ in 0..3 {
            run(&[executable("d/f", true)]);
            assert_eq!(mode("d/f"), modes.executable.as_raw_mode());
            run(&[executable("d/f", false)]);
            assert_eq!(mode("d/f"), modes.file.as_raw_mode());
        }
        assert_eq!(inode, place.at("d/f").metadata().unwrap().ino());
        assert_eq!(mode("d"), modes.directory.as_raw_mode());
        // Bits that are never applied are not kept by a change of the one that is.
        fs::set_permissions(place.at("d/f"), fs::Permissions::from_mode(0o6644)).unwrap();
        run(&[executable("d/f", true)]);
        assert_eq!(mode("d/f"), 0o755);
    }
}

/// Nothing but bytes and the executable bit comes to a new file: not the extended attributes of
/// what it replaces, nor of what it is copied from.
#[test]
fn m28_extended_attributes_are_never_applied() {
    let place = Place::new(&tree(&[("a", file(b"one")), ("b", file(b"two"))]));
    let value = vec![b'v'; 3_000];
    for name in ["a", "b"] {
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(place.at(name), "user.label", &value, flags).is_err() {
            eprintln!("not shown here: the file system has no extended attributes");
            return;
        }
    }
    let steps = [
        copy("a", "c", b"one"),
        write("b", b"three"),
        rename("a", "d"),
    ];
    let applied = place.apply(&Memory::of(&[b"three"]), &steps);
    assert!(applied.is_whole(), "{applied:?}");
    let mut list = [0; 100];
    let mut length = |name| rustix::fs::listxattr(place.at(name), &mut list).unwrap();
    assert_eq!((length("b"), length("c")), (0, 0));
    // It is the same inode with all that it has.
    assert!(length("d") > 0);
}

/// Bytes that are not the file's never get a name, also not for a moment.
#[test]
fn wrong_content_changes_nothing() {
    let large = vec![1; 3_000_000];
    let mut other = large.clone();
    other[2_999_999] = 2;
    let mut memory = Memory::default();
    let place = Place::new(&tree(&[("old", file(b"old"))]));
    for (wanted, given) in [
        (&b"right"[..], &b"wrong"[..]),
        (b"right", b"righ"),
        (b"right", b"right!"),
        (b"right", b""),
        (b"", b"x"),
        (&large, &large[1..]),
        (&large, b"short"),
        (&large, &other),
        (&large[1..], &large),
    ] {
        memory.lie(wanted, given);
        let steps = [write("new", wanted), write("old", wanted)];
        let applied = place.apply(&memory, &steps);
        let failed = [path("new"), path("old")].map(|at| (at, Failure::WrongContent));
        assert_eq!(applied.failed, failed);
        assert_eq!(place.now(), tree(&[("old", file(b"old"))]));
    }
    let missing = place.apply(&Memory::default(), &[write("new", b"nowhere")]);
    let none = Failure::NoContent(io::ErrorKind::NotFound);
    assert_eq!(missing.failed, [(path("new"), none)]);
}

/// Gives a hundred megabytes whatever is asked for, and counts what is taken.
struct TooMuch(AtomicU64);

impl Contents for TooMuch {
    fn open(&self, _file: &File) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(Counted(io::repeat(1).take(100 << 20), &self.0)))
    }
}

struct Counted<'a>(io::Take<io::Repeat>, &'a AtomicU64);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buffer)?;
        self.1
            .fetch_add(u64::try_from(got).unwrap(), Ordering::Relaxed);
        Ok(got)
    }
}

/// A content that goes on and on is not taken beyond the file's size by more than a buffer.
#[test]
fn a_content_without_end_is_given_up_at_its_size() {
    const MIB: usize = 1024 * 1024;
    for size in [10, 5 * MIB] {
        let place = Place::new(&Tree::new());
        let (_, stamps) = scan(&place.root);
        let root = Root::open(&place.root).unwrap();
        let contents = TooMuch(AtomicU64::new(0));
        let mut apply = Apply::new(&root, &stamps, &contents, Modes::SHARED).unwrap();
        let applied = apply.run(&[write("f", &vec![1; size])]);
        assert_eq!(applied.failed, [(path("f"), Failure::WrongContent)]);
        let taken = contents.0.into_inner();
        assert!(taken <= u64::try_from(size + 2 * MIB).unwrap(), "{taken}");
        assert_eq!(place.now(), Tree::new());
    }
}

/// Runs of zeros take no room, in the middle as at the end, by a write as by a copy.
#[test]
fn holes_stay_holes() {
    const MIB: usize = 1024 * 1024;
    let mut bytes = vec![7; 16 * MIB];
    bytes[MIB + 5..6 * MIB].fill(0);
    bytes[8 * MIB..].fill(0);
    let small = vec![0; 200_000];
    let place = Place::new(&Tree::new());
    let memory = Memory::of(&[&bytes, &small]);
    let steps = [write("a", &bytes), write("small", &small)];
    assert!(place.apply(&memory, &steps).is_whole());
    assert!(place.apply(&memory, &[copy("a", "b", &bytes)]).is_whole());
    for name in ["a", "b"] {
        assert!(fs::read(place.at(name)).unwrap() == bytes, "{name}");
        let blocks = place.at(name).metadata().unwrap().blocks();
        assert!(blocks * 512 < 4 * 1024 * 1024, "{name}: {blocks} blocks");
    }
    assert_eq!(fs::read(place.at("small")).unwrap(), small);
    assert!(place.at("small").metadata().unwrap().blocks() <= 8);
}

/// A directory moves with all that is in it, and what follows knows where everything went.
#[test]
fn what_moved_is_known_in_its_new_place() {
    let place = Place::new(&tree(&[
        ("a", Node::Directory),
        ("a/b", Node::Directory),
        ("a/b/f", file(b"1")),
        ("a/g", file(b"2")),
    ]));
    let steps = [
        rename("a/g", "h"),
        rename("a", "z"),
        write("z/b/f", b"3"),
        rename("z/b", "b"),
        executable("b/f", true),
        remove("h"),
        write("a", b"3"),
        copy("b/f", "c", b"3"),
    ];
    let applied = place.apply(&Memory::of(&[b"3"]), &steps);
    assert!(applied.is_whole(), "{applied:?}");
    let executable = Node::File {
        bytes: b"3".to_vec(),
        executable: true,
    };
    let wanted = tree(&[
        ("a", file(b"3")),
        ("b", Node::Directory),
        ("b/f", executable),
        ("c", file(b"3")),
        ("z", Node::Directory),
    ]);
    assert_eq!(place.now(), wanted);
}

/// Many files at once, with copies of files that are replaced at the same time: the same as one
/// after the other.
#[test]
fn files_that_are_written_at_once_keep_their_order() {
    let name = |at: usize| format!("f{at}");
    let bytes = |at: usize| format!("content {at}").into_bytes();
    let before: Tree = (0..400)
        .map(|at| (path(&name(at)), file(&bytes(at))))
        .collect();
    let mut wanted = Tree::new();
    let mut steps = Vec::new();
    let mut contents = Vec::new();
    for at in 0..400 {
        steps.push(copy(&name(at), &format!("copy{at}"), &bytes(at)));
        wanted.insert(path(&format!("copy{at}")), file(&bytes(at)));
        steps.push(write(&name(at), &bytes(at + 1000)));
        wanted.insert(path(&name(at)), file(&bytes(at + 1000)));
        contents.push(bytes(at + 1000));
    }
    let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let memory = Memory::of(&contents);
    let place = Place::new(&before);
    let applied = place.apply(&memory, &steps);
    assert!(applied.is_whole(), "{applied:?}");
    assert_eq!(place.now(), wanted);
    // In groups of one kind they really are at once.
    let place = Place::new(&before);
    steps.sort_by_key(|step| matches!(step, labproxy::tree::step::Step::Write { .. }));
    assert!(place.apply(&memory, &steps).is_whole());
    assert_eq!(place.now(), wanted);
    assert!(!wanted.keys().any(|at| is_unfinished(at.as_bytes())));
}
