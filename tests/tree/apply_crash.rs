//! Work that is cut off anywhere.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use labproxy::tree::apply::{Apply, Call, Fatal, Modes, Progress, is_unfinished};
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;
use rustix::io::Errno;

use crate::apply_rig::{Memory, Place, Tree, before_and_after, file, path, plan, scan, write};

/// Cut off before each single call that changes the file system, as by a crash: every path is as
/// before or as after, only unfinished names are left behind, and a new scan and plan finish it.
#[test]
fn m64_cut_off_at_any_call_every_path_is_old_or_new() {
    let (before, after) = before_and_after();
    let memory = Memory::of_tree(&after);
    let mut cut = 0;
    loop {
        let place = Place::new(&before);
        let whole = run_until(&place, &memory, &after, cut);
        let now = place.now();
        check(&now, &before, &after, cut);
        let steps = plan(&now, &after);
        let applied = place.apply(&memory, &steps);
        assert!(applied.is_whole(), "{cut}: {applied:?}");
        assert!(place.now() == after, "{cut}");
        if whole {
            break;
        }
        cut += 1;
    }
    assert!(cut > 50, "only {cut} calls");
}

/// Does calls until `cut` of them were done; whether that was all.
fn run_until(place: &Place, memory: &Memory, after: &Tree, cut: u32) -> bool {
    let (now, stamps) = scan(&place.root);
    let root = Root::open(&place.root).unwrap();
    let calls = AtomicU32::new(0);
    let ask = |_| {
        let done = calls.fetch_add(1, Ordering::Relaxed);
        if done < cut { Ok(()) } else { Err(Errno::IO) }
    };
    let mut apply = Apply::new(&root, &stamps, memory, Modes::SHARED)
        .unwrap()
        .synced()
        .asking(&ask);
    let applied = apply.run(&plan(&now, after));
    let whole = applied.is_whole();
    assert_eq!(applied.stopped, (!whole).then_some(Fatal::Io));
    whole
}

fn check(now: &Tree, before: &Tree, after: &Tree, cut: u32) {
    for (at, node) in now {
        let (_, name) = at.split_last().unwrap();
        let unfinished = is_unfinished(name.as_bytes());
        let old_or_new = before.get(at) == Some(node) || after.get(at) == Some(node);
        assert!(unfinished || old_or_new, "{cut}: {at:?}");
    }
    // What stays what it is, as a file stays a file, is never missing for a moment.
    for at in before.keys().filter(|at| after.contains_key(at)) {
        let directory = |tree: &Tree| matches!(tree[at], crate::apply_rig::Node::Directory);
        if directory(before) == directory(after) {
            assert!(now.contains_key(at), "{cut}: {at:?} is missing");
        }
    }
}

/// An error of any call that is only that step's leaves the path as it was, and nothing behind.
#[test]
fn an_error_at_any_call_leaves_the_path_as_it_was() {
    let (before, after) = before_and_after();
    let memory = Memory::of_tree(&after);
    for fails in 0_u32.. {
        let place = Place::new(&before);
        let (now, stamps) = scan(&place.root);
        let root = Root::open(&place.root).unwrap();
        let calls = AtomicU32::new(0);
        let ask = |_| {
            let fails = calls.fetch_add(1, Ordering::Relaxed) == fails;
            if fails { Err(Errno::ACCESS) } else { Ok(()) }
        };
        let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
            .unwrap()
            .asking(&ask);
        let applied = apply.run(&plan(&now, &after));
        if calls.into_inner() <= fails {
            assert!(applied.is_whole());
            return;
        }
        assert!(!applied.failed.is_empty(), "{fails}: {applied:?}");
        let now = place.now();
        check(&now, &before, &after, fails);
        assert_eq!(left_behind(&now), 0, "{fails}");
    }
}

/// Work that somebody stops ends at once, also within a large file, with nothing left behind; it
/// tells how far it came.
#[test]
fn work_stops_where_it_is_asked_to() {
    let large: Vec<u8> = (0..=250).cycle().take(8_000_000).collect();
    let memory = Memory::of(&[b"small", &large]);
    let steps = [
        write("a", b"small"),
        write("b", &large),
        write("c", b"small"),
    ];
    for writes in 0..6_u32 {
        let place = Place::new(&Tree::new());
        let (_, stamps) = scan(&place.root);
        let root = Root::open(&place.root).unwrap();
        let (cancel, progress) = (AtomicBool::new(false), Progress::default());
        let calls = AtomicU32::new(0);
        let ask = |call| {
            if call == Call::Write && calls.fetch_add(1, Ordering::Relaxed) == writes {
                cancel.store(true, Ordering::Relaxed);
            }
            Ok(())
        };
        let mut apply = Apply::new(&root, &stamps, &memory, Modes::PRIVATE)
            .unwrap()
            .threads(NonZero::<usize>::MIN)
            .until(&cancel)
            .counting(&progress)
            .asking(&ask);
        let applied = apply.run(&steps);
        assert_eq!(applied.stopped, Some(Fatal::Cancelled));
        let now = place.now();
        assert_eq!(now.len(), 1, "{writes}");
        assert_eq!((applied.done, now[&path("a")].clone()), (1, file(b"small")));
        let bytes = 5 + u64::from(writes) * 1024 * 1024;
        assert_eq!(progress.bytes.into_inner(), bytes);
    }
}

/// Where an inode without a name cannot be given one, files are made under a name from then on.
#[test]
fn a_kernel_that_names_no_inode_costs_no_file() {
    let (before, after) = before_and_after();
    let memory = Memory::of_tree(&after);
    let place = Place::new(&before);
    let (now, stamps) = scan(&place.root);
    let root = Root::open(&place.root).unwrap();
    let refused = AtomicBool::new(false);
    let ask = |call| match call {
        Call::Link => {
            refused.store(true, Ordering::Relaxed);
            Err(Errno::OPNOTSUPP)
        }
        Call::CreateUnnamed if refused.load(Ordering::Relaxed) => Err(Errno::OPNOTSUPP),
        _ => Ok(()),
    };
    let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
        .unwrap()
        .asking(&ask);
    let applied = apply.run(&plan(&now, &after));
    assert!(applied.is_whole(), "{applied:?}");
    assert!(place.now() == after);
}

fn left_behind(now: &Tree) -> usize {
    let names = now.keys().filter_map(RelPath::split_last);
    names
        .filter(|(_, name)| is_unfinished(name.as_bytes()))
        .count()
}
