//! A disk that is full.

use std::path::Path;
use std::process::Command;

use labproxy::mirror::store::{Keep, StoreError};
use labproxy::tree::content::ContentId;

use crate::store::{open, publish, put, read};
use crate::trees::{MIB, noise, tree};

/// Needs a small disk: a tmpfs in a mount namespace of its own, where this machine allows one.
#[test]
fn m63_a_full_disk_stops_and_keeps_what_was_published() {
    let place = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=64m none "$0" && exec "$@""#;
    let output = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store_disk::small_disk",
            "--ignored",
            "--nocapture",
        ])
        .env("LABPROXY_TEST_SMALL_DISK", place.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare") => {
            eprintln!("not shown here: this machine allows no mount namespace");
        }
        other => panic!("{other:?}"),
    }
}

/// Not a test by itself: runs on the small disk.
#[test]
#[ignore = "started by another test on a small disk"]
fn small_disk() {
    let Some(place) = std::env::var_os("LABPROXY_TEST_SMALL_DISK") else {
        return;
    };
    let place = Path::new(&place);
    let store = open(place);
    let old = noise(1, 2 * MIB);
    put(&store, &old);
    let old_tree = tree([("old", old.as_slice())]);
    publish(&store, &old_tree);
    let mut kept = Vec::new();
    // 200 MiB: small ones and large ones in turn.
    let full = (2..).find_map(|seed| {
        let bytes = noise(seed, if seed % 2 == 0 { 50_000 } else { 5 * MIB });
        match store.put(ContentId::of(&bytes), &bytes) {
            Ok(()) => kept.push(bytes),
            Err(error) => return Some(error),
        }
        assert!(seed < 100, "the disk never fills");
        None
    });
    assert!(matches!(full, Some(StoreError::Full { .. })), "{full:?}");
    // Every content that was taken is still there, but for small ones that were not written yet.
    let lost = kept
        .iter()
        .filter(|bytes| !store.has(&ContentId::of(bytes)).unwrap());
    assert!(lost.clone().all(|bytes| bytes.len() < MIB) && lost.count() <= 1);
    assert!(store.verify(&old_tree).is_empty());
    let unpublished = tree([("a", kept[1].as_slice()), ("b", &noise(999, 5_000))]);
    assert!(store.complete(&unpublished).is_err());
    assert_eq!(store.numbers().unwrap().len(), 1);
    drop(store);
    let store = open(place);
    assert!(store.verify(&old_tree).is_empty());
    assert!(store.has(&ContentId::of(&kept[1])).unwrap());
    // What no generation has goes away, and then there is room again.
    let now = jiff::Timestamp::UNIX_EPOCH;
    let collected = store.collect(&Keep::default(), now).unwrap();
    assert!(collected.bytes > 50 << 20, "{collected:?}");
    assert_eq!(read(&store, &ContentId::of(&old)), old);
    let new = noise(3_000, 20 * MIB);
    put(&store, &new);
    publish(&store, &tree([("new", new.as_slice())]));
}
