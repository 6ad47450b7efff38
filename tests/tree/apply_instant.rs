//! What is changed at the last instant, between the look at a file and the call that replaces it.

use std::fs;
use std::os::unix::fs::symlink as link_to;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use labproxy::tree::apply::{Applied, Apply, Call, Modes, Why, is_unfinished};
use labproxy::tree::root::Root;
use labproxy::tree::step::Step;
use rustix::io::Errno;

use crate::apply_rig::{
    Memory, Node, Place, Tree, file, kept, link, path, remove, rename, scan, symlink, tree, write,
};

/// Runs steps; `meddle` is called before the calls of one kind, with how many there were before.
fn meddled(place: &Place, steps: &[Step], at: Call, meddle: impl Fn(u32) + Sync) -> Applied {
    let memory = Memory::of(&[b"new"]);
    let (_, stamps) = scan(&place.root);
    let root = Root::open(&place.root).unwrap();
    let count = AtomicU32::new(0);
    let ask = |call: Call| {
        if call == at {
            meddle(count.fetch_add(1, Ordering::Relaxed));
        }
        Ok::<(), Errno>(())
    };
    let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
        .unwrap()
        .asking(&ask);
    apply.run(steps)
}

fn replace(at: &Path, text: &str) {
    let other = at.with_extension("other");
    fs::write(&other, text).unwrap();
    fs::rename(other, at).unwrap();
}

/// What somebody does to a file, and what stands there then.
type Edit<'a> = (&'a (dyn Fn(&Path) + Sync), Option<Node>);

/// A change at the last instant, between the look and the exchange or the rename, is put back: by
/// an edit in place, by another file, by nothing, by a directory and by a link.
#[test]
fn t30_edits_at_the_last_instant_survive() {
    let edits: [Edit<'_>; 5] = [
        (
            &|at| fs::write(at, "my edit").unwrap(),
            Some(file(b"my edit")),
        ),
        (&|at| replace(at, "mine"), Some(file(b"mine"))),
        (&|at| fs::remove_file(at).unwrap(), None),
        (
            &|at| {
                fs::remove_file(at).unwrap();
                fs::create_dir(at).unwrap();
            },
            Some(Node::Directory),
        ),
        (
            &|at| {
                fs::remove_file(at).unwrap();
                link_to("mine", at).unwrap();
            },
            Some(link("mine")),
        ),
    ];
    for (edit, then) in edits {
        for (step, call) in [
            (write("f", b"new"), Call::Exchange),
            (symlink("f", "new"), Call::Exchange),
            (remove("f"), Call::RenameNew),
            (rename("f", "g"), Call::RenameNew),
        ] {
            let place = Place::new(&tree(&[("f", file(b"old"))]));
            let applied = meddled(&place, std::slice::from_ref(&step), call, |count| {
                if count == 0 {
                    edit(&place.at("f"));
                }
            });
            // What is gone needs no removing.
            let needless = then.is_none() && step.deletes();
            assert_eq!(
                applied.kept.len(),
                usize::from(!needless),
                "{step:?} {applied:?}"
            );
            let wanted: Tree = then.iter().map(|node| (path("f"), node.clone())).collect();
            assert_eq!(place.now(), wanted, "{step:?} {then:?}");
        }
    }
}

/// Where two names cannot be exchanged and a rename always replaces, an edit during the step
/// survives all the same.
#[test]
fn t30_edits_survive_where_every_rename_replaces() {
    let memory = Memory::of(&[b"new"]);
    for (step, edited) in [
        (write("f", b"new"), "f"),
        (symlink("f", "new"), "f"),
        (write("g", b"new"), "g"),
        (rename("f", "g"), "g"),
    ] {
        let place = Place::new(&tree(&[("f", file(b"old"))]));
        let (_, stamps) = scan(&place.root);
        let root = Root::open(&place.root).unwrap();
        let ask = |call| match call {
            Call::CreateUnnamed => Err(Errno::OPNOTSUPP),
            Call::Exchange | Call::RenameNew => {
                fs::write(place.at(edited), "my edit").unwrap();
                Err(Errno::INVAL)
            }
            _ => Ok(()),
        };
        let mut apply = Apply::new(&root, &stamps, &memory, Modes::SHARED)
            .unwrap()
            .asking(&ask);
        let applied = apply.run(std::slice::from_ref(&step));
        assert_eq!(kept(&applied), [(edited, Why::Changed)], "{step:?}");
        let mut wanted = tree(&[("f", file(b"old"))]);
        wanted.insert(path(edited), file(b"my edit"));
        assert_eq!(place.now(), wanted, "{step:?}");
    }
}

/// Somebody who replaces the file at every single exchange loses no version that was there last.
#[test]
fn t30_a_file_that_never_rests_is_set_aside_and_not_lost() {
    let place = Place::new(&tree(&[("f", file(b"old"))]));
    let applied = meddled(&place, &[write("f", b"new")], Call::Exchange, |count| {
        replace(&place.at("f"), &format!("mine {count}"));
    });
    let [(_, Why::SetAside(name))] = applied.kept.as_slice() else {
        panic!("{applied:?}")
    };
    // No sweep of what a crash left takes it away.
    assert!(!is_unfinished(name.as_bytes()));
    let now = place.now();
    assert_eq!(now.len(), 2);
    let (_, aside) = now
        .iter()
        .find(|(at, _)| at.as_bytes() == name.as_bytes())
        .unwrap();
    let mine = |node: &Node| matches!(node, Node::File { bytes, .. } if bytes.starts_with(b"mine"));
    assert!(mine(aside) && mine(&now[&path("f")]), "{now:?}");
}
