//! A scan, a plan and an apply together, cut off anywhere.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::mirror::plan::{Options as PlanOptions, PARKED, plan};
use labproxy::tree::apply::{Applied, Apply, Fatal, Modes, is_unfinished, sweep};
use labproxy::tree::directory::Directory;
use labproxy::tree::limits::Limits;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{Options, Progress, Scan, scan};
use rustix::io::Errno;

use crate::apply_rig::{Memory, Node, Place, Tree, before_and_after, file, path, tree};

fn scanned(place: &Place, root: &Root) -> Scan {
    let options = Options {
        limits: Limits::default(),
        threads: 1,
        skip: None,
        progress: &Progress::default(),
        cancel: &AtomicBool::new(false),
    };
    let scan = scan(root, &place.root, options).unwrap();
    assert!(scan.is_complete(), "{:?}", scan.problems);
    scan
}

/// Does what is planned, until `cut` calls were made; how many there were.
fn pass(place: &Place, wanted: &Directory, memory: &Memory, cut: u32) -> (Applied, u32) {
    let root = Root::open(&place.root).unwrap();
    let seen = scanned(place, &root);
    let planned = plan(wanted, &seen.tree, PlanOptions::default());
    assert!(planned.kept.is_empty() && planned.not_mirrored.is_empty());
    let calls = AtomicU32::new(0);
    let ask = |_| {
        let done = calls.fetch_add(1, Ordering::Relaxed);
        if done < cut { Ok(()) } else { Err(Errno::IO) }
    };
    let mut apply = Apply::new(&root, &seen.stamps, memory, Modes::SHARED)
        .unwrap()
        .asking(&ask);
    let applied = apply.run(&planned.steps);
    drop(apply);
    (applied, calls.into_inner())
}

/// Trees that share contents: files that change places, a renamed directory, a name that becomes a
/// directory whose old content goes on below it.
fn shuffled() -> (Tree, Tree) {
    let (mut before, mut after) = before_and_after();
    let large: Vec<u8> = (0..=250).cycle().take(300_000).collect();
    for (place, one, other) in [("s/x", 0, 1), ("s/y", 1, 2), ("s/z", 2, 0)] {
        before.insert(path(place), file(format!("ring {one}").as_bytes()));
        after.insert(path(place), file(format!("ring {other}").as_bytes()));
    }
    before.extend(tree(&[
        ("s", Node::Directory),
        ("old", Node::Directory),
        ("old/1", file(b"first")),
        ("old/2", file(&large)),
        ("old/deep", Node::Directory),
        ("old/deep/3", file(b"third")),
        ("down", file(b"goes down")),
    ]));
    after.extend(tree(&[
        ("s", Node::Directory),
        ("renamed", Node::Directory),
        ("renamed/1", file(b"first")),
        ("renamed/2", file(&large)),
        ("renamed/deep", Node::Directory),
        ("renamed/deep/3", file(b"third")),
        ("copy", file(&large)),
        ("down", Node::Directory),
        ("down/below", file(b"goes down")),
    ]));
    (before, after)
}

/// Whatever was done when it was cut off, a new scan and a new plan finish it, and until then every
/// path has what it had or what it shall have.
#[test]
fn m64_a_plan_that_is_cut_off_anywhere_is_finished_by_the_next() {
    let (before, after) = shuffled();
    let goal = Place::new(&after);
    let wanted = scanned(&goal, &Root::open(&goal.root).unwrap()).tree;
    let memory = Memory::of_tree(&after);
    for cut in 0_u32.. {
        let place = Place::new(&before);
        let (applied, _) = pass(&place, &wanted, &memory, cut);
        let whole = applied.is_whole();
        assert_eq!(
            applied.stopped,
            (!whole).then_some(Fatal::Io),
            "{applied:?}"
        );
        for (at, node) in &place.now() {
            let (_, name) = at.split_last().unwrap();
            let ours =
                is_unfinished(name.as_bytes()) || at.as_bytes().starts_with(PARKED.as_bytes());
            let known = before.get(at) == Some(node) || after.get(at) == Some(node);
            assert!(ours || known, "{cut}: {at:?}");
        }
        let (rest, calls) = pass(&place, &wanted, &memory, u32::MAX);
        assert!(rest.is_whole(), "{cut}: {rest:?}");
        assert!(place.now() == after, "{cut}");
        if whole {
            assert_eq!(calls, 0, "nothing is left to do");
            assert!(cut > 50, "only {cut} calls");
            return;
        }
    }
}

/// What an applier left behind is swept by steps, and nothing else is.
#[test]
fn what_is_left_behind_is_swept() {
    let unfinished = format!(".labproxy-{}.tmp", "0123456789abcdef".repeat(2));
    let place = Place::new(&tree(&[
        ("d", Node::Directory),
        (&format!("d/{unfinished}"), file(b"half")),
        (&unfinished, Node::Link(b"text".to_vec())),
        (".labproxy-notes.tmp", file(b"mine")),
    ]));
    let root = Root::open(&place.root).unwrap();
    let seen = scanned(&place, &root);
    let steps = sweep(&seen.tree);
    assert!(place.apply(&Memory::default(), &steps).is_whole());
    let left = tree(&[
        ("d", Node::Directory),
        (".labproxy-notes.tmp", file(b"mine")),
    ]);
    assert_eq!(place.now(), left);
    fs::create_dir(place.at(&unfinished)).unwrap();
    assert_eq!(sweep(&scanned(&place, &root).tree), []);
}
