//! Audits while the store's disk is full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::place::Place;
use crate::rig::finish;
use crate::small_disk::SmallDisk;
use crate::sshd::World;

/// The store's disk fills up during an audit's pull: there is no verdict of a tree that did not come, and
/// the record says so; what was kept is kept, and with room the next audit comes.
#[test]
fn a_full_store_ends_an_audit_without_a_verdict() {
    let world = World::new();
    fs::write(world.rig.path("work/a.txt"), "one\n").unwrap();
    let store = world.rig.path("state/labproxy/mirrors");
    fs::create_dir_all(&store).unwrap();
    for path in ["state/labproxy", "state/labproxy/mirrors"] {
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(world.rig.path(path), mode).unwrap();
    }
    let Some(disk) = SmallDisk::new(&store, 12) else {
        return;
    };
    let start = world.start(&["--workspace", "."], &["sh", "-c", "echo two >b.txt"]);
    let done = finish(&mut disk.command(&start));
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = world.rig.session();
    let place = Place { world, session };
    let audit = |script: &str| {
        let command = place.command(&[], &["sh", "-c", script]);
        finish(&mut disk.command(&command))
    };
    let done = audit("cat b.txt");
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "two"),
        "{done:?}"
    );

    let mut bytes = vec![0; 20 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    fs::write(place.there("big"), &bytes).unwrap();
    let done = audit("touch ran");
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in ["the disk is full at ", "free some room"] {
        assert!(done.stderr.contains(told), "{told} {done:?}");
    }
    assert_eq!(place.verdict(), "not_pulled");
    let command = place.world.rig.command(&["audit", "verify"]);
    let done = finish(&mut disk.command(&command));
    assert_eq!(done.code, Some(0), "{done:?}");

    disk.grow(200);
    let done = audit("wc -c <big");
    let size = bytes.len().to_string();
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), size.as_str()),
        "{done:?}"
    );
    assert_eq!(place.verdict(), "passed");
}
