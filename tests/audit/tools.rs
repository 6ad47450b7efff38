//! How tools end, and what is found of their input afterwards.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use labproxy::audit::desk::Desk;
use labproxy::audit::record::exit_status;
use labproxy::audit::view::{Afterwards, View};
use labproxy::ledger::{SandboxKind, Verdict};

use crate::rig::{How, Rig, altered};

/// A tool sees the generation, byte for byte, at the place that it is told, and what it says is the
/// verdict; nothing of its copy stays.
#[test]
fn a_tool_looks_at_exactly_what_was_pulled() {
    let rig = Rig::new();
    rig.far("src/main.py", "print('hello')\n");
    rig.far("run.sh", "#!/bin/sh\nexit 0\n");
    fs::set_permissions(rig.path("far/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(rig.path("far/empty")).unwrap();
    let done = rig.sh("set -e
        test \"$LABPROXY_AUDIT_WORKSPACE\" = \"$PWD\"; test \"$PWD\" = /workspace
        test \"$LABPROXY_AUDIT_SESSION\" = ses_aaaaaaaaaaaaaaaaaaaaaaaaaa
        test ${#LABPROXY_AUDIT_TREE} = 64
        test \"$(find . | sort | tr '\\n' ' ')\" = '. ./empty ./run.sh ./src ./src/main.py '
        test \"$(cat src/main.py)\" = \"print('hello')\"
        test -x run.sh; test ! -x src/main.py");
    assert_eq!(done.verdict(), &Verdict::Passed);
    assert_eq!(exit_status(done.verdict()), 0);
    assert_eq!(done.audit.number, 1);
    assert_eq!(done.audit.sandbox, SandboxKind::Bubblewrap);
    let generation = done.audit.generation.unwrap();
    assert_eq!((generation.entries, generation.files), (4, 2));
    let audits = rig.paths().state().join("audits");
    let left: Vec<_> = fs::read_dir(audits.join(Rig::session().as_str()))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

/// The status is the tool's own, 128 + n when signal n ended it, and a shell's for what cannot be
/// run, in the sandbox and without it.
#[test]
fn the_status_is_the_tools_own() {
    let rig = Rig::new();
    rig.far("plain", "no program\n");
    let failed = |status| Verdict::Failed { status };
    for sandboxed in [true, false] {
        let how = How {
            sandboxed,
            ..How::default()
        };
        let verdict = |argv: &[&str]| rig.try_audit(argv, how).unwrap().audit.verdict;
        assert_eq!(verdict(&["true"]), Verdict::Passed);
        assert_eq!(verdict(&["sh", "-c", "exit 7"]), failed(7));
        assert_eq!(verdict(&["sh", "-c", "kill -9 $$"]), failed(137));
        assert_eq!(verdict(&["sh", "-c", "kill -15 $$"]), failed(143));
        assert_eq!(verdict(&["./absent"]), failed(127));
        assert_eq!(verdict(&["./plain"]), failed(126));
        assert_eq!(verdict(&["sh", "-c", "exit 123"]), failed(123));
    }
}

/// A tool that hangs is ended with all that it started, and so is one that ignores what it is told.
#[test]
fn a_tool_that_hangs_is_ended() {
    let rig = Rig::new();
    for sandboxed in [true, false] {
        let how = How {
            sandboxed,
            limit: Duration::from_millis(700),
            ..How::default()
        };
        let begun = Instant::now();
        let script = "trap '' TERM INT HUP; sleep 61.25 & sleep 61.25";
        let done = rig.try_audit(&["sh", "-c", script], how).unwrap();
        assert_eq!(done.verdict(), &Verdict::TimedOut { limit_ms: 700 });
        assert_eq!(exit_status(done.verdict()), 124);
        assert!(begun.elapsed() < Duration::from_secs(30));
        let sleeps = labproxy::processes::all()
            .filter(|process| !process.zombie)
            .filter_map(|process| fs::read(format!("/proc/{}/cmdline", process.stamp.pid)).ok())
            .filter(|line| line == b"sleep\x0061.25\0");
        assert_eq!(sleeps.count(), 0, "sandboxed: {sandboxed}");
    }
}

/// Every kind of change of the input is found, and named, where no sandbox keeps a tool from it; the
/// status of a tool that found fault itself stays its own.
#[test]
fn t03_a_tool_that_alters_its_input_proves_nothing() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    rig.far("d/b", "two\n");
    for (script, path) in [
        ("echo more >> a", "a"),
        ("chmod +x d/b", "d/b"),
        ("rm d/b", "d/b"),
        ("touch d/new", "d/new"),
        ("mkdir fresh", "fresh"),
        ("mv a c", "a"),
        ("ln -sf /etc/passwd a", "a"),
        ("mkfifo pipe", "pipe"),
        ("printf two. > d/b; touch -d @0 d/b", "d/b"),
    ] {
        let done = rig.bare(script);
        assert!(
            altered(&done).iter().any(|it| it == path),
            "{script}: {done:?}"
        );
        assert_eq!(exit_status(done.verdict()), 123, "{script}");
    }
    let done = rig.bare("rm a; exit 5");
    assert_eq!(altered(&done), ["a"]);
    assert_eq!(exit_status(done.verdict()), 5);
    let done = rig.bare("echo one > a; chmod 0 d; chmod 700 d");
    assert_eq!(
        done.verdict(),
        &Verdict::Passed,
        "the same bytes are the same input"
    );
}

/// What a tool leaves running is ended before its input is read again: it writes nothing later.
#[test]
fn t03_nothing_of_a_tool_outlives_it() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    let done = rig.restoring("(setsid sh -c 'while :; do :; done; echo late >> a' &) ; exit 0");
    assert_eq!(done.verdict(), &Verdict::Passed);
    let busy = labproxy::processes::all().filter(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.stamp.pid)).unwrap_or_default();
        !process.zombie && line.windows(9).any(|part| part == b"late >> a")
    });
    assert_eq!(busy.count(), 0);
}

