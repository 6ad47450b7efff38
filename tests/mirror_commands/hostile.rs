//! What an agent may leave for whoever pulls: configuration that programs run, links and hard links
//! that lead out, files that change while they are read.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use labproxy::mirror::journal::{Journal, TreeOf};
use labproxy::mirror::state::MirrorDirectory;
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::Entry;
use labproxy::tree::limits::Limits;
use labproxy::tree::path::RelPath;

use crate::rig::Rig;
use crate::trees::read;

impl Rig {
    /// The one mirror of the user, taken.
    fn taken(&self) -> MirrorDirectory {
        let mirrors = self.path("home/.local/state/labproxy/mirrors");
        let entry = fs::read_dir(mirrors).unwrap().next().unwrap().unwrap();
        MirrorDirectory::take(&entry.path()).unwrap()
    }

    /// The last generation's tree, and its number.
    fn generation(&self) -> Option<(u64, Directory)> {
        let directory = self.taken();
        let mirror = directory.state().unwrap().unwrap().mirror;
        let store = directory.store(mirror, Limits::default()).unwrap();
        let head = store.latest().unwrap()?;
        Some((head.number.0, store.load(head.number).unwrap().1))
    }

    /// What the last generation says of a file's bytes.
    fn content(&self, path: &str) -> ContentId {
        let (_, tree) = self.generation().unwrap();
        match tree.find(&RelPath::new(path).unwrap()) {
            Some(Entry::File(file)) => file.content,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn git(&self, place: &str, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .arg("-C")
            .arg(self.path(place))
            .args(["-c", "user.name=x", "-c", "user.email=x@x"])
            .args(arguments)
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// An agent's commit arrives, and what it wrote for git to run does not, but is in the generation to
/// the byte; nothing of ours runs it either.
#[test]
fn t02_m66_a_hostile_repository_runs_nothing_and_its_commits_arrive() {
    let rig = Rig::new();
    rig.git("local", &["init", "-q"]);
    rig.write("local/a", "a");
    rig.git("local", &["add", "a"]);
    rig.git("local", &["commit", "-qm", "first"]);
    rig.push("");
    rig.write("far/a", "an agent's");
    rig.git("far", &["commit", "-qam", "an agent's commit"]);
    let canary = rig.path("canary");
    let script = format!("#!/bin/sh\ntouch {}\n", canary.display());
    rig.write("far/evil", &script);
    rig.write("far/.git/hooks/post-checkout", &script);
    for path in ["far/evil", "far/.git/hooks/post-checkout"] {
        fs::set_permissions(rig.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let config = format!(
        "[core]\n\tfsmonitor = {0}\n\tpager = {0}\n\tsshCommand = {0}\n",
        rig.path("far/evil").display()
    );
    rig.write("far/.git/config", &config);
    rig.pull("");
    assert_eq!(rig.content(".git/config"), ContentId::of(config.as_bytes()));
    assert_eq!(
        rig.content(".git/hooks/post-checkout"),
        ContentId::of(script.as_bytes())
    );
    assert!(!rig.has("local/.git/hooks/post-checkout"));
    assert_eq!(rig.git("local", &["status", "--porcelain"]), "?? evil\n");
    assert!(
        rig.git("local", &["log", "--format=%s"])
            .starts_with("an agent's commit\n")
    );
    rig.git("local", &["fsck", "--strict"]);
    rig.write("local/a", "mine");
    rig.git("local", &["commit", "-qam", "mine"]);
    rig.push("");
    rig.pull("");
    assert!(!canary.exists());
    // The canary would have told: there, git runs it.
    let _status = Command::new("git")
        .arg("-C")
        .arg(rig.path("far"))
        .arg("status")
        .output();
    assert!(canary.exists());
}

/// Whatever stands where a mirror's end is named, nothing of it is touched.
#[test]
fn t06_directories_that_are_no_ends_of_a_mirror_are_refused() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.write("home/kept", "k");
    symlink(rig.path("home"), rig.path("link")).unwrap();
    let run = |what: &str, local: &str, far: &str| {
        let words = [
            "mirror".into(),
            what.into(),
            rig.path(local).into_os_string(),
            rig.path(far).into_os_string(),
        ];
        rig.run(words)
    };
    fs::create_dir(rig.path("home/.ssh")).unwrap();
    for far in [
        "/",
        "home",
        "",
        "home/.ssh",
        "home/.local/state/labproxy",
        "link",
        "local/a",
    ] {
        let ran = run("push", "local", far);
        assert!(
            ran.code != 0 && ran.stderr.starts_with("error: "),
            "{far}: {ran:?}"
        );
        assert!(!rig.has(format!("{far}/a")) || far == "local", "{far}");
    }
    assert_eq!(rig.read("home/kept"), b"k");
}

/// What looks like a secret is not pushed, and a hostile ignore file does not change what is looked at.
#[test]
fn t14_a_secret_is_not_pushed_unless_it_is_named() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.write("local/.env", "KEY=1");
    rig.write("local/.gitignore", "!.env\n*\n");
    let ran = rig.mirror("push", "").expect(1);
    assert!(ran.stderr.contains(".env"), "{}", ran.stderr);
    assert!(!rig.has("far/a") && !rig.has("far/.env"));
    rig.push("--allow-secret .env");
    assert_eq!(rig.read("far/.env"), b"KEY=1");
}

/// What a user did between a crash of a pull and the next one is neither undone nor deleted, also where
/// the pull had nothing to do; its own leftovers are.
#[test]
fn t30_edits_after_a_crash_of_a_pull_survive() {
    let rig = Rig::new();
    for (name, text) in [("a", "old"), ("b", "old"), ("same", "s"), ("goes", "g")] {
        rig.write(format!("local/{name}"), text);
    }
    rig.push("");
    rig.write("far/a", "new");
    rig.write("far/b", "new");
    fs::remove_file(rig.path("far/goes")).unwrap();
    rig.pull("--generation-only");
    let (number, tree) = rig.generation().unwrap();
    let directory = rig.taken();
    let state = directory.state().unwrap().unwrap();
    let before = {
        let agreed = labproxy::mirror::agreed::Agreed::read(directory.path(), &Limits::default());
        agreed.unwrap().unwrap().here
    };
    let journal = Journal {
        mirror: state.mirror,
        root: state.identity,
        generation: labproxy::mirror::store::GenerationNumber(number),
        old: TreeOf::Here(before),
        new: TreeOf::Here(tree),
    };
    drop(journal.begin(directory.path()).unwrap());
    drop(directory);
    // It had done `a`; the rest is the user's.
    rig.write("local/a", "new");
    rig.write("local/same", "mine");
    rig.write("local/more", "mine");
    let unfinished = format!("local/.labproxy-{}.tmp", "0123456789abcdef".repeat(2));
    rig.write(&unfinished, "ha");
    let ran = rig.mirror("pull", "").expect(1);
    assert!(
        ran.stderr.contains("same") && ran.stderr.contains("more"),
        "{}",
        ran.stderr
    );
    assert_eq!(rig.read("local/a"), b"new");
    assert_eq!(rig.read("local/b"), b"new");
    assert_eq!(rig.read("local/same"), b"mine");
    assert_eq!(rig.read("local/more"), b"mine");
    assert!(!rig.has("local/goes") && !rig.has(&unfinished));
    // A journal that somebody forged stops everything.
    let directory = rig.taken();
    fs::write(directory.path().join("journal"), "forged").unwrap();
    drop(directory);
    rig.mirror("pull", "").expect(1);
    assert_eq!(rig.read("local/same"), b"mine");
}

/// A store that somebody edited gives out no byte of it.
#[test]
fn t31_an_edited_store_never_reaches_the_workspace() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.push("");
    let text = vec![b'x'; 50_000];
    rig.write("far/big", &text);
    rig.pull("--generation-only");
    let store = rig.taken().path().join("store");
    let mut edited = 0;
    let mut left = vec![store];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(40).position(|part| part == [b'x'; 40]) {
                bytes[at + 20] = b'y';
                fs::write(&path, bytes).unwrap();
                edited += 1;
            }
        }
    }
    let ran = rig.mirror("pull", "");
    if edited > 0 && ran.code == 0 {
        assert_eq!(rig.read("local/big"), text);
    }
    assert!(
        !rig.has("local/big") || rig.read("local/big") == text,
        "{ran:?}"
    );
    assert_eq!(rig.read("local/a"), b"a");
}

/// A file that has another name outside is replaced, never written to, at both ends.
#[test]
fn t32_other_names_of_a_file_keep_their_bytes() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.push("");
    fs::hard_link(rig.path("local/a"), rig.path("outside-here")).unwrap();
    fs::hard_link(rig.path("far/a"), rig.path("outside-there")).unwrap();
    rig.write("local/new", "two");
    fs::rename(rig.path("local/new"), rig.path("local/a")).unwrap();
    fs::hard_link(rig.path("local/a"), rig.path("second")).unwrap();
    rig.push("");
    assert_eq!(rig.read("outside-there"), b"one");
    fs::remove_file(rig.path("far/a")).unwrap();
    rig.write("far/a", "three");
    rig.pull("");
    assert_eq!(rig.read("local/a"), b"three");
    assert_eq!(
        (rig.read("outside-here"), rig.read("second")),
        (b"one".into(), b"two".into())
    );
}

