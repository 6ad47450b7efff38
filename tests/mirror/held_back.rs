//! What of a pulled tree waits for a person, and which links lead out of one.

use labproxy::mirror::held_back::held_back;
use labproxy::mirror::links::{HOPS_MAX, Way, links_that_leave};
use labproxy::mirror::plan::plan_pull;
use labproxy::tree::directory::Directory;
use labproxy::tree::path::RelPath;
use proptest::prelude::*;

use crate::model::{Model, Node, file, path, tree};

/// What of a change waits.
fn held(old: &str, new: &str) -> Vec<String> {
    let held = held_back(&tree(old), &tree(new));
    let paths = held.iter().map(|one| one.path.as_bytes());
    paths
        .map(|one| String::from_utf8(one.to_vec()).unwrap())
        .collect()
}

#[test]
fn t02_what_git_runs_waits_in_every_git_directory() {
    for git in [
        ".git",
        "sub/.git",
        ".GIT",
        "a/b/.Git",
        "git~1",
        ".g\u{200c}it",
        // Within another one, as submodules are.
        ".git/modules/x/.git",
    ] {
        for at in [
            "config",
            "CONFIG",
            "config.worktree",
            "hooks/pre-commit",
            "hooks/deep/er",
            "Hooks/x",
            "commondir",
            "objects/info/alternates",
            "objects/info/http-alternates",
            "rebase-merge/git-rebase-todo",
        ] {
            let at = format!("{git}/{at}");
            let both = format!("{at}=evil {git}/HEAD=1 {git}/index=2 {git}/objects/aa/bb=3");
            assert_eq!(held("", &both), [at.as_str()]);
            // A removal is a change too; what stays passes.
            assert_eq!(held(&both, &format!("{git}/HEAD=1")), [at.as_str()]);
            assert_eq!(held(&both, &both.replace("HEAD=1", "HEAD=2")), [""; 0]);
        }
    }
}

#[test]
fn t02_bare_repositories_submodules_and_worktrees_are_git_directories() {
    let bare = "HEAD=r objects/o=1 refs/heads/main=2";
    let of = |top: &str, more: &str| {
        let words = format!("{bare} {more}");
        let words = words.split_whitespace().map(|word| format!("{top}{word}"));
        words.collect::<Vec<_>>().join(" ")
    };
    for top in ["", "data/", "data/x.git/", ".git/modules/a/b/"] {
        let found = held("", &of(top, "config=evil hooks/update*evil description=d"));
        assert_eq!(
            found,
            [format!("{top}config"), format!("{top}hooks/update")]
        );
    }
    let worktree = ".git/worktrees/w/HEAD=1 .git/worktrees/w/commondir=../.. .git/worktrees/w/config.worktree=c";
    let found = held("", worktree);
    let of_worktree =
        ["commondir", "config.worktree"].map(|name| format!(".git/worktrees/w/{name}"));
    assert_eq!(found, of_worktree);
    // Parts of one are none.
    assert_eq!(
        held("", "data/HEAD=1 data/objects/ data/config=fine"),
        [""; 0]
    );
    // Parts that are links may be all.
    assert_eq!(
        held("", "d/HEAD=1 d/objects->x d/refs->y d/config=c"),
        ["d/config", "d/objects"]
    );
}

/// The configuration comes as a plain file, and what makes it one of git's comes later.
#[test]
fn t02_a_directory_does_not_become_a_repository_unseen() {
    let before = "d/config=evil d/hooks/x=evil d/objects/o=1 d/refs/r=2";
    assert_eq!(held("", before), [""; 0]);
    assert_eq!(held(before, &format!("{before} d/HEAD=1")), ["d/HEAD"]);
    let before = "d/config=evil d/HEAD=1 d/objects/o=1";
    assert_eq!(
        held(before, &format!("{before} d/refs/heads/x=2")),
        ["d/refs"]
    );
    let before = "d/config=evil d/HEAD=1";
    let found = held(before, &format!("{before} d/commondir=..  d/gitdir=x"));
    assert_eq!(found, ["d/commondir"]);
    // One without anything that would wait is made as usual.
    assert_eq!(
        held("d/objects/o=1 d/refs/", "d/objects/o=1 d/refs/ d/HEAD=1"),
        [""; 0]
    );
    // Under its own name it was judged from the start.
    assert_eq!(
        held(".git/HEAD=1", ".git/HEAD=1 .git/refs/ .git/objects/"),
        [""; 0]
    );
    assert_eq!(
        held("d/config=c d/HEAD=1", ".git/config=c .git/HEAD=1"),
        [".git/config"]
    );
}

/// Each of its directories is looked at, also where one seems to be another repository.
#[test]
fn t02_a_repository_in_a_repository_hides_nothing() {
    let inner = ".git/objects/HEAD=1 .git/objects/objects/ .git/objects/refs/";
    let found = held("", &format!("{inner} .git/objects/info/alternates=/"));
    assert_eq!(found, [".git/objects/info/alternates"]);
}

