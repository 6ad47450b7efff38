//! What changed since the scan stays as it is, and nothing outside the root is touched.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink as link_to};

use labproxy::tree::apply::{Failure, Why};
use labproxy::tree::step::Step;
use rustix::fs::IFlags;
use rustix::io::Errno;

use crate::apply_rig::{
    Memory, Node, Place, Tree, copy, directory, executable, file, kept, link, path, remove,
    remove_directory, rename, symlink, tree, write,
};

/// A symlink with entries below it, as a hostile list has them: nothing is made below it.
#[test]
fn m05_nothing_is_made_below_a_link() {
    let place = Place::new(&tree(&[("d", Node::Directory)]));
    let outside = place.outside.to_str().unwrap();
    let steps = [
        symlink("a", outside),
        write("a/b", b"x"),
        directory("a/c"),
        symlink("a/l", "x"),
        rename("d", "a/d"),
        copy("a/b", "e", b"x"),
    ];
    let applied = place.apply(&Memory::of(&[b"x"]), &steps);
    let wanted = [
        ("a/b", Why::ParentChanged),
        ("a/c", Why::ParentChanged),
        ("a/l", Why::ParentChanged),
        ("a/d", Why::ParentChanged),
        ("e", Why::SourceChanged),
    ];
    assert_eq!(kept(&applied), wanted);
    assert_eq!(place.victims(), Tree::new());
    assert_eq!(
        place.now(),
        tree(&[("a", link(outside)), ("d", Node::Directory)])
    );
}

/// A link that stands where a file, or a directory of it, comes: the link is replaced, or nothing is
/// done; what it leads to is untouched.
#[test]
fn m16_a_link_in_the_way_is_replaced_and_not_followed() {
    let place = Place::new(&tree(&[("d", Node::Directory), ("d/f", file(b"old"))]));
    fs::write(place.outside.join("f"), "victim").unwrap();
    link_to(place.outside.join("f"), place.at("t")).unwrap();
    let steps = [
        write("t", b"x"),
        write("d/f", b"x"),
        remove("d/f"),
        executable("d/f", true),
        remove_directory("d"),
    ];
    let applied = place.apply_after(&Memory::of(&[b"x"]), &steps, || {
        fs::rename(place.at("d"), place.at("away")).unwrap();
        link_to(&place.outside, place.at("d")).unwrap();
    });
    assert_eq!(
        kept(&applied),
        [("d/f", Why::ParentChanged), ("d", Why::Changed)]
    );
    assert_eq!(applied.done, 1);
    assert_eq!(place.now()[&path("t")], file(b"x"));
    assert_eq!(place.victims(), tree(&[("f", file(b"victim"))]));
}

/// A directory in the place of the one that was scanned is not written to, nor is its content
/// touched: what was seen is somewhere else by now.
#[test]
fn another_directory_in_the_place_of_a_parent_is_left_alone() {
    let before = tree(&[("d", Node::Directory), ("d/f", file(b"old"))]);
    let place = Place::new(&before);
    let steps = [
        write("d/new", b"new"),
        write("d/f", b"new"),
        directory("d/below"),
        remove("d/f"),
    ];
    let applied = place.apply_after(&Memory::of(&[b"new"]), &steps, || {
        fs::rename(place.at("d"), place.at("away")).unwrap();
        fs::create_dir(place.at("d")).unwrap();
        fs::hard_link(place.at("away/f"), place.at("d/f")).unwrap();
    });
    let wanted = ["d/new", "d/f", "d/below"].map(|at| (at, Why::ParentChanged));
    assert_eq!(kept(&applied), wanted);
    let wanted = [("d", Node::Directory), ("d/f", file(b"old"))];
    let away = [("away", Node::Directory), ("away/f", file(b"old"))];
    assert_eq!(place.now(), tree(&[wanted, away].concat()));
}

/// Every step leaves alone what a user did after the scan, lists it once, and the rest is done.
#[test]
fn t30_edits_since_the_scan_survive() {
    let before = tree(&[
        ("d", Node::Directory),
        ("edited", file(b"old")),
        ("e", Node::Directory),
        ("removed", file(b"old")),
        ("replaced", file(b"old")),
        ("times", file(b"old")),
        ("untouched", file(b"old")),
    ]);
    let memory = Memory::of(&[b"new"]);
    let tries: [fn(&str) -> Step; 6] = [
        |at| write(at, b"new"),
        |at| symlink(at, "text"),
        |at| executable(at, true),
        remove,
        |at| rename(at, "moved"),
        |at| copy("untouched", at, b"old"),
    ];
    for make in tries {
        let place = Place::new(&before);
        let steps = [
            make("edited"),
            make("replaced"),
            make("times"),
            directory("taken"),
            write("taken-file", b"new"),
            symlink("taken-link", "x"),
            remove_directory("d"),
            remove_directory("e"),
            write("untouched", b"new"),
        ];
        let applied = place.apply_after(&memory, &steps, || edit(&place));
        let kept = kept(&applied);
        assert_eq!(
            kept.len(),
            if kept[0].0 == "moved" { 6 } else { 8 },
            "{kept:?}"
        );
        let why = |at: &str| {
            kept.iter()
                .find(|(path, _)| *path == at)
                .map(|(_, why)| why)
        };
        assert_eq!(why("d"), Some(&Why::NotEmpty));
        assert_eq!(why("e"), Some(&Why::Changed));
        assert_eq!(applied.done, 1);
        let now = place.now();
        assert_eq!(now[&path("edited")], file(b"my own edit"));
        assert_eq!(now[&path("replaced")], file(b"mine"));
        assert_eq!(now[&path("times")], file(b"own"));
        assert_eq!(now[&path("taken")], file(b"mine"));
        assert_eq!(now[&path("taken-file")], file(b"mine"));
        assert_eq!(now[&path("untouched")], file(b"new"));
        assert_eq!(now.len(), 10);
    }
}

