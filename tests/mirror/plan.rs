//! What has to be done so that one tree becomes another.

use std::collections::HashSet;

use labproxy::mirror::held_back::Held;
use labproxy::mirror::plan::{KeptWhy, Options, PARKED, Plan, plan, plan_pull};
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::SpecialKind;
use labproxy::tree::path::RelPath;
use labproxy::tree::step::Step;
use proptest::prelude::*;

use crate::model::{Model, Node, file, path, tree};

/// Plans, executes, and checks that the result is what was wanted.
fn done(from: &Directory, to: &Directory) -> Plan {
    let plan = plan(from, to, Options::default());
    let received: Vec<ContentId> = plan.wanted.iter().map(|(content, _)| *content).collect();
    let mut model = Model::of(to);
    for step in &plan.steps {
        model.step(step, &received);
    }
    let mut wanted = Model::of(from);
    for (path, kind) in &plan.not_mirrored {
        if Model::of(to).0.get(path) != Some(&Node::Special(*kind)) {
            // It may have come within a directory that was moved whole.
            let came = model.0.get(path) == Some(&Node::Special(*kind));
            if !came {
                wanted.0.remove(path);
            }
        }
    }
    assert_eq!(
        model.tree().hash(),
        wanted.tree().hash(),
        "{:#?}",
        plan.steps
    );
    in_order(&plan.steps);
    plan
}

/// Nothing is deleted before all is there that needs no deleted place.
fn in_order(steps: &[Step]) {
    let first = steps.iter().position(Step::deletes).unwrap_or(steps.len());
    let last = steps
        .iter()
        .rposition(Step::deletes)
        .map_or(first, |at| at + 1);
    assert!(steps[first..last].iter().all(Step::deletes), "{steps:#?}");
    let removed: HashSet<&RelPath> = steps[first..last].iter().map(Step::target).collect();
    for late in &steps[last..] {
        let waited = removed.iter().any(|gone| late.target().is_within(gone));
        // What stood in the way may have been moved instead.
        let moved = steps[..first].iter().any(|step| match step {
            Step::Move { from, .. } => late.target().is_within(from),
            _ => false,
        });
        assert!(waited || moved, "{late:?} waited for nothing");
    }
}

fn steps(from: &str, to: &str) -> Vec<Step> {
    let plan = done(&tree(from), &tree(to));
    assert_eq!(plan.wanted, [], "{:#?}", plan.steps);
    plan.steps
}

fn moved(from: &str, to: &str) -> Step {
    Step::Move {
        from: path(from),
        to: path(to),
    }
}

fn removed(at: &str) -> Step {
    Step::Remove { path: path(at) }
}

#[test]
fn a_directory_of_ten_thousand_files_moves_in_one_step() {
    let all = |top: &str| {
        let mut model = Model::default();
        for at in 0..10_000 {
            let name = path(&format!("{top}/{}/{at}", at % 100));
            model.0.insert(path(top), Node::Directory);
            model
                .0
                .insert(name.split_last().unwrap().0, Node::Directory);
            model
                .0
                .insert(name, Node::File(file(&format!("content {at}"))));
        }
        model.tree()
    };
    let plan = plan(&all("new"), &all("old"), Options::default());
    assert_eq!(plan.steps, [moved("old", "new")]);
    assert_eq!((plan.summary.moved.files, plan.wanted.len()), (10_000, 0));
}

#[test]
fn a_directory_moves_although_a_little_was_edited_in_it() {
    let plan = done(
        &tree("b/1=one b/2=two b/3=three b/c/4=four b/c/5=changed b/new=n"),
        &tree("a/1=one a/2=two a/3=three a/c/4=four a/c/5=five a/old=o"),
    );
    let wanted: Vec<u64> = plan.wanted.iter().map(|(_, size)| *size).collect();
    assert_eq!(plan.steps[0], moved("a", "b"));
    assert_eq!(plan.steps.len(), 4, "{:#?}", plan.steps);
    assert_eq!(plan.steps[3], removed("b/old"));
    assert_eq!(wanted.iter().sum::<u64>(), 8);
    // Half of it is not most of it.
    let apart = done(&tree("b/1=one b/2=zwei"), &tree("a/1=one a/2=two"));
    assert!(!apart.steps.contains(&moved("a", "b")));
}