/// A copy that a tool locked is removed all the same, and the next audit begins with a clean one.
#[test]
fn what_a_tool_locks_is_removed() {
    let rig = Rig::new();
    rig.far("d/e/f", "x");
    let done = rig.restoring("chmod 000 d/e d; exit 3");
    assert!(matches!(
        done.verdict(),
        Verdict::Failed { status: 3 } | Verdict::AlteredInput { status: 3, .. }
    ));
    assert_eq!(rig.sh("test -r d/e/f").verdict(), &Verdict::Passed);
}

/// Nor does a tree that is too deep to be walked stand in the way of the next audit.
#[test]
fn what_a_tool_makes_deep_is_removed() {
    let rig = Rig::new();
    rig.far("a", "x");
    let script = "import os\nfor _ in range(6000):\n  os.mkdir('d'); os.chdir('d')\nopen('f', 'w')";
    let how = How {
        restore: true,
        ..How::default()
    };
    let done = rig.try_audit(&["python3", "-c", script], how).unwrap();
    assert!(!altered(&done).is_empty(), "nobody can take it");
    assert_eq!(rig.sh("test ! -e d").verdict(), &Verdict::Passed);
}

/// A copy that is not read to its end is never taken for one that is the same.
#[test]
fn a_comparison_that_is_cut_off_says_nothing() {
    let rig = Rig::new();
    rig.far("a", "x");
    let store = rig.store();
    let (_, tree) = store.load(rig.publish(&store)).unwrap();
    let view = View::make(&rig.path("view"), &store, &tree).unwrap();
    assert_eq!(
        view.compare(&AtomicBool::new(false)).unwrap(),
        Afterwards::Same
    );
    assert!(view.compare(&AtomicBool::new(true)).is_err());
}

/// Two audits of one session are made one after the other.
#[test]
fn two_audits_wait_for_each_other() {
    let rig = Rig::new();
    let first = Desk::take(&rig.paths(), &Rig::session()).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            sender.send("begun").unwrap();
            let desk = Desk::take(&rig.paths(), &Rig::session()).unwrap();
            sender.send("taken").unwrap();
            drop(desk);
        });
        assert_eq!(receiver.recv(), Ok("begun"));
        // It cannot come while the first is there, however long that is.
        let early = receiver.recv_timeout(Duration::from_millis(300));
        assert!(early.is_err());
        drop(first);
        assert_eq!(receiver.recv(), Ok("taken"));
        second.join().unwrap();
    });
}

/// A link in the tree is copied as a link where the policy lets it be.
#[test]
fn an_allowed_link_stays_a_link() {
    let rig = Rig::new();
    rig.configure("[audit]\nsymlinks = \"allow\"\n");
    symlink("/etc/hostname", rig.path("far/out")).unwrap();
    let done = rig.sh("test \"$(readlink out)\" = /etc/hostname");
    assert_eq!(done.verdict(), &Verdict::Passed);
}
