//! Every prefix of a store's writes, and every power cut, leaves the published generations whole.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use labproxy::mirror::store::{Keep, Part};
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;

use crate::disk::{Change, Files, Names, library, read_log};
use crate::store::{open, publish, put, read};
use crate::trees::{MIB, groups, noise, tree};

const PLACE: &str = "LABPROXY_TEST_STORE";
const ROUNDS: u64 = 6;

/// The contents of a round: many small ones, and a large one of which one chunk is another than in
/// the round before.
fn contents(round: u64) -> Vec<Vec<u8>> {
    let mut large = noise(1, 2 * MIB + 40_000);
    large[..8].copy_from_slice(&round.to_le_bytes());
    let small = (0..12).map(|number| noise(1_000 * round + number, 3_000));
    small.chain([noise(7, 200_000), large]).collect()
}

fn tree_of(round: u64) -> Directory {
    let contents = contents(round);
    let names: Vec<String> = (0..contents.len()).map(|n| format!("f{n}")).collect();
    tree(
        names
            .iter()
            .map(String::as_str)
            .zip(contents.iter().map(Vec::as_slice)),
    )
}

/// Not a test: what a child process runs.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn writer() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    for round in 1..=ROUNDS {
        // Opened anew each time, so that packs are gone on with.
        let store = open(&place);
        for bytes in contents(round) {
            put(&store, &bytes);
        }
        let number = publish(&store, &tree_of(round));
        tell(&format!("published {number} {round}"));
        if round == 4 {
            let keep = Keep {
                age: std::time::Duration::ZERO,
                ..Keep::default()
            };
            tell("collecting");
            let now = jiff::Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(9);
            let collected = store.collect(&keep, now).unwrap();
            assert_eq!(collected.generations.len(), 2);
        }
    }
}

fn tell(line: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(format!("\n@ {line}\n").as_bytes())
        .unwrap();
    stdout.flush().unwrap();
}

fn record() -> Vec<Change> {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store_crash::writer", "--ignored", "--nocapture"])
        .env(PLACE, place.path())
        .env("LD_PRELOAD", library(place.path()))
        .env("DISK_LOG", &log)
        .env("DISK_DIR", place.path().join("store"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    read_log(&log)
}

/// Generation and round of what the process had told to be published, and still promised to keep.
fn promised(changes: &[Change]) -> BTreeMap<u64, u64> {
    let told = changes.iter().filter_map(|change| match change {
        Change::Told(text) => text.trim().strip_prefix("@ "),
        _ => None,
    });
    let mut promised = BTreeMap::new();
    for line in told {
        if line == "collecting" {
            promised.retain(|number, _| *number > 2);
        } else if let Some(published) = line.strip_prefix("published ") {
            let (number, round) = published.split_once(' ').unwrap();
            promised.insert(number.parse().unwrap(), round.parse().unwrap());
        }
    }
    promised
}

/// Opens what a crash left as the next run does: what was promised is there, whatever is listed is
/// whole, and the store can be gone on with.
fn check(files: &Files, promised: &BTreeMap<u64, u64>, what: &str) {
    let place = tempfile::tempdir().unwrap();
    files.write_to(&place.path().join("store"));
    let store = open(place.path());
    let mut there = BTreeMap::new();
    for number in store.numbers().unwrap() {
        let (_, tree) = store.load(number).unwrap_or_else(|e| panic!("{what}: {e}"));
        let unsound = store.verify(&tree);
        assert!(unsound.is_empty(), "{what}: {number}: {unsound:?}");
        store.complete(&tree).unwrap();
        there.insert(number.0, tree.hash());
    }
    for (number, round) in promised {
        let hash = tree_of(*round).hash();
        assert_eq!(there.get(number), Some(&hash), "{what}: {number}");
    }
    let left = std::fs::read_dir(place.path().join("store")).unwrap();
    for entry in left {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with("unfinished"), "{what}: {name}");
    }
    for bytes in contents(9) {
        put(&store, &bytes);
    }
    publish(&store, &tree_of(9));
    drop(store);
    let store = open(place.path());
    let (_, tree) = store.load(store.latest().unwrap().unwrap().number).unwrap();
    assert_eq!(tree.hash(), tree_of(9).hash(), "{what}");
    assert!(store.verify(&tree).is_empty(), "{what}");
}

#[test]
fn m64_every_prefix_of_the_recorded_writes_keeps_what_was_published() {
    let changes = record();
    assert_eq!(promised(&changes).len(), 4);
    let renames = |change: &&Change| matches!(change, Change::Rename { .. });
    assert_eq!(changes.iter().filter(renames).count(), ROUNDS as usize);
    for length in 0..=changes.len() {
        let prefix = &changes[..length];
        check(
            &Files::after(prefix),
            &promised(prefix),
            &format!("after {length}"),
        );
    }
}

#[test]
fn m64_a_power_cut_that_loses_unsynced_writes_keeps_what_was_published() {
    let changes = record();
    for length in 0..=changes.len() {
        let prefix = &changes[..length];
        let mut bits = noise(length as u64, 4_096).into_iter();
        let mut choose = || bits.next().is_some_and(|byte| byte % 2 == 0);
        let files = Files::after_power_cut(prefix, Names::NeedSync, &mut choose);
        check(&files, &promised(prefix), &format!("cut after {length}"));
    }
}

/// What a killed run had stored is not asked for again by the next.
#[test]
fn m64_a_killed_run_leaves_its_contents_for_the_next() {
    let place = tempfile::tempdir().unwrap();
    let all = contents(1);
    let store = open(place.path());
    for bytes in &all {
        put(&store, bytes);
    }
    // As a kill does, it leaves what was not written yet: here the list of the
    // large content and its last, short chunk.
    drop(store);
    let store = open(place.path());
    let (large, small) = all.split_last().unwrap();
    for bytes in small {
        assert_eq!(read(&store, &ContentId::of(bytes)), *bytes);
    }
    let id = ContentId::of(large);
    assert!(!store.has(&id).unwrap());
    let mut again = store.large(id, groups(large)).unwrap();
    assert_eq!(again.missing(), [2]);
    again.put(2, &[Part::New(&large[2 * MIB..])]).unwrap();
    again.finish().unwrap();
    assert_eq!(read(&store, &id), *large);
}