#[test]
fn a_file_moves_to_where_its_name_is_then_to_the_first() {
    let whole = steps("x/k=same y/z=same", "a=same b/z=same");
    let made = Step::MakeDirectory { path: path("x") };
    assert_eq!(whole, [made, moved("b", "y"), moved("a", "x/k")]);
    let both = steps(
        "b/w=w k=same q=same y/z=same",
        "a=same b/w=w b/z=same c=same",
    );
    assert!(both.contains(&moved("b/z", "y/z")) && both.contains(&moved("a", "k")));
    assert!(both.contains(&moved("c", "q")));
}

/// Each reads the other: one is parked, and no file is ever away.
#[test]
fn files_that_exchange_their_contents_are_copied() {
    let swap = steps("a=two b=one", "a=one b=two");
    assert_eq!(swap.len(), 4, "{swap:#?}");
    assert_eq!(swap[3], removed(&format!("{PARKED}0")));
    assert!(
        swap[..3]
            .iter()
            .all(|step| matches!(step, Step::Copy { .. }))
    );
    // A parked file that is there already does not disturb.
    let there = format!("a=two b=one {PARKED}0=left");
    assert_eq!(
        steps(&there, &format!("a=one b=two {PARKED}0=left")).len(),
        4
    );
    assert_eq!(steps("a=3 b=1 c=2", "a=1 b=2 c=3").len(), 5);
    // A chain needs none.
    let chain = steps("a=2 b=3 c=3", "a=1 b=2 c=3");
    assert_eq!(chain.len(), 2, "{chain:#?}");
}

/// It is read before it is removed, and the target is old or new at every moment.
#[test]
fn a_file_that_takes_anothers_place_replaces_it() {
    let over = steps("y=one", "x=one y=two");
    assert!(matches!(&over[0], Step::Copy { from, .. } if *from == path("x")));
    assert_eq!(over[1..], [removed("x")]);
}

#[test]
fn what_has_no_bytes_is_made_and_not_moved() {
    assert_eq!(steps("b=", "a=").len(), 2);
    assert!(!steps("new/a= new/b=", "old/a= old/b=").contains(&moved("old", "new")));
    assert!(steps("n/", "o/").contains(&Step::MakeDirectory { path: path("n") }));
}

#[test]
fn kinds_become_each_other() {
    for (from, to) in [
        ("a/b=1", "a=1"),
        ("a=1", "a/b=1"),
        ("a=1", "a/b/c=1 a/b/d=2"),
        ("a->x", "a/b=1"),
        ("a/b->x", "a=1"),
        ("a->x", "a=1"),
        ("a=1 b=1", "a->x b=1"),
        ("a=1 b=1", "a| b=1"),
        ("a->x", "a|"),
        ("a/x=1 b=2", "a=2 b/x=1"),
        ("a/x=1 a/y=1 b=2 c=2", "a=2 b/x=1"),
        ("a/=", "a=1"),
        ("x=B y=A", "x=A y/z=B y/w=C"),
        ("x=B y=A z=A", "x=A y/z=B y/w=C"),
        ("x=B y/k=A y/l=A", "x=A y=B"),
        ("", "a/b/c|"),
        ("a=1", "a=1 b~"),
    ] {
        let plan = done(&tree(&from.replace("/=", "/")), &tree(to));
        assert_eq!(plan.wanted, [], "{from} <- {to}");
        done(&tree(to), &tree(&from.replace("/=", "/")));
    }
}

#[test]
fn what_has_no_content_is_listed_and_never_made() {
    let plan = done(&tree("d/p| d/f=1 s~"), &tree("d/f=1 s|"));
    let listed = [
        (path("d/p"), SpecialKind::Fifo),
        (path("s"), SpecialKind::Socket),
    ];
    assert_eq!(plan.not_mirrored, listed);
    assert_eq!(plan.steps, [removed("s")]);
    // One that stands already stays.
    assert_eq!(done(&tree("p| a=1"), &tree("p|")).steps.len(), 1);
}

