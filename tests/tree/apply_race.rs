//! Directories that are swapped for links while files are written into them.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink as link_to};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::tree::apply::{Applied, Apply, Modes};
use labproxy::tree::beneath::Beneath;
use labproxy::tree::root::Root;
use labproxy::tree::step::Step;
use rustix::fs::RenameFlags;

use crate::apply_rig::{
    Memory, Node, Place, Tree, copy, directory, executable, file, path, remove, rename, scan,
    symlink, tree, write,
};

const FLIPS: u32 = 60_000;
const FILES: usize = 20_000;

/// Applies steps while the directory `d` and the link `l` to a directory outside change places,
/// at least so many times.
fn flipped(place: &Place, beneath: Beneath, steps: &[Step], least: u32) -> Applied {
    link_to(&place.outside, place.at("l")).unwrap();
    let (_, stamps) = scan(&place.root);
    let root = Root::open_with(&place.root, beneath).unwrap();
    let memory = Memory::of(&[b"x"]);
    let flips = AtomicU32::new(0);
    let written = AtomicBool::new(false);
    let here = File::open(&place.root).unwrap();
    let flip = || {
        rustix::fs::renameat_with(&here, "d", &here, "l", RenameFlags::EXCHANGE).unwrap();
        flips.fetch_add(1, Ordering::Relaxed);
    };
    // However busy the machine is, there are flips between the calls.
    let calls = AtomicU32::new(0);
    let ask = |_| {
        if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(512) {
            let before = flips.load(Ordering::Relaxed);
            while flips.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
        Ok(())
    };
    let applied = std::thread::scope(|scope| {
        let flipping = scope.spawn(|| {
            while flips.load(Ordering::Relaxed) < least || !written.load(Ordering::Relaxed) {
                flip();
            }
        });
        let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
            .unwrap()
            .asking(&ask);
        let applied = apply.run(steps);
        written.store(true, Ordering::Relaxed);
        flipping.join().unwrap();
        applied
    });
    if place.at("d").is_symlink() {
        flip();
    }
    assert!(applied.stopped.is_none(), "{:?}", applied.stopped);
    assert!(applied.failed.is_empty(), "{:?}", applied.failed);
    // The race was one: both were met.
    assert!(applied.done > 0 && !applied.kept.is_empty());
    applied
}

/// 60,000 times a directory and a link to a directory outside change places while 20,000 files are
/// made in it: not one of them is outside, by both ways of opening.
#[test]
fn m08_m12_no_file_lands_behind_a_link() {
    for beneath in [Beneath::default(), Beneath::walking()] {
        let place = Place::new(&tree(&[("d", Node::Directory)]));
        let steps: Vec<Step> = (0..FILES)
            .map(|at| write(&format!("d/{at}"), b"x"))
            .collect();
        let applied = flipped(&place, beneath, &steps, FLIPS);
        assert_eq!(place.victims(), Tree::new());
        let made = place.now().len() - 2;
        assert_eq!(u64::try_from(made).unwrap(), applied.done);
        assert_eq!(made + applied.kept.len(), FILES);
    }
}

/// The same while what stands in the directory is replaced, moved, removed and made executable:
/// what has the same names outside is not touched.
#[test]
fn m08_m12_nothing_behind_a_link_is_changed() {
    let mut before = tree(&[("d", Node::Directory)]);
    for at in 0..4_000 {
        before.insert(path(&format!("d/{at}")), file(b"old"));
    }
    let kinds: [fn(&str) -> Step; 7] = [
        |at| write(at, b"x"),
        remove,
        |at| executable(at, true),
        |at| rename(at, &format!("{at}-moved")),
        |at| copy(at, &format!("{at}-copied"), b"old"),
        |at| symlink(at, "text"),
        |at| directory(&format!("{at}-directory")),
    ];
    let steps: Vec<Step> = (0..4_000)
        .map(|at| kinds[at % kinds.len()](&format!("d/{at}")))
        .collect();
    for beneath in [Beneath::default(), Beneath::walking()] {
        let place = Place::new(&before);
        for at in 0..4_000 {
            fs::write(place.outside.join(at.to_string()), "victim").unwrap();
        }
        let seen = || -> Vec<(u64, u32, i64)> {
            let seen = (0..4_000).map(|at| place.outside.join(at.to_string()).metadata());
            seen.map(|it| it.map(|it| (it.ino(), it.mode(), it.ctime_nsec())))
                .collect::<Result<_, _>>()
                .unwrap()
        };
        let (victims, was) = (place.victims(), seen());
        let applied = flipped(&place, beneath, &steps, 0);
        assert_eq!(place.victims(), victims);
        assert_eq!(seen(), was);
        let over = applied.done + u64::try_from(applied.kept.len()).unwrap();
        assert_eq!(over, u64::try_from(steps.len()).unwrap());
    }
}
