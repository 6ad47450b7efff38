//! Disks that fill up, and file systems other than that of the temporary directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use labproxy::tree::apply::{Fatal, Why, is_unfinished};

use crate::apply_rig::{Memory, Place, Tree, copy, described, file, kept, path, tree, write};

/// Bytes of a file on the small disk.
const FILE: usize = 700_000;

/// Runs an ignored test of this program with a file system mounted on a directory of its own;
/// whether this machine allows that.
fn on_a_mount(test: &str, script: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("{script} && exec \"$@\"");
    // Root here may mount more than root of a new user namespace.
    let root = rustix::process::geteuid().is_root();
    let mut unshare = Command::new("unshare");
    if !root {
        unshare.arg("-r");
    }
    let output = unshare
        .args(["-m", "sh", "-c", &script])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LABPROXY_TEST_MOUNT", directory.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
            true
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare") => false,
        other => panic!("{other:?}"),
    }
}

/// The first write that finds the disk full ends the work: what was there stays, what was made is
/// whole, nothing half made is left, and with room again the rest is done.
#[test]
fn m63_a_full_disk_ends_the_work() {
    let mount = r#"mount -t tmpfs -o size=16m none "$0""#;
    if !on_a_mount("apply_disk::small_disk", mount) {
        eprintln!("not shown here: this machine allows no mount namespace");
    }
}

/// Not a test by itself: runs on the small disk.
#[test]
#[ignore = "started by another test on a small disk"]
fn small_disk() {
    let Some(mount) = std::env::var_os("LABPROXY_TEST_MOUNT") else {
        return;
    };
    let bytes = |at: u8| vec![at + 1; FILE];
    let name = |at: u8| format!("f{at:02}");
    let before = tree(&[("f00", file(b"old")), ("f79", file(b"old"))]);
    let place = Place::below(Path::new(&mount), &before);
    let all: Vec<Vec<u8>> = (0..80).map(bytes).collect();
    let contents: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let memory = Memory::of(&contents);
    let steps: Vec<_> = (0..80).map(|at| write(&name(at), &bytes(at))).collect();
    let applied = place.apply(&memory, &steps);
    assert_eq!(applied.stopped, Some(Fatal::DiskFull));
    assert!((10..24).contains(&applied.done), "{applied:?}");
    assert!(applied.kept.is_empty() && applied.failed.is_empty());
    let now = place.now();
    assert_eq!(now[&path("f79")], file(b"old"));
    for (at, node) in &now {
        let number: u8 = std::str::from_utf8(&at.as_bytes()[1..])
            .unwrap()
            .parse()
            .unwrap();
        assert!(!is_unfinished(at.as_bytes()));
        assert!(
            before.get(at) == Some(node) || node == &file(&bytes(number)),
            "{at:?}"
        );
    }
    // The blocks of what was given up are free again.
    let free = rustix::fs::statvfs(&place.root).unwrap();
    let used = (free.f_blocks - free.f_bfree) * free.f_frsize;
    let made = u64::try_from((now.len() - 1) * FILE.next_multiple_of(4096)).unwrap();
    assert!(used <= made + 64 * 1024, "{used} bytes are used for {made}");
    let less = place.apply(&memory, &steps[79..]);
    assert_eq!(less.stopped, Some(Fatal::DiskFull));
    let ballast = now.keys().find(|at| !before.contains_key(*at)).unwrap();
    fs::remove_file(place.root.join(ballast.as_os_str())).unwrap();
    let rest = place.apply(&memory, &steps[79..]);
    assert!(rest.is_whole(), "{rest:?}");
}

/// Copies share blocks where the file system can, and are proven there as well.
#[test]
fn copies_share_blocks_where_they_can() {
    let made = Command::new("mkfs.btrfs").arg("--version").output();
    let root = rustix::process::geteuid().is_root();
    if made.is_err() || !root {
        eprintln!("not shown here: this machine makes no file system that shares blocks");
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(256 * 1024 * 1024).unwrap();
    let image = image.path().display();
    let mount = format!(r#"mkfs.btrfs -q -f {image} && mount -o loop {image} "$0""#);
    if !on_a_mount("apply_disk::shared_blocks", &mount) {
        eprintln!("not shown here: this machine allows no mount namespace");
    }
}

/// Not a test by itself: runs on a file system that shares blocks.
#[test]
#[ignore = "started by another test on a file system that shares blocks"]
fn shared_blocks() {
    let Some(mount) = std::env::var_os("LABPROXY_TEST_MOUNT") else {
        return;
    };
    let bytes: Vec<u8> = (0..=250).cycle().take(64 * 1024 * 1024).collect();
    let place = Place::below(Path::new(&mount), &Tree::new());
    assert!(
        place
            .apply(&Memory::of(&[&bytes]), &[write("a", &bytes)])
            .is_whole()
    );
    let used = || {
        rustix::fs::sync();
        let seen = rustix::fs::statvfs(&place.root).unwrap();
        (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    };
    let before = used();
    let step = labproxy::tree::step::Step::Copy {
        from: path("a"),
        to: path("b"),
        file: described(&bytes, true),
    };
    let applied = place.apply(&Memory::default(), &[step]);
    assert!(applied.is_whole(), "{applied:?}");
    assert!(used() < before + 8 * 1024 * 1024);
    assert!(fs::read(place.at("b")).unwrap() == bytes);
    // What is shared is not what was asked for.
    let other = [bytes.as_slice(), b"x"].concat();
    let applied = place.apply(&Memory::default(), &[copy("a", "c", &other)]);
    assert_eq!(kept(&applied), [("c", Why::SourceChanged)]);
    assert_eq!(place.now().len(), 2);
}