#[test]
fn t02_what_points_to_a_git_directory_waits() {
    assert_eq!(held("", "s/.git=gitdir:x"), ["s/.git"]);
    assert_eq!(held("s/.git/HEAD=1", "s/.git->../data"), ["s/.git"]);
    assert_eq!(
        held("", ".git/hooks->../tools .git/config->../c"),
        [".git/config", ".git/hooks"]
    );
    assert_eq!(held("", ".git/objects->../o"), [".git/objects"]);
    assert_eq!(
        held("", ".claude->x .vscode->y src->z"),
        [".claude", ".vscode"]
    );
}

#[test]
fn t02_files_that_programs_run_by_themselves_wait() {
    for at in [
        ".envrc",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        ".cursor/mcp.json",
        ".vscode/mcp.json",
        ".gemini/settings.json",
        ".codex/config.toml",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/startup.xml",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".cargo/config.toml",
        ".cargo/config",
        ".husky/pre-commit",
        ".githooks/x/y",
        ".EnvRC",
        ".VSCode/Tasks.json",
    ] {
        assert_eq!(held("", &format!("{at}=evil")), [at]);
        assert_eq!(
            held("", &format!("deep/er/{at}=evil")),
            [format!("deep/er/{at}")]
        );
        assert_eq!(
            held(&format!("{at}=ours x=1"), &format!("{at}=ours x=2")),
            [""; 0]
        );
        // Its mode alone is a change.
        assert_eq!(held(&format!("{at}=ours"), &format!("{at}*ours")), [at]);
    }
    let flows = ".gitignore=1 .gitattributes=2 .gitmodules=3 .git/info/attributes=4 config=5 \
        hooks/x=6 .claude/commands/c=7 CLAUDE.md=8 .vscode/launch.json=9 .git/info/exclude=10 \
        .git/refs/heads/hooks/x=11 .git/refs/heads/config=12 .git/logs/refs/heads/config=13";
    assert_eq!(held("", flows), [""; 0]);
}

/// The plan of a pull keeps what waits as it was, and the rest of a commit arrives.
#[test]
fn t02_a_commit_arrives_without_what_waits() {
    let old = tree(".git/config=ours .git/HEAD=a .git/index=1 .git/refs/heads/main=1 f=1");
    let new = tree(
        ".git/config=evil .git/hooks/post-checkout*evil .git/HEAD=b .git/index=2 \
         .git/refs/heads/main=2 .git/objects/12/34=o f=2 .envrc=evil",
    );
    let plan = plan_pull(&old, &new, &old, held_back(&old, &new));
    let expected = ".git/config=ours .git/HEAD=b .git/index=2 .git/refs/heads/main=2 \
        .git/objects/12/34=o .git/hooks/ f=2";
    assert_eq!(plan.target, tree(expected));
    // They wait again at the next pull.
    assert_eq!(held_back(&plan.target, &new), plan.held_back);
}