/// What a user does between a scan and an apply.
fn edit(place: &Place) {
    let write = |at: &str, text: &str| fs::write(place.at(at), text).unwrap();
    write("edited", "my own edit");
    write("other", "mine");
    fs::rename(place.at("other"), place.at("replaced")).unwrap();
    // The same size and the same time.
    let seen = place.at("times").metadata().unwrap();
    write("times", "own");
    let opened = fs::File::options().write(true).open(place.at("times"));
    opened
        .unwrap()
        .set_modified(seen.modified().unwrap())
        .unwrap();
    for name in ["taken", "taken-file", "taken-link", "d/new", "e2"] {
        write(name, "mine");
    }
    fs::remove_dir(place.at("e")).unwrap();
    fs::rename(place.at("e2"), place.at("e")).unwrap();
    fs::remove_file(place.at("removed")).unwrap();
}

/// What is gone needs no removing, and cannot be replaced, moved or copied.
#[test]
fn what_is_gone_is_told() {
    let before = tree(&[("d", Node::Directory), ("f", file(b"old"))]);
    let memory = Memory::of(&[b"new"]);
    for (step, why) in [
        (write("f", b"new"), Some(Why::Gone)),
        (symlink("f", "x"), Some(Why::Gone)),
        (executable("f", true), Some(Why::Gone)),
        (rename("f", "g"), Some(Why::SourceChanged)),
        (copy("f", "g", b"old"), Some(Why::SourceChanged)),
        (remove("f"), None),
        (remove_directory("d"), None),
    ] {
        let place = Place::new(&before);
        let applied = place.apply_after(&memory, std::slice::from_ref(&step), || {
            fs::remove_file(place.at("f")).unwrap();
            fs::remove_dir(place.at("d")).unwrap();
        });
        let wanted: Vec<_> = why
            .into_iter()
            .map(|why| (step.target().clone(), why))
            .collect();
        assert_eq!(applied.kept, wanted, "{step:?}");
        assert_eq!(place.now(), Tree::new());
    }
}

/// A copy is made of what it says or not at all.
#[test]
fn a_copy_of_something_else_is_not_made() {
    let before = tree(&[("f", file(b"old")), ("link", link("f"))]);
    let place = Place::new(&before);
    let steps = [
        copy("f", "a", b"other"),
        copy("f", "b", b"ol"),
        copy("f", "c", b"older"),
        copy("link", "d", b"old"),
        copy("nothing", "e", b"old"),
    ];
    let applied = place.apply(&Memory::default(), &steps);
    assert_eq!(applied.kept.len(), steps.len());
    let changed = |(_, why): &(_, Why)| *why == Why::SourceChanged;
    assert!(applied.kept.iter().all(changed), "{applied:?}");
    assert_eq!(place.now(), before);
}

/// Other names of an inode, anywhere, keep their bytes and their modes.
#[test]
fn t32_hard_links_are_never_written_through() {
    let names = ["copied", "executable", "linked", "removed", "written"];
    let before = names.map(|name| (name, file(b"victim")));
    let place = Place::new(&tree(&before));
    for name in names {
        fs::hard_link(place.at(name), place.outside.join(name)).unwrap();
    }
    let seen = |name: &str| {
        let seen = place.outside.join(name).metadata().unwrap();
        (seen.ino(), seen.mode(), seen.mtime(), seen.mtime_nsec())
    };
    let was = names.map(seen);
    let steps = [
        write("written", b"x"),
        executable("executable", true),
        remove("removed"),
        symlink("linked", "text"),
        copy("executable", "copied", b"victim"),
    ];
    let applied = place.apply(&Memory::of(&[b"x"]), &steps);
    assert!(applied.is_whole(), "{applied:?}");
    assert_eq!(names.map(seen), was);
    assert_eq!(place.victims(), tree(&before));
    let inode = |at: &str| place.at(at).metadata().unwrap().ino();
    assert_ne!(inode("executable"), seen("executable").0);
    assert_eq!(
        place.at("executable").metadata().unwrap().mode() & 0o777,
        0o755
    );
    assert_eq!(fs::read(place.at("executable")).unwrap(), b"victim");
    assert_ne!(inode("copied"), inode("executable"));
}

