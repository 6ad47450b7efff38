//! What a user sees: summaries, refusals, exit statuses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::rig::Rig;

#[test]
fn a_tree_goes_there_and_comes_back() {
    let rig = Rig::new();
    rig.write("local/d/a", "one");
    let pushed = rig.push("");
    assert!(
        pushed.stderr.contains("first push: 1 file, 3 bytes, to "),
        "{}",
        pushed.stderr
    );
    assert!(pushed.stdout.starts_with("pushed 2 new, 0 changed"));
    assert_eq!(rig.read("far/d/a"), b"one");
    rig.write("far/d/a", "two");
    let pulled = rig.pull("--json").json();
    assert_eq!(pulled["generation"], 1);
    assert_eq!(pulled["changed"], 1);
    assert_eq!(rig.read("local/d/a"), b"two");
    assert!(rig.push("").stderr.is_empty());
}

/// Each line of a list is a line, and each refusal says what helps.
#[test]
fn refusals_are_lists_with_a_remedy() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.push("");
    rig.write("far/b", "theirs");
    rig.write("far/c", "theirs");
    let refused = rig.mirror("push", "").expect(1);
    assert!(
        refused.stderr.contains("\n  b\n  c\nhint: pull first"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("push --force"));
    rig.write("local/b", "mine");
    let edited = rig.mirror("pull", "").expect(1);
    assert!(edited.stderr.contains("\n  b\nhint: "), "{}", edited.stderr);
    assert_eq!(rig.read("local/b"), b"mine");
    let forced = rig.push("--force --json").json();
    assert_eq!(forced["saved_generation"], 1);
    assert_eq!(rig.read("far/b"), b"mine");
    assert!(!rig.has("far/c"));
}

#[test]
fn what_is_no_end_exits_2() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.write("file", "no directory");
    std::os::unix::fs::symlink(rig.path("local"), rig.path("link")).unwrap();
    let far = rig.path("far");
    for (root, why) in [
        ("missing", "it does not exist"),
        ("file", "it is no directory"),
        ("link", "is a symlink"),
    ] {
        let words = [OsStr::new("mirror"), OsStr::new("push")];
        let root = rig.path(root);
        let ran = rig.run(words.into_iter().chain([root.as_os_str(), far.as_os_str()]));
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
    assert!(!rig.has("far"));
    rig.mirror("status", "").expect(2);
    rig.mirror("push", "--exclude a[b").expect(2);
    rig.mirror("push", "--allow-secret ../a").expect(2);
}

/// Either end, each with its reason, and nothing is made.
#[test]
fn t06_roots_that_hold_more_than_work_exit_2() {
    let rig = Rig::new();
    rig.write("home/.ssh/id", "key");
    rig.write("home/.local/state/labproxy/x", "state");
    rig.write("home/.config/labproxy/config.toml", "");
    rig.write("local/in/a", "one");
    rig.write("good/a", "one");
    for (root, why) in [
        ("/", "the whole file system"),
        ("/proc", "a file system is mounted"),
        ("home", "the home directory"),
        ("", "contains the home directory"),
        ("home/.ssh", "ssh keys"),
        ("home/.ssh/deeper", "ssh keys"),
        ("home/.config", "labproxy's configuration"),
        ("home/.local/state/labproxy/mirrors", "the store of mirrors"),
        ("run", "labproxy's state"),
    ] {
        let root = rig.path(root);
        let good = rig.path("good");
        for (local, far) in [(&root, &good), (&good, &root)] {
            for what in ["push", "pull"] {
                let words = [OsStr::new("mirror"), OsStr::new(what)];
                let ends = [local.as_os_str(), far.as_os_str()];
                let ran = rig.run(words.into_iter().chain(ends));
                assert!(ran.stderr.contains(why), "{ends:?}: {}", ran.stderr);
                assert_eq!(ran.code, 2, "{ends:?}: {}", ran.stderr);
            }
        }
    }
    for (one, other) in [
        ("local", "local"),
        ("local", "local/in"),
        ("local/in", "local"),
    ] {
        let ends = [rig.path(one), rig.path(other)];
        let words = ["mirror", "push"].map(OsStr::new);
        let ran = rig.run(
            words
                .into_iter()
                .chain(ends.iter().map(|end| end.as_os_str())),
        );
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
    assert_eq!(rig.read("good/a"), b"one");
    assert!(!rig.has("home/.local/state/labproxy/mirrors"));
}

#[test]
fn t06_a_directory_that_is_not_empty_is_no_first_destination() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.write("far/theirs", "keep");
    let ran = rig.mirror("push", "").expect(1);
    assert!(ran.stderr.contains("is not empty"), "{}", ran.stderr);
    let ran = rig.mirror("pull", "").expect(1);
    assert!(ran.stderr.contains("is not empty"), "{}", ran.stderr);
    assert_eq!(rig.read("far/theirs"), b"keep");
    assert!(!rig.has("far/a") && rig.has("local/a") && !rig.has("local/theirs"));
}

