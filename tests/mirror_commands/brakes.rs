//! What a mirror stops at before anything is lost, and what it keeps of kinds, names and modes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, XattrFlags, mkdirat, openat, setxattr};

use crate::host::World;
use crate::rig::Rig;
use crate::trees::read;

/// A file that is larger than one may be: nobody can read it whole, not even root.
fn unreadable(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.set_len(9 * 1024 * 1024 * 1024).unwrap();
}

/// A tree that cannot be read whole deletes nothing and publishes nothing: what was there stays.
#[test]
fn m30_m40_a_tree_with_a_hole_deletes_and_publishes_nothing() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.write(format!("local/{name}"), name);
    }
    rig.push("");
    rig.write("far/d", "d");
    let generation = rig.pull("--json").json()["generation"].clone();
    fs::create_dir(rig.path("far/zz")).unwrap();
    unreadable(&rig.path("far/zz/last"));
    fs::remove_file(rig.path("far/a")).unwrap();
    let before = read(&rig.path("local"));
    let ran = rig.mirror("pull", "--allow-deletes").expect(1);
    assert!(ran.stderr.contains("zz/last"), "{}", ran.stderr);
    assert_eq!(read(&rig.path("local")), before);
    fs::remove_file(rig.path("far/zz/last")).unwrap();
    let next = rig.pull("--json").json()["generation"].clone();
    assert_eq!(next.as_u64(), generation.as_u64().map(|number| number + 1));
    // The same in the other direction.
    unreadable(&rig.path("local/zz/last"));
    fs::remove_file(rig.path("local/b")).unwrap();
    rig.mirror("push", "--allow-deletes").expect(1);
    assert!(rig.has("far/b"));
}

/// A root that is another directory than before, as when a disk is not mounted, stops both ways; one
/// that is made again empty does not help.
#[test]
fn m33_a_root_that_was_made_anew_is_not_the_mirrors() {
    for root in ["far", "local"] {
        let rig = Rig::new();
        rig.write("local/a", "a");
        rig.push("");
        fs::rename(rig.path(root), rig.path("unmounted")).unwrap();
        fs::create_dir(rig.path(root)).unwrap();
        let other = if root == "far" { "local" } else { "far" };
        for what in ["push", "pull"] {
            rig.mirror(what, "--allow-empty --allow-deletes").expect(1);
            assert_eq!(rig.read(format!("{other}/a")), b"a", "{root}, {what}");
        }
        fs::remove_dir(rig.path(root)).unwrap();
        fs::rename(rig.path("unmounted"), rig.path(root)).unwrap();
        rig.push("");
    }
}

/// Before anything was mirrored no directory here is the mirror's yet: a pull that found nothing to bring,
/// or found the directory here in use, can be asked again with another one.
#[test]
fn a_pull_that_brought_nothing_binds_no_directory() {
    let rig = Rig::new();
    fs::remove_dir(rig.path("local")).unwrap();
    let ran = rig.mirror("pull", "").expect(1);
    assert!(ran.stderr.contains("does not exist"), "{}", ran.stderr);
    assert!(!rig.has("local"));
    rig.write("far/a", "a");
    rig.write("local/mine", "mine");
    let ran = rig.mirror("pull", "").expect(1);
    assert!(ran.stderr.contains("is not empty"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("push --force"), "{}", ran.stderr);
    fs::rename(rig.path("local"), rig.path("kept")).unwrap();
    rig.pull("");
    assert_eq!(rig.read("local/a"), b"a");
    // Now it is.
    fs::rename(rig.path("local"), rig.path("unmounted")).unwrap();
    fs::create_dir(rig.path("local")).unwrap();
    let ran = rig.mirror("pull", "").expect(1);
    assert!(ran.stderr.contains("not the one"), "{}", ran.stderr);
}

/// A push that is stopped makes nothing at the other end, so that nothing there has to be the same
/// afterwards.
#[test]
fn a_push_that_is_stopped_makes_no_other_end() {
    let rig = Rig::new();
    rig.write("local/.env", "secret");
    rig.mirror("push", "").expect(1);
    assert!(!rig.has("far"));
    rig.push("--allow-secret .env");
    assert_eq!(rig.read("far/.env"), b"secret");
}

/// What is no file says nothing of what it would exclude, and a link is not followed to what does.
#[test]
fn excludes_that_are_no_file_stop_the_first_push() {
    let rig = Rig::new();
    rig.write("elsewhere", "a\n");
    let place = rig.path("local/.labproxyignore");
    let stopped = || {
        let ran = rig.mirror("push", "").expect(1);
        let why = ".labproxyignore: it is no file, and what it should exclude cannot be known";
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    };
    std::os::unix::fs::symlink(rig.path("elsewhere"), &place).unwrap();
    stopped();
    fs::remove_file(&place).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&place).unwrap();
    stopped();
    drop(socket);
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    stopped();
}

