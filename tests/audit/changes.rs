//! Tools that may change their copy, and what may become of that.

use std::io::Read as _;

use labproxy::audit::record::exit_status;
use labproxy::audit::view::text;
use labproxy::ledger::Verdict;
use labproxy::mirror::store::GenerationNumber;
use labproxy::tree::entry::Entry;
use labproxy::tree::path::RelPath;

use crate::rig::{How, Rig};

/// A copy can be written to only by a tool that restores; what it made is a generation then, byte for
/// byte, and the record has both trees.
#[test]
fn t03_only_a_tool_that_restores_can_write() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    rig.far("d/b", "two\n");
    let script = "echo more >> a && rm d/b && echo new > n && chmod +x n";
    let done = rig.sh(script);
    assert!(
        matches!(done.verdict(), Verdict::Failed { status } if *status != 0),
        "{done:?}"
    );
    let done = rig.restoring(script);
    let Verdict::Restored {
        kept,
        tree,
        paths,
        count,
        ..
    } = done.verdict()
    else {
        panic!("{done:?}");
    };
    assert_eq!(exit_status(done.verdict()), 0);
    assert_eq!(
        (paths.as_slice(), *count),
        (["a", "d/b", "n"].map(String::from).as_slice(), 3)
    );
    let store = rig.store();
    let (head, made) = store.load(GenerationNumber(*kept)).unwrap();
    let before = done.audit.generation.as_ref().unwrap();
    assert_eq!(&head.tree.to_string(), tree);
    assert_ne!(tree, &before.tree);
    let Some(Entry::File(file)) = made.find(&RelPath::new(b"a").unwrap()) else {
        panic!("{made:?}");
    };
    let mut bytes = Vec::new();
    let content = store.open_content(&file.content).unwrap();
    content.take(100).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"one\nmore\n");
}

/// What a tool makes is judged as what it was given: links, special files and setuid bits are found, and
/// no generation has them.
#[test]
fn t33_what_a_tool_makes_is_judged() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    let lines = [
        (
            "ln -s /etc/passwd out",
            "out: a symlink to '/etc/passwd' (audit.symlinks)",
        ),
        ("chmod u+s a", "a: a setuid file (audit.setuid)"),
        ("mkfifo pipe", "pipe: a named pipe (audit.special)"),
    ];
    for (script, line) in lines {
        let done = rig.restoring(script);
        assert!(
            matches!(done.verdict(), Verdict::ChangeRefused { count: 1, .. }),
            "{script}: {done:?}"
        );
        let finding = &done.findings[0];
        assert_eq!(format!("{}: {}", text(&finding.path), finding.what), line);
        assert_eq!(exit_status(done.verdict()), 123);
    }
    let store = rig.store();
    for number in store.numbers().unwrap() {
        let (_, tree) = store.load(number).unwrap();
        assert_eq!(tree.entries().len(), 1, "only what was pulled is kept");
    }
}

/// A tool that fails, is too slow or changes nothing leaves nothing to be restored.
#[test]
fn a_tool_that_fails_changes_nothing() {
    let rig = Rig::new();
    rig.configure("[audit]\nspecial = \"omit\"\nsetuid = \"omit\"\n");
    rig.far("a", "one\n");
    let done = rig.restoring("echo x > a; exit 3");
    assert_eq!(done.verdict(), &Verdict::Failed { status: 3 });
    assert_eq!(rig.restoring("cat a").verdict(), &Verdict::Passed);
    let odd = "mkfifo pipe; chmod u+s a";
    assert_eq!(
        rig.restoring(odd).verdict(),
        &Verdict::Passed,
        "no workspace gets these, so there is no change"
    );
    let how = How {
        restore: true,
        limit: std::time::Duration::from_millis(700),
        ..How::default()
    };
    let slow = ["sh", "-c", "echo x > a; sleep 61.5"];
    let done = rig.try_audit(&slow, how).unwrap();
    assert_eq!(done.verdict(), &Verdict::TimedOut { limit_ms: 700 });
}
