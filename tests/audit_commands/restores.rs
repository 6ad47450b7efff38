//! `audit restore`: an audited tree comes back, and nothing is lost for it.

use std::fs;

use serde_json::Value;

use crate::place::Place;

fn last_tree(place: &Place) -> Value {
    place.audits().last().unwrap()["generation"]["tree"].clone()
}

/// What an audit looked at comes back, here and on the host; what was there is a generation.
#[test]
fn an_audited_tree_comes_back() {
    let place = Place::new("echo two > b.txt; mkdir d; echo deep > d/c");
    place.sh("true", 0);
    let good = last_tree(&place);
    fs::remove_dir_all(place.there("d")).unwrap();
    fs::write(place.there("a.txt"), "spoilt\n").unwrap();
    fs::write(place.there("extra"), "x\n").unwrap();
    place.sh("true", 0);
    assert_ne!(last_tree(&place), good);
    let done = place.labproxy(&["audit", "restore", "1", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let saved = place.audits()[1]["generation"]["generation"].clone();
    assert_eq!(told["saved_generation"], saved);
    for root in [place.there(""), place.world.rig.path("work")] {
        assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"one\n");
        assert_eq!(fs::read(root.join("d/c")).unwrap(), b"deep\n");
        assert!(!root.join("extra").exists());
    }
    place.sh("true", 0);
    assert_eq!(last_tree(&place), good);
    let done = place.labproxy(&["audit", "restore", "2"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        fs::read(place.world.rig.path("work/extra")).unwrap(),
        b"x\n"
    );
    place.sh("true", 0);
    assert_eq!(last_tree(&place), place.audits()[1]["generation"]["tree"]);
}

/// What was edited here stops it by name, before anything is changed on either side.
#[test]
fn an_edit_here_is_never_overwritten() {
    let place = Place::new("echo two > b.txt");
    place.sh("true", 0);
    fs::write(place.there("b.txt"), "spoilt\n").unwrap();
    fs::write(place.world.rig.path("work/a.txt"), "mine\n").unwrap();
    let done = place.labproxy(&["audit", "restore", "1"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("a.txt"), "{done:?}");
    assert_eq!(fs::read(place.there("b.txt")).unwrap(), b"spoilt\n");
    assert_eq!(
        fs::read(place.world.rig.path("work/a.txt")).unwrap(),
        b"mine\n"
    );
}

/// A generation that is no longer kept cannot come back, and its record says so clearly.
#[test]
fn what_is_no_longer_kept_is_refused() {
    let place = Place::new("true");
    place.configure("[audit]\nkeep_bytes = 1");
    for text in ["1", "2", "3"] {
        fs::write(place.there("a.txt"), text).unwrap();
        place.sh("true", 0);
    }
    let done = place.labproxy(&["audit", "restore", "1"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr
            .contains("is no longer kept (audit.keep_age, audit.keep_bytes)"),
        "{done:?}"
    );
    assert_eq!(fs::read(place.there("a.txt")).unwrap(), b"3");
    let done = place.labproxy(&["audit", "verify"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("of 1 nothing is kept any more"),
        "{done:?}"
    );
}