/// An empty source empties nothing unless that is said.
#[test]
fn m34_an_empty_source_deletes_nothing() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.push("");
    fs::remove_file(rig.path("far/a")).unwrap();
    rig.mirror("pull", "").expect(1);
    assert!(rig.has("local/a"));
    rig.write("far/a", "a");
    fs::remove_file(rig.path("local/a")).unwrap();
    rig.mirror("push", "").expect(1);
    assert!(rig.has("far/a"));
    rig.push("--allow-empty");
    assert!(!rig.has("far/a"));
}

/// A directory that goes and holds something excluded stays, and stands in nobody's way.
#[test]
fn m37_what_is_excluded_keeps_its_directory_and_blocks_nothing() {
    let rig = Rig::new();
    rig.write("local/d/f", "f");
    rig.write("local/a", "a");
    rig.push("--exclude *.log");
    rig.write("far/d/x.log", "x");
    fs::remove_dir_all(rig.path("local/d")).unwrap();
    for _ in 0..2 {
        rig.push("");
        assert_eq!(rig.read("far/d/x.log"), b"x");
        assert!(!rig.has("far/d/f"));
        rig.pull("");
        assert!(!rig.has("local/d"));
    }
}

/// Paths that are longer than any call takes go there and back, and go away.
#[test]
fn m53_paths_beyond_the_systems_limit_are_mirrored() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    let name = "x".repeat(200);
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descend = |root: &str, make: bool| -> Option<std::os::fd::OwnedFd> {
        let mut at = openat(CWD, rig.path(root), directory, Mode::empty()).unwrap();
        for _ in 0..30 {
            if make {
                mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            }
            at = openat(&at, name.as_str(), directory, Mode::empty()).ok()?;
        }
        Some(at)
    };
    let deepest = descend("local", true).unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(openat(&deepest, "file", flags, Mode::RUSR | Mode::WUSR).unwrap());
    rig.push("");
    let there = descend("far", false).unwrap();
    assert!(openat(&there, "file", OFlags::RDONLY, Mode::empty()).is_ok());
    drop(openat(&there, "more", flags, Mode::RUSR | Mode::WUSR).unwrap());
    rig.pull("");
    let here = descend("local", false).unwrap();
    assert!(openat(&here, "more", OFlags::RDONLY, Mode::empty()).is_ok());
    fs::rename(rig.path("local").join(&name), rig.path("away")).unwrap();
    rig.push("");
    assert!(descend("far", false).is_none());
}

/// What is pulled is for its owner alone, whatever the modes there and the umask are; the executable bit
/// goes both ways, without content, and does not flip.
#[test]
fn m56_m57_modes_are_the_owners_executable_bit_and_no_more() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.push("");
    for (name, mode) in [("tool", 0o4777), ("open", 0o666), ("shut", 0o400)] {
        rig.write(format!("far/d/{name}"), name);
        fs::set_permissions(
            rig.path(format!("far/d/{name}")),
            fs::Permissions::from_mode(mode),
        )
        .unwrap();
    }
    fs::set_permissions(rig.path("far/d"), fs::Permissions::from_mode(0o1777)).unwrap();
    rig.pull("");
    let mode = |path: &str| fs::metadata(rig.path(path)).unwrap().permissions().mode() & 0o7777;
    let modes = ["d", "d/tool", "d/open", "d/shut"].map(|path| mode(&format!("local/{path}")));
    assert_eq!(modes, [0o700, 0o700, 0o600, 0o600]);
    fs::set_permissions(rig.path("local/d/open"), fs::Permissions::from_mode(0o700)).unwrap();
    let pushed = rig.push("--json").json();
    assert_eq!(
        (&pushed["changed"], &pushed["sent_bytes"]),
        (&1.into(), &0.into())
    );
    assert_eq!(mode("far/d/open") & 0o100, 0o100);
    for _ in 0..3 {
        let pushed = rig.push("--json").json();
        assert_eq!(pushed["changed"], 0);
        rig.pull("");
    }
}

/// Attributes beside the content are left alone and fail nothing.
#[test]
fn m58_attributes_fail_nothing() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    rig.push("");
    rig.write("far/a", "b");
    for name in ["user.note", "security.selinux"] {
        let value = b"system_u:object_r:tmp_t:s0";
        // A file system may know none: then there is nothing to trip over.
        let _known = setxattr(rig.path("far/a"), name, value, XattrFlags::empty());
    }
    rig.pull("");
    assert_eq!(rig.read("local/a"), b"b");
    rig.write("local/a", "c");
    rig.push("");
}

/// What a host refuses is told as labproxy's own refusal, and not once more as what its program said.
#[test]
fn what_a_host_refuses_is_told_once() {
    let world = World::new();
    world.rig.write("far", "no directory");
    let ran = world.mirror("push", &[]).expect(1);
    let told = ran.stderr.matches("it is no directory").count();
    assert_eq!(told, 1, "{}", ran.stderr);
}
