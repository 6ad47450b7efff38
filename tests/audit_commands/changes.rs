//! `audit run --restore`: what a tool made becomes the workspace's content, or nothing does.

use std::fs;
use std::path::PathBuf;

use crate::place::Place;
use crate::rig::{Done, Running, eventually};

/// Both ends: the directory on the host and the one here.
fn ends(place: &Place) -> [PathBuf; 2] {
    [place.there(""), place.world.rig.path("work")]
}

fn restoring(place: &Place, script: &str) -> Done {
    place.run(&["--restore"], &["sh", "-c", script])
}

/// What a tool made while the agent works is there, here and in the record; both commands that verify
/// find it sound.
#[test]
fn what_a_tool_makes_is_on_both_ends() {
    let place =
        Place::live("echo two > b.txt; mkdir d; echo deep > d/c; touch made; exec sleep 600");
    eventually("the agent's files", || {
        place.there("made").exists().then_some(())
    });
    let done = restoring(
        &place,
        "sed -i s/two/2/ b.txt; rm d/c; printf 'stamp\\n' > n; cat a.txt",
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "one");
    assert!(done.stderr.contains("audit 1: restored ("), "{done:?}");
    for root in ends(&place) {
        assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\n");
        assert_eq!(fs::read(root.join("b.txt")).unwrap(), b"2\n");
        assert_eq!(fs::read(root.join("n")).unwrap(), b"stamp\n");
        assert!(root.join("d").is_dir() && !root.join("d/c").exists());
    }
    let first = place.audits()[0].clone();
    assert_eq!(first["verdict"], "restored");
    assert_ne!(first["tree"], first["generation"]["tree"]);
    assert_eq!(first["pushed"], first["tree"]);
    place.sh("grep -qx stamp n", 0);
    assert_eq!(place.audits()[1]["generation"]["tree"], first["tree"]);
    let show = place.labproxy(&["audit", "show", "1"]);
    for part in [
        "verdict     restored (",
        "tree after  ",
        "pushed      ",
        "changed     b.txt",
    ] {
        assert!(show.stdout.contains(part), "{show:?}");
    }
    let stopped = place.labproxy(&["session", "stop", &place.session]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(place.world.rig.path("work/made").exists());
    for words in [["audit", "verify"], ["ledger", "verify"]] {
        let done = place.labproxy(&words);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
}

/// What the host changed after the pull, and what was edited here, is a conflict: it is named, nothing is
/// overwritten at either end, and what the tool made is kept as a generation.
#[test]
fn a_change_meanwhile_is_a_conflict() {
    let place = Place::new("echo two > b.txt");
    let gate = place.world.rig.path("gate");
    fs::create_dir(&gate).unwrap();
    place.configure(&format!("[audit]\nread = [{gate:?}]"));
    let script = format!(
        "echo made > a.txt; echo ready; until test -e {}/open; do sleep 0.05; done",
        gate.display()
    );
    let tool = ["sh", "-c", &script];
    let running = Running::of(&mut place.command(&["--restore"], &tool));
    assert_eq!(running.line(), "ready");
    fs::write(place.there("b.txt"), "the agent's\n").unwrap();
    fs::write(gate.join("open"), "").unwrap();
    let done = running.finish();
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains("has changed") && done.stderr.contains("b.txt"),
        "{done:?}"
    );
    let audit = place.audits()[0].clone();
    assert_eq!(audit["verdict"], "not_restored");
    assert!(audit["kept"].as_u64() > audit["generation"]["generation"].as_u64());
    assert_eq!(fs::read(place.there("b.txt")).unwrap(), b"the agent's\n");
    let unchanged = |place: &Place| {
        for root in ends(place) {
            assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\n");
        }
    };
    unchanged(&place);
    fs::write(place.world.rig.path("work/b.txt"), "mine\n").unwrap();
    let done = restoring(&place, "echo made > a.txt");
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains("was edited") && done.stderr.contains("b.txt"),
        "{done:?}"
    );
    assert_eq!(fs::read(place.there("b.txt")).unwrap(), b"the agent's\n");
    assert_eq!(
        fs::read(place.world.rig.path("work/b.txt")).unwrap(),
        b"mine\n"
    );
    unchanged(&place);
}

/// A tool that fails, a hostile one and one that makes what no push carries change nothing at either end.
#[test]
fn t03_nothing_is_pushed_of_a_tool_that_fails_or_harms() {
    let place = Place::new("echo two > b.txt");
    for (script, code, verdict) in [
        ("echo x > b.txt; exit 3", 3, "failed"),
        (
            "echo x > b.txt; ln -s /etc/passwd out",
            123,
            "change_refused",
        ),
        ("echo x > b.txt; chmod u+s b.txt", 123, "change_refused"),
        ("echo x > b.txt; mkfifo pipe", 123, "change_refused"),
        ("rm -rf -- * .??*", 125, "not_restored"),
        ("echo KEY=1 > .env", 125, "not_restored"),
    ] {
        let done = restoring(&place, script);
        assert_eq!(done.code, Some(code), "{script}: {done:?}");
        assert_eq!(place.verdict(), verdict, "{script}");
        for root in ends(&place) {
            let names = fs::read_dir(&root)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.collect();
            names.sort();
            assert_eq!(names, ["a.txt", "b.txt"], "{script}");
            assert_eq!(fs::read(root.join("b.txt")).unwrap(), b"two\n", "{script}");
        }
    }
    let options = ["--restore", "--allow-secret", ".env"];
    let done = place.run(&options, &["sh", "-c", "echo KEY=1 > .env"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(place.there(".env").exists());
    let verify = place.labproxy(&["ledger", "verify"]);
    assert_eq!(verify.code, Some(0), "{verify:?}");
}