/// Links that lead out are text; nothing behind them is read or written, also when they take the place
/// of a directory.
#[test]
fn t33_links_that_lead_out_are_only_text() {
    let rig = Rig::new();
    rig.write("victim/secret", "s");
    rig.write("local/d/file", "f");
    rig.push("");
    fs::remove_dir_all(rig.path("far/d")).unwrap();
    symlink(rig.path("victim"), rig.path("far/d")).unwrap();
    symlink("../../../../etc/passwd", rig.path("far/up")).unwrap();
    rig.pull("--allow-deletes");
    assert_eq!(
        fs::read_link(rig.path("local/d")).unwrap(),
        rig.path("victim")
    );
    fs::remove_file(rig.path("local/d")).unwrap();
    rig.write("local/d/secret", "mine");
    rig.push("");
    assert_eq!(rig.read("victim/secret"), b"s");
    assert_eq!(rig.read("far/d/secret"), b"mine");
    assert_eq!(read(&rig.path("victim")).len(), 1);
}

/// What no event and no time of a file tells is in the next pull: a store through a mapping, a write
/// through a name outside.
#[test]
fn m44_what_no_watcher_sees_is_in_the_next_pull() {
    let rig = Rig::new();
    rig.write("local/mapped", vec![b'.'; 8_192]);
    rig.write("local/linked", "before");
    rig.push("");
    let script = "import mmap,os,sys\np=sys.argv[1]\ns=os.stat(p)\nf=open(p,'r+b')\n\
                  m=mmap.mmap(f.fileno(),0)\nm[100]=33\nm.flush()\nm.close()\nf.close()\n\
                  os.utime(p,ns=(s.st_atime_ns,s.st_mtime_ns))\n";
    let status = Command::new("python3")
        .args(["-c", script])
        .arg(rig.path("far/mapped"))
        .status();
    assert!(status.unwrap().success());
    fs::hard_link(rig.path("far/linked"), rig.path("outside")).unwrap();
    let before = fs::metadata(rig.path("outside"))
        .unwrap()
        .modified()
        .unwrap();
    let mut outside = fs::File::options()
        .write(true)
        .open(rig.path("outside"))
        .unwrap();
    outside.write_all(b"after!").unwrap();
    outside.set_modified(before).unwrap();
    rig.pull("");
    assert_eq!(rig.read("local/mapped")[100], b'!');
    assert_eq!(rig.read("local/linked"), b"after!");
}

