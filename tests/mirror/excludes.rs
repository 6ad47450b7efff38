//! What a push leaves alone, and what it refuses to carry.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use labproxy::mirror::excludes::{BadPattern, Excludes, Frozen, PATTERNS_MAX};
use labproxy::mirror::plan::{Options, plan};
use labproxy::mirror::secrets::secret_names;
use labproxy::tree::path::RelPath;

use crate::corpus::CASES;
use crate::model::{Model, path, tree};

/// A repository of its own, in which each case has a directory; git says what it ignores.
fn ignored_by_git(place: &Path, paths: &[String]) -> BTreeSet<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(place).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place).env("GIT_CONFIG_NOSYSTEM", "1");
        command
    };
    let made = git(&["init", "-q", "--template="]).status().unwrap();
    assert!(made.success());
    let mut child = git(&["check-ignore", "-z", "--stdin", "--no-index"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let asked = paths.join("\0");
    let writer = std::thread::spawn(move || input.write_all(asked.as_bytes()).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.split('\0')
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Sixty and more sets of patterns: the same paths are excluded as git ignores.
#[test]
fn m77_excludes_are_what_git_ignores() {
    let place = tempfile::tempdir().unwrap();
    let mut asked = Vec::new();
    let mut ours = BTreeSet::new();
    for (number, case) in CASES.iter().enumerate() {
        let mut frozen = Frozen::default();
        for (directory, text) in case.files {
            frozen.add_file(path(directory), text.as_bytes()).unwrap();
        }
        let excludes = Excludes::new(&frozen).unwrap_or_else(|bad| panic!("{case:?}: {bad}"));
        // Each path has a tree of its own: one may be a file where another needs a directory.
        for (at, number) in case.paths.iter().zip(number * 100..) {
            let top = place.path().join(format!("c{number}"));
            for (directory, text) in case.files {
                fs::create_dir_all(top.join(directory)).unwrap();
                fs::write(top.join(directory).join(".gitignore"), text).unwrap();
            }
            let bare = at.trim_end_matches('/');
            let full = top.join(bare);
            if bare == *at {
                fs::create_dir_all(full.parent().unwrap()).unwrap();
                fs::write(full, "").unwrap();
            } else {
                fs::create_dir_all(full).unwrap();
            }
            let name = format!("c{number}/{bare}");
            if excludes.is_excluded(&path(bare), bare != *at) {
                ours.insert(name.clone());
            }
            asked.push(name);
        }
    }
    assert!(CASES.len() >= 60, "{}", CASES.len());
    let theirs = ignored_by_git(place.path(), &asked);
    let differ: Vec<String> = ours
        .symmetric_difference(&theirs)
        .map(|at| {
            let number = at[1..].split('/').next().unwrap().parse::<usize>().unwrap();
            let says = theirs.contains(at);
            format!("{at}: git ignores: {says}; {:?}", CASES[number / 100].files)
        })
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    let some = CASES.len() / 2;
    assert!(ours.len() > some && asked.len() - ours.len() > some);
}

/// A directory that is excluded takes all in it along, also what patterns would take back in.
#[test]
fn m77_a_tree_is_pruned_as_paths_are_asked() {
    let mut frozen = Frozen::default();
    frozen
        .add_file(RelPath::ROOT, b"build/\n!build/keep\n*.o\n")
        .unwrap();
    frozen.add_file(path("lib"), b"!in.o\n").unwrap();
    let excludes = Excludes::new(&frozen).unwrap();
    let all = tree("build/keep=1 build/x/y=2 lib/in.o=3 lib/out.o=4 a.o/b=5 c=6 build2/build=7");
    let pruned = tree("lib/in.o=3 c=6 build2/build=7");
    assert_eq!(excludes.prune(&all), pruned);
    let kept = Model::of(&all).0.into_iter().filter(|(at, node)| {
        !excludes.is_excluded(at, matches!(node, crate::model::Node::Directory))
    });
    assert_eq!(Model(kept.collect()), Model::of(&pruned));
    assert_eq!(
        Frozen::places(&tree(".labproxyignore=1 d/.labproxyignore=2 e/x=3")),
        ["", "d"].map(path)
    );
}

/// The host's files say nothing: what was excluded at the start is neither sent nor removed.
#[test]
fn t14_a_hostile_ignore_file_changes_nothing() {
    let mut frozen = Frozen::default();
    frozen.add_file(RelPath::ROOT, b".env\nprivate/\n").unwrap();
    let kept = serde_round(&frozen);
    let excludes = Excludes::new(&kept).unwrap();
    let protected = |path: &RelPath, is_directory: bool| excludes.is_excluded(path, is_directory);
    let options = Options {
        protected: Some(&protected),
    };
    let local = tree(".env=key private/k=key a=1 .labproxyignore=changed .gitignore=x");
    let host = tree("a=1 .labproxyignore=nothing .gitignore=! .env=theirs gone=1");
    let plan = plan(&local, &host, options);
    let touched = plan
        .steps
        .iter()
        .map(|step| step.target().as_bytes().to_vec());
    let touched: Vec<Vec<u8>> = touched.collect();
    assert_eq!(touched, [&b".gitignore"[..], b".labproxyignore", b"gone"]);
    assert_eq!(plan.kept, []);
}

fn serde_round(frozen: &Frozen) -> Frozen {
    let sent = postcard::to_allocvec(frozen).unwrap();
    postcard::from_bytes(&sent).unwrap()
}

#[test]
fn t14_files_with_secret_names_are_refused_unless_allowed_or_excluded() {
    let secret = [
        ".env",
        "d/.ENV.local",
        "prod.env",
        "server.pem",
        "tls.key",
        "id_rsa",
        "d/id_ed25519_work",
        ".netrc",
        ".npmrc",
        "credentials.json",
        ".aws/credentials",
        "x/.docker/config.json",
        ".git-credentials",
        "k.p12",
        ".kube/config",
        ".cargo/credentials.toml",
    ];
    let fine = [
        ".env.example",
        "id_rsa.pub",
        "environment",
        "config",
        "docker/config.json",
        "credentials.rs",
        "key.rs",
        ".env.d/x",
        "aws/credentials",
    ];
    let words = secret.iter().chain(&fine).map(|at| format!("{at}=1"));
    let all = tree(&words.collect::<Vec<_>>().join(" "));
    let found = secret_names(&all, &BTreeSet::new());
    let mut expected = secret.map(path).to_vec();
    expected.sort();
    assert_eq!(
        found.iter().map(|one| one.path.clone()).collect::<Vec<_>>(),
        expected
    );
    let text = found
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(text.contains(
        "id_rsa usually holds a private ssh key; exclude it, or say --allow-secret id_rsa"
    ));
    let allowed = BTreeSet::from([path(".env")]);
    assert_eq!(secret_names(&all, &allowed).len(), secret.len() - 1);
    let excludes = Excludes::new(&Frozen {
        flags: vec![".aws/".to_owned()],
        ..Frozen::default()
    });
    let pruned = excludes.unwrap().prune(&all);
    assert_eq!(
        secret_names(&pruned, &BTreeSet::new()).len(),
        secret.len() - 1
    );
    // A link may bring one too.
    assert_eq!(secret_names(&tree(".env->../x"), &BTreeSet::new()).len(), 1);
}

/// What git passes over as no pattern would let out what it was to keep in.
#[test]
fn t14_what_is_no_pattern_is_refused() {
    for bad in [
        "a[b",
        "[z-a]",
        "x\\",
        "[[:digit:]]x",
        "[\\]]",
        "a[/]b",
        "[!]",
        "[]",
        "a**/b",
        "x/b***/c",
    ] {
        let mut frozen = Frozen::default();
        frozen
            .add_file(RelPath::ROOT, format!("ok\n{bad}\n").as_bytes())
            .unwrap();
        let refused = Excludes::new(&frozen);
        assert!(
            matches!(refused, Err(BadPattern::NoPattern { .. })),
            "{bad}: {refused:?}"
        );
    }
    let frozen = Frozen {
        flags: vec!["x".repeat(PATTERNS_MAX), "y".to_owned()],
        ..Frozen::default()
    };
    assert!(matches!(
        Excludes::new(&frozen),
        Err(BadPattern::TooMany(_))
    ));
}