/// What the files and flags say at the first push holds; what they say later does not.
#[test]
fn t14_excludes_are_fixed_at_the_first_push() {
    let rig = Rig::new();
    rig.write("local/.labproxyignore", "/data\n");
    rig.write("local/d/.labproxyignore", "*.tmp\n!keep.tmp\n");
    rig.write("local/data/.labproxyignore", "no [pattern\n");
    for path in ["data/a", "d/a.tmp", "d/keep.tmp", "b.log", "c"] {
        rig.write(format!("local/{path}"), path);
    }
    rig.push("--exclude *.log");
    for path in ["data", "d/a.tmp", "b.log"] {
        assert!(!rig.has(format!("far/{path}")), "{path}");
    }
    for path in ["c", "d/keep.tmp", ".labproxyignore"] {
        assert!(rig.has(format!("far/{path}")), "{path}");
    }
    // An agent's word, there and pulled here.
    rig.write("far/.labproxyignore", "!data\n");
    rig.write("far/data/agents", "x");
    rig.pull("");
    assert!(!rig.has("local/data/agents"), "excluded: it stays there");
    rig.write("local/e", "new");
    let pushed = rig.push("");
    assert!(
        pushed.stderr.contains(".labproxyignore is not what it was"),
        "{}",
        pushed.stderr
    );
    assert!(!rig.has("far/data/a") && rig.has("far/e"));
    assert_eq!(rig.read("far/data/agents"), b"x");
    let pushed = rig.push("--exclude c");
    assert!(
        pushed.stderr.contains("--exclude has no effect"),
        "{}",
        pushed.stderr
    );
}

/// Excludes given after a first push that was refused count: nothing was mirrored by the others.
#[test]
fn t14_a_refused_first_push_fixes_no_excludes() {
    let rig = Rig::new();
    rig.write("local/.env", "KEY=1");
    rig.write("local/a", "one");
    let refused = rig.mirror("push", "").expect(1);
    assert!(refused.stderr.contains("\n  .env: "), "{}", refused.stderr);
    assert!(refused.stderr.contains("--allow-secret"));
    rig.push("--exclude .env");
    assert!(rig.has("far/a") && !rig.has("far/.env"));
}

/// Wherever the credential was configured, no byte leaves, and it is not printed.
#[test]
fn t14_the_configured_credential_is_never_sent() {
    const KEY: &str = "sk-ant-canary-0123456789";
    let rig = Rig::new();
    rig.write("local/sub/notes.txt", format!("key: {KEY}\n"));
    rig.write("local/a", "clean");
    let refused = |ran: crate::rig::Ran| {
        let ran = ran.expect(1);
        assert!(
            ran.stderr
                .contains("the configured credential\n  sub/notes.txt\n"),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains(KEY) && !ran.stdout.contains(KEY));
        assert!(!rig.has("far/a") && !rig.has("far/sub"));
    };
    let (local, far) = (rig.path("local"), rig.path("far"));
    let words = [
        OsStr::new("mirror"),
        OsStr::new("push"),
        local.as_os_str(),
        far.as_os_str(),
    ];
    for dry in [true, false] {
        let mut command = rig.command(words);
        command.env("ANTHROPIC_API_KEY", KEY);
        if dry {
            command.arg("--dry-run");
        }
        refused(crate::rig::Ran::of(&command.output().unwrap()));
    }
    rig.write("home/key", KEY);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(rig.path("home/key"), private).unwrap();
    let config = format!(
        "[upstream.anthropic]\ncredential = {{ kind = \"api_key\", file = {:?} }}\n",
        rig.path("home/key")
    );
    rig.write("home/.config/labproxy/config.toml", config);
    refused(rig.mirror("push", ""));
    rig.write("local/sub/notes.txt", "clean now");
    rig.push("");
    std::fs::remove_file(rig.path("home/key")).unwrap();
    rig.write("local/a", "other");
    let ran = rig.mirror("push", "");
    assert!(
        ran.code == 2 && ran.stderr.contains("credential"),
        "{}",
        ran.stderr
    );
    assert_eq!(rig.read("far/a"), b"clean", "not searched, not sent");
}