/// A file that grows all the time is stored as it was at one instant, or named; never torn.
#[test]
fn m60_a_file_that_grows_is_never_torn() {
    let rig = Rig::new();
    rig.write("local/log", "");
    rig.push("");
    let (path, ended) = (rig.path("far/log"), AtomicBool::new(false));
    let line = |number: u32| format!("{number:07}\n");
    let mut published = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = fs::File::options().append(true).open(&path).unwrap();
            for number in 0_u32.. {
                log.write_all(line(number).as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                if ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..6 {
            let ran = rig.mirror("pull", "--generation-only");
            if ran.code != 0 {
                assert!(ran.stderr.contains("log"), "{}", ran.stderr);
                continue;
            }
            published += 1;
            let (_, tree) = rig.generation().unwrap();
            let Some(Entry::File(file)) = tree.find(&RelPath::new("log").unwrap()) else {
                panic!("no log");
            };
            let lines = u32::try_from(file.size / 8).unwrap();
            let whole: String = (0..lines).map(line).collect();
            assert_eq!(
                file.content,
                ContentId::of(whole.as_bytes()),
                "{lines} lines"
            );
        }
        ended.store(true, Ordering::Relaxed);
    });
    eprintln!("{published} of 6 pulls were published");
}

/// Commits are made all the time while pulls go on. What git has locked is named and stays out of the
/// directory here, where it would stop git; once git rests, the copy is a sound repository.
#[test]
fn m67_a_repository_in_use_is_copied_whole_once_it_rests() {
    let rig = Rig::new();
    rig.git("local", &["init", "-q"]);
    rig.write("local/a", "0");
    rig.git("local", &["add", "a"]);
    rig.git("local", &["commit", "-qm", "0"]);
    rig.push("");
    let ended = AtomicBool::new(false);
    let locks = |rig: &Rig| {
        let all = read(&rig.path("local/.git"));
        all.into_keys()
            .filter(|path| path.ends_with(b".lock"))
            .count()
    };
    let mut sound = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1_u32.. {
                rig.write("far/a", number.to_string());
                rig.git("far", &["commit", "-qam", &number.to_string()]);
                if ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..12 {
            let ran = rig.mirror("pull", "");
            assert_eq!(locks(&rig), 0, "{}", ran.stdout);
            // Else files changed faster than they could be read, and are named.
            assert!(
                ran.code == 0 || ran.stderr.contains(".git"),
                "{}",
                ran.stderr
            );
            let fsck = Command::new("git")
                .arg("-C")
                .arg(rig.path("local"))
                .args(["fsck", "--strict"])
                .output();
            sound += u32::from(fsck.unwrap().status.success());
        }
        ended.store(true, Ordering::Relaxed);
    });
    eprintln!("{sound} of 12 copies of a repository in use were sound");
    rig.pull("");
    rig.git("local", &["fsck", "--strict"]);
    let log = |place| rig.git(place, &["log", "--format=%H %s"]);
    assert_eq!(log("local"), log("far"));
    assert_eq!(
        rig.git("local", &["--no-optional-locks", "status", "--porcelain"]),
        ""
    );
    // A lock that stands there, as a copy in the middle of something has it.
    rig.write("far/.git/index.lock", "half");
    rig.write("far/.git/refs/heads/main.lock", "half");
    let pulled = rig.pull("");
    for name in [".git/index.lock", ".git/refs/heads/main.lock"] {
        let line = format!("held     {name}: git was at work there");
        assert!(pulled.stdout.contains(&line), "{}", pulled.stdout);
        assert_eq!(rig.content(name), ContentId::of(b"half"));
    }
    assert_eq!(locks(&rig), 0);
    // It is git's there, and no push takes it away.
    rig.write("local/b", "b");
    rig.push("");
    assert!(rig.has("far/.git/index.lock") && rig.has("far/b"));
}