#[test]
fn what_is_mounted_is_never_touched() {
    let plan = plan(&tree("a=1"), &tree("d/m^ d/f=2 n^"), Options::default());
    let kept: Vec<_> = plan
        .kept
        .iter()
        .map(|one| (one.path.clone(), one.why))
        .collect();
    assert_eq!(
        kept,
        [(path("d"), KeptWhy::Mounted), (path("n"), KeptWhy::Mounted)]
    );
    let gone: Vec<&Step> = plan.steps.iter().filter(|step| step.deletes()).collect();
    assert_eq!(gone, [&removed("d/f")]);
}

/// A directory that is to go and holds something excluded stays, is told once, and the rest is
/// done.
#[test]
fn m37_a_directory_with_something_excluded_is_kept_and_told_once() {
    let protected = |path: &RelPath, _: bool| path.as_bytes().ends_with(b".log");
    let options = Options {
        protected: Some(&protected),
    };
    let from = tree("a=1 made=2 x=4 new.log=5 e=6");
    let to = tree("d/e/1.log=l d/e/f=9 d/2.log=l d/g=8 x/y.log=1 e=7 e2.log=3");
    let plan = plan(&from, &to, options);
    let kept: Vec<_> = plan
        .kept
        .iter()
        .map(|one| (one.path.clone(), one.why))
        .collect();
    assert_eq!(
        kept,
        [
            (path("d"), KeptWhy::Excluded),
            (path("x"), KeptWhy::Excluded)
        ]
    );
    let received: Vec<ContentId> = plan.wanted.iter().map(|(content, _)| *content).collect();
    let mut model = Model::of(&to);
    for step in &plan.steps {
        model.step(step, &received);
    }
    let left = tree("a=1 made=2 e=6 d/e/1.log=l d/2.log=l x/y.log=1 e2.log=3");
    assert_eq!(model.tree(), left);
    // The second time only says it again.
    let again = labproxy::mirror::plan::plan(&from, &left, options);
    assert_eq!((again.steps.len(), again.kept), (0, plan.kept));
}

#[test]
fn the_summary_counts_each_entry_once() {
    let from = tree("n=new c=changed k=keep kk=keep d/m=move x*mode l->t");
    let to = tree("c=before k=keep o=move x=mode gone=12345 g/h=1");
    let summary = done(&from, &to).summary;
    let of = |tally: labproxy::mirror::plan::Tally| (tally.entries, tally.files, tally.bytes);
    assert_eq!(of(summary.created), (3, 1, 3));
    assert_eq!(of(summary.changed), (2, 2, 11));
    assert_eq!(of(summary.moved), (1, 1, 4));
    assert_eq!(of(summary.copied), (1, 1, 4));
    assert_eq!(of(summary.deleted), (3, 2, 6));
}

#[test]
fn a_pull_is_blocked_by_what_was_edited_here() {
    let old = tree("a=1 b=2 d/c=3 d/e=4");
    let new = tree("a=1 b=20 d/c=30 n=5");
    let clean = plan_pull(&old, &new, &old, Vec::new());
    assert_eq!(clean.local_edits, []);
    assert_eq!(clean.target, new);
    // The same change on both ends is none; every other one is, also where the generation has none.
    let now = tree("a=x b=20 d/c=y d/e=4 mine=z empty/");
    let edited = plan_pull(&old, &new, &now, Vec::new());
    assert_eq!(edited.local_edits, ["a", "d/c", "empty", "mine"].map(path));
    let gone = plan_pull(&old, &new, &tree("b=2 d=f"), Vec::new());
    assert_eq!(gone.local_edits, ["a", "d"].map(path));
}

#[test]
fn what_is_held_back_stays_as_it_was_agreed() {
    let old = tree("r/.git/config=ours r/.git/HEAD=1 r/f=1");
    let new = tree("r/.git/config=theirs r/.git/HEAD=2 r/.git/hooks/x*evil gone=1");
    let held = ["r/.git/config", "r/.git/hooks/x"].map(|at| Held {
        path: path(at),
        why: "a test",
    });
    let plan = plan_pull(&old, &new, &old, held.to_vec());
    assert_eq!(plan.local_edits, []);
    assert_eq!(
        plan.target,
        tree("r/.git/config=ours r/.git/HEAD=2 r/.git/hooks/ gone=1")
    );
    // Also when all around it went.
    let plan = plan_pull(&old, &tree("r=file"), &old, held.to_vec());
    assert_eq!(plan.target, tree("r/.git/config=ours"));
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn any_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4).prop_map(|names| names.join("/"))
}