/// Names that would drive a terminal are escaped in every command, and whole in JSON.
#[test]
fn m49_names_cannot_drive_a_terminal() {
    let rig = Rig::new();
    let names: [&[u8]; 4] = [b"a\x1b[2J", b"b\rc\nd", "e\u{9b}f".as_bytes(), b"g\xff\x9b"];
    for name in names {
        rig.write(
            std::path::Path::new("local").join(OsStr::from_bytes(name)),
            "x",
        );
    }
    let mut outputs = vec![
        rig.push("--dry-run"),
        rig.push("--dry-run --json"),
        rig.mirror("diff", "").expect(1),
        rig.mirror("diff", "--json").expect(1),
    ];
    let items = outputs[1].json()["items"].clone();
    assert_eq!(items[0]["path"], "a\u{1b}[2J");
    assert_eq!(items[3]["path"], serde_json::json!([b'g', 0xff, 0x9b]));
    rig.push("");
    for name in names {
        rig.write(
            std::path::Path::new("far").join(OsStr::from_bytes(name)),
            "theirs",
        );
    }
    outputs.push(rig.mirror("push", "").expect(1));
    outputs.push(rig.mirror("status", "").expect(0));
    outputs.push(rig.mirror("verify", "").expect(1));
    for name in names {
        rig.write(
            std::path::Path::new("local").join(OsStr::from_bytes(name)),
            "mine",
        );
    }
    outputs.push(rig.mirror("pull", "").expect(1));
    for ran in outputs {
        for text in [&ran.stdout, &ran.stderr] {
            let raw = text
                .chars()
                .any(|letter| letter.is_control() && letter != '\n');
            assert!(!raw && !text.contains('\u{fffd}'), "{text:?}");
        }
    }
}

/// Everything that a push would do, and nothing is done.
#[test]
fn a_dry_run_lists_each_change() {
    let rig = Rig::new();
    for path in ["same", "changed", "gone", "from/1", "from/2"] {
        rig.write(format!("local/{path}"), format!("text of {path}"));
    }
    rig.push("");
    rig.write("local/changed", "another");
    rig.write("local/new", "new");
    rig.write("local/copy", "text of same");
    std::fs::remove_file(rig.path("local/gone")).unwrap();
    std::fs::rename(rig.path("local/from"), rig.path("local/to")).unwrap();
    let ran = rig.push("-n");
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        lines
            .pop()
            .unwrap()
            .starts_with("would push 1 new, 1 changed")
    );
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "changed  changed",
            "copied   copy (from same)",
            "deleted  gone",
            "moved    to (from from)",
            "new      new",
        ]
    );
    assert!(rig.has("far/gone") && !rig.has("far/new"));
    let diff = rig.mirror("diff", "").expect(1);
    assert!(diff.stdout.contains("differs  changed\n") && diff.stdout.contains("there    gone\n"));
    rig.push("");
    assert_eq!(rig.mirror("diff", "").expect(0).stdout, "");
}

#[test]
fn status_and_verify_find_what_changed_on_either_end() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.write("local/b", "two");
    rig.push("");
    rig.write("far/a", "theirs");
    rig.pull("");
    let status = rig.mirror("status", "--json").expect(0).json();
    assert_eq!(status["generation"]["generation"], 1);
    assert_eq!(
        (&status["changed_here"], &status["changed_far"]),
        (&0.into(), &0.into())
    );
    assert!(
        rig.mirror("verify", "--json").expect(0).json()["sound"]
            .as_bool()
            .unwrap()
    );
    assert_eq!(
        rig.mirror("list", "--json")
            .expect(0)
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    rig.write("local/b", "edited");
    rig.write("far/c", "new");
    let status = rig.mirror("status", "").expect(0);
    assert!(
        status.stdout.contains("1 change since"),
        "{}",
        status.stdout
    );
    let verified = rig.mirror("verify", "--json").expect(1).json();
    assert_eq!(verified["changed_here"][0]["path"], "b");
    assert_eq!(verified["changed_far"][0]["what"], "added");
}