/// What the table for people lists is what waits, and what it says flows, flows.
#[test]
fn t02_the_table_says_what_waits() {
    let text = include_str!("../../docs/held-back.md");
    let sections: Vec<&str> = text.split("\n## ").collect();
    let [_, in_git, anywhere, _] = sections[..] else {
        panic!("sections");
    };
    let (waits, flows) = in_git.split_once("So do these").unwrap();
    let listed = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let first = rows.map(|line| line.split(" | ").next().unwrap().to_owned());
        let names = first.flat_map(|cell| {
            let names = cell.split('`').skip(1).step_by(2);
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        names
            .map(|name| {
                if name.ends_with('/') {
                    name + "x"
                } else {
                    name
                }
            })
            .collect()
    };
    let waiting = listed(waits);
    assert_eq!(waiting.len(), 9);
    for at in waiting.iter().filter(|at| *at != ".git") {
        let at = format!(".git/{at}");
        assert_eq!(held("", &format!("{at}=1")), [at]);
    }
    assert_eq!(listed(anywhere).len(), 17);
    for at in listed(anywhere) {
        assert_eq!(held("", &format!("{at}=1")), [at]);
    }
    for at in listed(flows) {
        assert_eq!(held("", &format!(".git/{at}=1 {at}=1")), [""; 0]);
    }
}

const PARTS: [&str; 14] = [
    ".git",
    "HEAD",
    "objects",
    "refs",
    "config",
    "hooks",
    "commondir",
    "info",
    "alternates",
    "index",
    "heads",
    "d",
    ".GIT",
    "modules",
];

fn any_tree() -> impl Strategy<Value = Directory> {
    let parts = prop::collection::vec(prop::sample::select(&PARTS[..]), 1..5);
    let entry = (parts, 0..3u8).prop_map(|(parts, content)| (parts.join("/"), content));
    prop::collection::vec(entry, 0..24).prop_map(|entries| {
        let mut model = Model::default();
        for (at, content) in entries {
            model.put(&path(&at), Node::File(file(&content.to_string())));
        }
        model.tree()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever waits, what a commit is made of flows: in a directory that is named `.git` only what
    /// the lists name waits.
    #[test]
    fn t02_objects_refs_index_and_head_flow(old in any_tree(), new in any_tree()) {
        let old = tree_in(&old, ".git");
        let new = tree_in(&new, ".git");
        for one in held_back(&old, &new) {
            let text = String::from_utf8(one.path.as_bytes().to_vec()).unwrap();
            let lower = text.to_lowercase();
            let named = ["config", "commondir", "hooks", "alternates"];
            let listed = lower.split('/').any(|part| named.contains(&part));
            let elsewhere = lower.ends_with("/.git");
            let becomes = one.why.contains("would take the directory");
            prop_assert!(listed || elsewhere || becomes, "{text}");
            prop_assert!(!(becomes && text.matches('/').count() == 1), "{text}");
        }
    }

    /// However the host goes about it, over several pulls: no git directory of the workspace ever has
    /// something that git runs which the workspace did not have before.
    #[test]
    fn t02_no_order_of_pulls_brings_what_git_runs(
        old in any_tree(),
        pulls in prop::collection::vec(any_tree(), 1..5),
    ) {
        let mut workspace = old.clone();
        for new in &pulls {
            let held = held_back(&workspace, new);
            workspace = plan_pull(&workspace, new, &workspace, held).target;
        }
        let before = Model::of(&old);
        for (at, node) in &Model::of(&workspace).0 {
            if *node != Node::Directory && git_runs(&workspace, at) {
                prop_assert_eq!(before.0.get(at), Some(node), "{:?}", at);
            }
        }
    }
}

/// Whether git would run a file or go where it says, told from the tree alone.
fn git_runs(tree: &Directory, at: &RelPath) -> bool {
    let text = String::from_utf8(at.as_bytes().to_vec()).unwrap();
    let parts: Vec<&str> = text.split('/').collect();
    (0..parts.len()).any(|depth| {
        let (above, below) = parts.split_at(depth);
        let below = below.join("/").to_lowercase();
        let Some(directory) = tree.directory(&path(&above.join("/"))) else {
            return false;
        };
        let has = |name: &str| directory.get(name.as_bytes()).is_some();
        let is_git = above
            .last()
            .is_some_and(|name| name.eq_ignore_ascii_case(".git"))
            || has("HEAD") && (has("objects") && has("refs") || has("commondir"));
        let runs = ["config", "commondir", "objects/info/alternates"].contains(&below.as_str());
        is_git && (runs || below.starts_with("hooks/") || below == "hooks") || below == ".git"
    })
}

fn tree_in(tree: &Directory, top: &str) -> Directory {
    let mut model = Model::default();
    for (at, node) in Model::of(tree).0 {
        let at = String::from_utf8(at.as_bytes().to_vec()).unwrap();
        model.put(&path(&format!("{top}/{at}")), node);
    }
    model.tree()
}

#[test]
fn t33_links_that_leave_the_root_are_named() {
    for (text, at, way) in [
        ("l->/etc/passwd", "l", Some(Way::Absolute)),
        ("l->..", "l", Some(Way::Above)),
        ("a/l->../..", "a/l", Some(Way::Above)),
        ("a/l->../../b/x", "a/l", Some(Way::Above)),
        ("a/l->..", "a/l", None),
        ("a/b/l->../../c", "a/b/l", None),
        ("l->a/./b//../c", "l", None),
        ("l->a/../..", "l", Some(Way::Above)),
        ("x->y/.. y->.", "x", Some(Way::Through)),
        ("x->y/../.. y->.", "x", Some(Way::Above)),
        ("x->y/a y->/etc", "x", Some(Way::Through)),
        ("a/b/x->up/../f a/b/up->../..", "a/b/x", Some(Way::Through)),
        ("a/b/x->up/f a/b/up->../..", "a/b/x", None),
        ("x->y y->z z->../w", "x", Some(Way::Through)),
        ("x->x", "x", Some(Way::Unknown)),
        ("x->missing/deep/../../f", "x", None),
        ("x->f/.. f=1", "x", None),
        // It is judged by its text too, though the way through d ends inside.
        ("x->d/../.. d->a/b a/b/", "x", Some(Way::Above)),
    ] {
        let leaving = links_that_leave(&tree(text));
        let found = leaving.iter().find(|one| one.path == path(at));
        assert_eq!(found.map(|one| one.way), way, "{text}");
    }
}

/// Links through links through links are no work without end, and what was not followed is named.
#[test]
fn t33_a_maze_of_links_is_named_and_costs_little() {
    let chain = |links: usize| {
        let words = (0..links).map(|at| format!("l{at}->l{} ", at + 1));
        words.collect::<String>() + &format!("l{links}=end")
    };
    assert_eq!(links_that_leave(&tree(&chain(HOPS_MAX + 1))), []);
    assert_eq!(links_that_leave(&tree(&chain(HOPS_MAX + 2))).len(), 1);
    // Each name is two hops of the next: 2^30 lookups, if they were all made.
    let double = (0..30).map(|at| format!("m{at}->m{0}/m{0}", at + 1));
    let double = double.collect::<Vec<_>>().join(" ") + " m30->.";
    let leaving = links_that_leave(&tree(&double));
    assert!(leaving.iter().any(|one| one.way == Way::Unknown));
}
