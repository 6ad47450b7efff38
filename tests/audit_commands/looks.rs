//! `audit list`, `show`, `diff` and `verify`.

use std::fs;

use rusqlite::Connection;

use crate::place::Place;

/// The trees of two audits are compared line by line, with names and lines that no terminal obeys.
#[test]
fn t37_two_audits_are_compared() {
    let place = Place::new(
        "printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n' > n; echo gone > old; printf 'a\\0b' > bin",
    );
    place.sh("true", 0);
    fs::write(place.there("n"), "1\n2\n3\n4\nfive\x1b[2J\n6\n7\n8\n9\n10").unwrap();
    fs::remove_file(place.there("old")).unwrap();
    fs::write(place.there("bin"), "a\0bc").unwrap();
    fs::write(place.there("new\x1b]0;x"), "x\ty\n").unwrap();
    place.sh("true", 0);
    let done = place.labproxy(&["audit", "diff", "1", "2"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let expected = "diff a/bin b/bin\nno text: 3 -> 4 bytes\n\
         diff a/n b/n\n--- a/n\n+++ b/n\n@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\\x1b[2J\n 6\n 7\n 8\n 9\n+10\n\
         \\ No newline at end of file\n\
         diff a/new\\x1b]0;x b/new\\x1b]0;x\nnothing -> file\n--- a/new\\x1b]0;x\n+++ b/new\\x1b]0;x\n\
         @@ -0,0 +1,1 @@\n+x\ty\n\
         diff a/old b/old\nfile -> nothing\n--- a/old\n+++ b/old\n@@ -1,1 +0,0 @@\n-gone";
    assert_eq!(done.stdout, expected);
    let same = place.labproxy(&["audit", "diff", "2", "2"]);
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), ""));
    let json = place.labproxy(&["audit", "diff", "1", "2", "--json"]);
    assert_eq!(json.code, Some(1), "{json:?}");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["paths"].as_array().unwrap().len(), 4);
    assert_eq!(json["paths"][3]["new"], "nothing");
    let none = place.labproxy(&["audit", "diff", "1", "9"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("there is no audit 9"), "{none:?}");
}

/// A verdict that somebody edited is found offline, and so is an edited generation.
#[test]
fn t26_an_edited_verdict_is_found_offline() {
    let mut place = Place::new("true");
    place.sh("exit 3", 3);
    place.sh("true", 0);
    place.world.stop_sshd();
    let verify = |place: &Place| place.labproxy(&["audit", "verify"]);
    let done = verify(&place);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .starts_with("sound: 2 audits, 2 proven byte for byte; "),
        "{done:?}"
    );
    let ledger = place.world.rig.path("state/labproxy/ledger.sqlite3");
    let edit = "DROP TRIGGER entry_is_never_changed;
        UPDATE entry SET body = replace(body, '\"failed\",\"status\":3', '\"passed\"');";
    Connection::open(ledger)
        .unwrap()
        .execute_batch(edit)
        .unwrap();
    let done = verify(&place);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("its hash does not follow"), "{done:?}");
    assert!(done.stdout.contains("NOT SOUND"), "{done:?}");
}

/// A listing is for people too, and an empty one says so.
#[test]
fn audits_are_listed() {
    let place = Place::new("true");
    let none = place.labproxy(&["audit", "list"]);
    assert!(none.stdout.contains("has no audits"), "{none:?}");
    let none = place.labproxy(&["audit", "show", "1"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    place.sh("exit 3", 3);
    let list = place.labproxy(&["audit", "list", "--session", &place.session]);
    assert!(list.stdout.contains("failed (3)"), "{list:?}");
    assert!(list.stdout.contains("bubblewrap"), "{list:?}");
    assert!(list.stdout.contains("sh -c exit 3"), "{list:?}");
}