/// A damaged store is found, though both ends are as they were.
#[test]
fn verify_reads_the_store_again() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.push("");
    rig.write("far/a", "some text that is stored");
    rig.pull("");
    let mirrors = rig.path("home/.local/state/labproxy/mirrors");
    let mirror = std::fs::read_dir(mirrors).unwrap().next().unwrap().unwrap();
    let store = std::fs::read_dir(mirror.path().join("store")).unwrap();
    let pack = store.map(|entry| entry.unwrap().path()).find(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(9).any(|part| part == b"some text")
    });
    let pack = pack.unwrap();
    let bytes = std::fs::read(&pack).unwrap();
    let at = bytes
        .windows(9)
        .position(|part| part == b"some text")
        .unwrap();
    let mut damaged = bytes;
    damaged[at] ^= 1;
    std::fs::write(&pack, damaged).unwrap();
    let verified = rig.mirror("verify", "--json").expect(1).json();
    assert_eq!(verified["unsound"][0]["path"], "a");
    assert_eq!(verified["changed_here"], serde_json::json!([]));
}

/// What programs run by themselves waits, and comes only when it is asked for, alone.
#[test]
fn t02_what_was_held_back_comes_when_it_is_accepted() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.push("");
    rig.write("far/.envrc", "evil");
    rig.write("far/.vscode/tasks.json", "{}");
    rig.write("far/b", "plain");
    let pulled = rig.pull("");
    assert!(
        pulled.stdout.contains("held     .envrc: "),
        "{}",
        pulled.stdout
    );
    assert!(rig.has("local/b") && !rig.has("local/.envrc"));
    rig.mirror("accept", "b").expect(2);
    rig.write("local/mine", "an edit elsewhere");
    let accepted = rig.mirror("accept", ".envrc").expect(0);
    assert_eq!(accepted.stdout, "accepted .envrc\n");
    assert_eq!(rig.read("local/.envrc"), b"evil");
    assert_eq!(rig.read("local/mine"), b"an edit elsewhere");
    assert!(!rig.has("local/.vscode/tasks.json"));
    rig.write("local/.vscode/tasks.json", "mine");
    let refused = rig.mirror("accept", ".vscode").expect(1);
    assert!(
        refused.stderr.contains("\n  .vscode/tasks.json\n"),
        "{}",
        refused.stderr
    );
    assert_eq!(rig.read("local/.vscode/tasks.json"), b"mine");
    std::fs::remove_dir_all(rig.path("local/.vscode")).unwrap();
    rig.mirror("accept", ".vscode").expect(0);
    std::fs::remove_file(rig.path("local/mine")).unwrap();
    let status = rig.mirror("status", "--json").expect(0).json();
    assert_eq!(status["held_back"], serde_json::json!([]));
    assert_eq!(status["changed_here"], 0, "{status}");
    rig.push("");
    assert_eq!(rig.read("far/.envrc"), b"evil");
}

/// Patterns of the configuration hold for every mirror, are decided over by files and flags, and are
/// fixed like these when both ends first agree.
#[test]
fn t14_excludes_of_the_configuration_are_fixed_at_the_first_push() {
    let rig = Rig::new();
    let configure = |text: &str| rig.write("home/.config/labproxy/config.toml", text);
    configure("[mirror]\nexclude = [\"*.log\", \"*.bin\", \"/data/\"]\n");
    for name in [
        "a.log", "b.bin", "keep.bin", "data/x", "d/data/y", "flag.log", "z",
    ] {
        rig.write(format!("local/{name}"), name);
    }
    rig.write("local/.labproxyignore", "!keep.bin\n");
    let dry = rig
        .mirror("push", "--dry-run --exclude !flag.log")
        .expect(0);
    assert!(!dry.stdout.contains("a.log") && dry.stdout.contains("flag.log"));
    rig.push("--exclude !flag.log");
    for (name, there) in [
        ("a.log", false),
        ("b.bin", false),
        ("keep.bin", true),
        ("data", false),
        ("d/data/y", true),
        ("flag.log", true),
        ("z", true),
    ] {
        assert_eq!(rig.has(format!("far/{name}")), there, "{name}");
    }
    rig.write("far/data/theirs", "stays");
    configure("[mirror]\nexclude = []\n");
    let later = rig.push("");
    assert!(
        later.stderr.contains("note: mirror.exclude"),
        "{}",
        later.stderr
    );
    assert!(!rig.has("far/a.log") && rig.has("far/data/theirs"));
    configure("[mirror]\nexclude = [\"a[b\"]\n");
    let refused = rig.mirror("push", "").expect(2);
    let place = "config.toml:2: mirror.exclude: 'a[b' is no pattern";
    assert!(refused.stderr.contains(place), "{}", refused.stderr);
}
