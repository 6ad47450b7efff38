//! Directories that are no roots of a mirror.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use labproxy::mirror::places::{
    Guarded, Refused, Unresolved, What, judge_pair, resolve, resolve_root,
};

fn guarded() -> Guarded {
    let places = [
        (What::Configuration, "/home/u/.config/labproxy"),
        (What::State, "/home/u/.local/state/labproxy"),
        (What::Store, "/home/u/.cache/labproxy"),
        (What::Ssh, "/home/u/.ssh"),
        (What::Key, "/home/u/keys/anthropic"),
        (What::Shim, "/run/user/1/labproxy"),
        (What::Receipts, "/srv/receipts"),
    ];
    Guarded {
        home: Some(PathBuf::from("/home/u")),
        mounts: ["/", "/proc", "/mnt/disk", "/home"]
            .map(PathBuf::from)
            .into(),
        places: places.map(|(what, at)| (what, PathBuf::from(at))).into(),
    }
}

#[test]
fn t06_what_is_no_root_is_refused_with_the_reason() {
    let judge = |root: &str| guarded().judge(Path::new(root));
    for (root, text) in [
        ("/", "whole file system"),
        ("/home/u", "is the home directory"),
        ("/home", "contains the home directory"),
        ("/home/u/.config/labproxy", "labproxy's configuration"),
        ("/home/u/.config", "contains labproxy's configuration"),
        ("/home/u/.config/labproxy/sub", "lies in"),
        ("/home/u/.local/state/labproxy/x", "labproxy's state"),
        ("/home/u/.cache/labproxy", "store of mirrors"),
        ("/home/u/.ssh/sub", "ssh keys"),
        ("/home/u/keys", "contains a credential"),
        ("/home/u/keys/anthropic", "a credential"),
        ("/run/user/1", "labproxy's shims"),
        ("/srv", "contains receipts"),
        ("/mnt/disk", "is where a file system is mounted"),
        ("/mnt", "contains \"/mnt/disk\""),
        ("relative", "canonical"),
        ("/a/../b", "canonical"),
    ] {
        let refused = judge(root).unwrap_err().to_string();
        assert!(refused.contains(text), "{root}: {refused}");
    }
    for fine in [
        "/home/u/work",
        "/home/u/.config/other",
        "/home/u/.sshx",
        "/mnt/disk/work",
        "/srv/receipts2",
        "/home/other/work",
        "/home/u2",
    ] {
        assert_eq!(judge(fine), Ok(()), "{fine}");
    }
    let homeless = Guarded::default();
    assert_eq!(homeless.judge(Path::new("/home")), Ok(()));
    assert!(homeless.judge(Path::new("/")).is_err());
}

#[test]
fn t06_roots_that_are_one_or_nested_are_refused() {
    let judge = |one: &str, other: &str| judge_pair(Path::new(one), Path::new(other));
    assert_eq!(judge("/a/b", "/a/c"), Ok(()));
    assert_eq!(judge("/a/b", "/a/bc"), Ok(()));
    assert_eq!(judge("/a", "/a"), Err(Refused::Identical("/a".into())));
    for (one, other) in [("/a", "/a/b/c"), ("/a/b/c", "/a")] {
        let nested = Refused::Nested {
            inner: "/a/b/c".into(),
            outer: "/a".into(),
        };
        assert_eq!(judge(one, other), Err(nested));
    }
}

/// A path is judged as what it leads to.
#[test]
fn t06_paths_are_resolved_before_they_are_judged() {
    let place = tempfile::tempdir().unwrap();
    let top = place.path().canonicalize().unwrap();
    fs::create_dir_all(top.join("home/work")).unwrap();
    symlink(top.join("home"), top.join("way")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    let guarded = Guarded {
        home: Some(top.join("home")),
        ..Guarded::default()
    };
    for home in ["way/../home", "way/.", "home/work/.."] {
        let found = resolve(&top.join(home)).unwrap();
        assert_eq!(
            guarded.judge(&found),
            Err(Refused::Home(top.join("home"))),
            "{home}"
        );
    }
    assert_eq!(
        resolve_root(&top.join("way/work")).unwrap(),
        top.join("home/work")
    );
    assert_eq!(
        resolve_root(&top.join("way/new/er")).unwrap(),
        top.join("home/new/er")
    );
    for link in ["way", "way/", "way/.", "dangling", "dangling/x"] {
        let error = resolve_root(&top.join(link)).unwrap_err();
        assert!(matches!(error, Unresolved::Symlink(_)), "{link}: {error}");
    }
    let error = resolve_root(&top.join("new/../home")).unwrap_err();
    assert!(matches!(error, Unresolved::Missing(_)), "{error}");
}
