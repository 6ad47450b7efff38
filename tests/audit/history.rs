//! What is read back of audits, and what an edit of it looks like.

use std::fs;

use labproxy::audit::history::{self, Unavailable};
use labproxy::audit::view::View;
use labproxy::ledger::Verdict;
use rusqlite::Connection;

use crate::rig::Rig;

/// Audits are numbered and read back as they were, and all of it verifies without the host.
#[test]
fn audits_are_read_back() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    let first = rig.audit(&["true"]);
    rig.far("a", "two\n");
    let second = rig.sh("exit 4");
    let paths = rig.paths();
    let audits = history::of_session(&paths.ledger(), &Rig::session()).unwrap();
    assert_eq!(audits, [first.audit.clone(), second.audit]);
    assert_eq!((audits[0].number, audits[1].number), (1, 2));
    assert_eq!(audits[1].tool, ["sh", "-c", "exit 4"]);
    let (one, two) = (&audits[0].generation, &audits[1].generation);
    assert_ne!(one.as_ref().unwrap().tree, two.as_ref().unwrap().tree);
    let store = rig.store();
    let looked = history::verify(&paths.ledger(), &paths.anchor(), &audits, Some(&store)).unwrap();
    assert_eq!((looked.audits, looked.proven), (2, 2));
    assert_eq!((looked.problems, looked.without), (vec![], vec![]));
    let missing = history::find(audits, 3).unwrap_err();
    assert!(
        missing.hints()[0].contains("its last one is 2"),
        "{missing:?}"
    );
}

/// An edited entry, an edited generation and an edited content are each found by name.
#[test]
fn an_edit_of_the_history_is_found() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    rig.sh("exit 4");
    rig.audit(&["true"]);
    let paths = rig.paths();
    let problems = || {
        let audits = history::of_session(&paths.ledger(), &Rig::session()).unwrap();
        let store = rig.store();
        let looked = history::verify(&paths.ledger(), &paths.anchor(), &audits, Some(&store));
        looked.unwrap().problems
    };
    assert_eq!(problems(), Vec::<String>::new());
    let connection = Connection::open(paths.ledger()).unwrap();
    let edit = "DROP TRIGGER entry_is_never_changed;
        UPDATE entry SET body = replace(body, '\"failed\",\"status\":4', '\"passed\"');";
    connection.execute_batch(edit).unwrap();
    let audits = history::of_session(&paths.ledger(), &Rig::session()).unwrap();
    assert_eq!(audits[0].verdict, Verdict::Passed, "the forgery reads well");
    let found = problems();
    assert!(
        found[0].contains("entry 1: its hash does not follow"),
        "{found:?}"
    );
    let store = paths.state().join("mirrors/one/store");
    let pack = store.join("pack-00000000");
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(4).position(|part| part == b"one\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let found = problems();
    assert!(
        found.iter().any(|line| line.starts_with("audit 2: a:")),
        "{found:?}"
    );
}

/// A content that somebody edited in the store never becomes part of a tool's copy.
#[test]
fn t31_an_edited_content_reaches_no_tool() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    let number = rig.publish(&rig.store());
    let pack = rig.paths().state().join("mirrors/one/store/pack-00000000");
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(4).position(|part| part == b"one\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let store = rig.store();
    let (_, tree) = store.load(number).unwrap();
    let failure = View::make(&rig.path("view"), &store, &tree).unwrap_err();
    assert!(
        failure.message().contains("is not what was pulled"),
        "{failure:?}"
    );
    assert!(failure.problems()[0].starts_with("a: "), "{failure:?}");
}

/// A generation that makes room for others is named as evicted, not as wrong.
#[test]
fn an_evicted_generation_is_no_problem_of_the_history() {
    let rig = Rig::new();
    rig.far("a", "one\n");
    let done = rig.audit(&["true"]);
    let paths = rig.paths();
    let number = done.audit.generation.as_ref().unwrap().generation;
    let store = rig.store();
    for text in ["two", "three", "four"] {
        rig.far("a", text);
        rig.publish(&store);
    }
    let clock: labproxy::clock::SharedClock = std::sync::Arc::new(labproxy::clock::SystemClock);
    labproxy::audit::run::collect(&store, std::time::Duration::ZERO, 1, &clock).unwrap();
    let gone = history::tree_of(&done.audit, &store).unwrap_err();
    assert!(matches!(gone, Unavailable::Evicted { generation, .. } if generation == number));
    let audits = [done.audit];
    let looked = history::verify(&paths.ledger(), &paths.anchor(), &audits, Some(&store)).unwrap();
    assert_eq!((looked.without, looked.problems), (vec![1], vec![]));
}