/// Two names of one inode are both replaced: our own step on the one is no change of the other.
#[test]
fn m54_both_names_of_an_inode_are_replaced() {
    let place = Place::new(&tree(&[("a", file(b"old"))]));
    fs::hard_link(place.at("a"), place.at("b")).unwrap();
    fs::hard_link(place.at("a"), place.at("c")).unwrap();
    let steps = [write("a", b"1"), remove("b"), write("c", b"2")];
    let applied = place.apply(&Memory::of(&[b"1", b"2"]), &steps);
    assert!(applied.is_whole(), "{applied:?}");
    assert_eq!(place.now(), tree(&[("a", file(b"1")), ("c", file(b"2"))]));
}

/// A directory that gives way to a file but holds an excluded one stays, listed once; so does one
/// that changed. The rest is done.
#[test]
fn m37_a_directory_that_is_not_empty_stays_and_is_listed_once() {
    let before = tree(&[
        ("d", Node::Directory),
        ("d/excluded", file(b"mine")),
        ("f", file(b"old")),
    ]);
    let place = Place::new(&before);
    let steps = [
        write("a", b"new"),
        remove("f"),
        remove_directory("d"),
        directory("f"),
        write("d", b"new"),
        write("f/below", b"new"),
        write("z", b"new"),
    ];
    let applied = place.apply_after(&Memory::of(&[b"new"]), &steps, || {
        fs::write(place.at("f"), "my edit").unwrap();
    });
    let wanted = [
        ("f", Why::Changed),
        ("d", Why::NotEmpty),
        ("f/below", Why::ParentChanged),
    ];
    assert_eq!(kept(&applied), wanted);
    assert_eq!((applied.done, applied.failed.len()), (2, 0));
    let again = place.apply(&Memory::of(&[b"new"]), &[write("d", b"new")]);
    assert_eq!(kept(&again), [("d", Why::DirectoryStands)]);
    assert_eq!(place.now()[&path("d/excluded")], file(b"mine"));
}

/// Nothing is moved onto what stands there.
#[test]
fn a_move_never_replaces() {
    let before = tree(&[
        ("a", file(b"1")),
        ("b", file(b"2")),
        ("d", Node::Directory),
        ("e", Node::Directory),
    ]);
    let place = Place::new(&before);
    let steps = [rename("a", "b"), rename("d", "e"), rename("a", "late")];
    let applied = place.apply_after(&Memory::default(), &steps, || {
        fs::write(place.at("late"), "mine").unwrap();
    });
    assert_eq!(
        kept(&applied),
        [
            ("b", Why::Changed),
            ("e", Why::Changed),
            ("late", Why::Changed)
        ]
    );
    let mut wanted = before;
    wanted.insert(path("late"), file(b"mine"));
    assert_eq!(place.now(), wanted);
    let into_itself = place.apply(&Memory::default(), &[rename("d", "d/x")]);
    assert_eq!(
        into_itself.failed,
        [(path("d/x"), Failure::System(Errno::INVAL))]
    );
}

/// An immutable file fails alone, once, and the rest is done.
#[test]
fn m39_an_immutable_file_fails_alone() {
    let before = ["a", "b", "c"].map(|name| (name, file(b"old")));
    let place = Place::new(&tree(&before));
    let opened = fs::File::open(place.at("b")).unwrap();
    if rustix::fs::ioctl_setflags(&opened, IFlags::IMMUTABLE).is_err() {
        eprintln!("not shown here: only root may make a file immutable");
        return;
    }
    let memory = Memory::of(&[b"new"]);
    for step in [
        write("b", b"new"),
        remove("b"),
        rename("b", "z"),
        executable("b", true),
    ] {
        let steps = [write("a", b"new"), step, write("c", b"new")];
        let applied = place.apply(&memory, &steps);
        let target = steps[1].target().clone();
        assert_eq!(applied.failed, [(target, Failure::System(Errno::PERM))]);
        assert_eq!((applied.done, &applied.kept[..]), (2, &[][..]));
        assert_eq!(place.now().len(), 3);
    }
    rustix::fs::ioctl_setflags(&opened, IFlags::empty()).unwrap();
    assert_eq!(place.now()[&path("b")], file(b"old"));
}

/// A root that was removed ends the work at once.
#[test]
fn m33_a_root_that_is_gone_ends_the_work() {
    let place = Place::new(&tree(&[("d", Node::Directory)]));
    let steps = [
        write("d/a", b"new"),
        write("d/b", b"new"),
        write("c", b"new"),
    ];
    let applied = place.apply_after(&Memory::of(&[b"new"]), &steps, || {
        fs::remove_dir_all(&place.root).unwrap();
    });
    assert_eq!(
        applied.stopped,
        Some(labproxy::tree::apply::Fatal::RootGone)
    );
    assert_eq!((applied.done, applied.failed.len()), (0, 0));
}