fn any_tree() -> impl Strategy<Value = Model> {
    let content = prop::sample::select(vec!["", "1", "2", "3", "4", "5"]);
    let entry = (any_path(), 0..12, content).prop_map(|(at, kind, content)| match kind {
        0 => format!("{at}/"),
        1 => format!("{at}->{content}t"),
        2 => format!("{at}|"),
        3 => format!("{at}*{content}"),
        _ => format!("{at}={content}"),
    });
    prop::collection::vec(entry, 0..16).prop_map(|words| Model::of(&tree(&words.join(" "))))
}

/// What people do to a tree.
#[derive(Debug, Clone)]
enum Edit {
    Rename(String, String),
    Swap(String, String),
    Copy(String, String),
    Delete(String),
    Write(String, &'static str),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let content = prop::sample::select(vec!["1", "2", "new", "newer"]);
    prop_oneof![
        (any_path(), any_path()).prop_map(|(one, other)| Edit::Rename(one, other)),
        (any_path(), any_path()).prop_map(|(one, other)| Edit::Swap(one, other)),
        (any_path(), any_path()).prop_map(|(one, other)| Edit::Copy(one, other)),
        any_path().prop_map(Edit::Delete),
        (any_path(), content).prop_map(|(at, content)| Edit::Write(at, content)),
    ]
}

fn edit(model: &mut Model, edit: &Edit) {
    let put = |model: &mut Model, cut: Vec<(RelPath, Node)>, from: &RelPath, to: &RelPath| {
        for (at, node) in cut {
            model.put(&at.rebase(from, to).unwrap(), node);
        }
    };
    match edit {
        Edit::Rename(one, other) => {
            let (one, other) = (path(one), path(other));
            let cut = model.cut(&one);
            put(model, cut, &one, &other);
        }
        Edit::Swap(one, other) => {
            let (one, other) = (path(one), path(other));
            let (cut, other_cut) = (model.cut(&one), model.cut(&other));
            put(model, cut, &one, &other);
            put(model, other_cut, &other, &one);
        }
        Edit::Copy(one, other) => {
            let (one, other) = (path(one), path(other));
            let cut = model.clone().cut(&one);
            put(model, cut, &one, &other);
        }
        Edit::Delete(at) => drop(model.cut(&path(at))),
        Edit::Write(at, content) => model.put(&path(at), Node::File(file(content))),
    }
}

fn contents(tree: &Directory) -> HashSet<ContentId> {
    let nodes = Model::of(tree).0.into_values();
    nodes
        .filter_map(|node| match node {
            Node::File(file) => Some(file.content),
            Node::Directory | Node::Link(_) | Node::Special(_) => None,
        })
        .collect()
}

fn holds(from: &Directory, to: &Directory) {
    let plan = done(from, to);
    let there = contents(to);
    let wanted: Vec<ContentId> = plan.wanted.iter().map(|(content, _)| *content).collect();
    assert!(wanted.iter().all(|content| !there.contains(content)));
    assert_eq!(wanted.iter().collect::<HashSet<_>>().len(), wanted.len());
    for (content, _) in &plan.wanted {
        let written = plan.steps.iter().any(|step| match step {
            Step::Write { file, .. } => file.content == *content,
            _ => false,
        });
        assert!(written, "wanted for nothing");
    }
    assert!(
        labproxy::mirror::plan::plan(from, from, Options::default())
            .steps
            .is_empty()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any tree becomes any other.
    #[test]
    fn every_tree_becomes_every_other(from in any_tree(), to in any_tree()) {
        holds(&from.tree(), &to.tree());
    }

    /// A tree becomes what edits make of it, and no content is asked for that they did not bring.
    #[test]
    fn a_tree_follows_its_edits(to in any_tree(), edits in prop::collection::vec(any_edit(), 0..6)) {
        let mut from = to.clone();
        for one in &edits {
            edit(&mut from, one);
        }
        holds(&from.tree(), &to.tree());
        holds(&to.tree(), &from.tree());
    }
}
