//! Directories that cannot be used are refused with a cause, before anything runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::{Refusal, StartError};

use crate::client::{Client, Open, shell};
use crate::rig::{Host, exists};

fn why(host: &Host, workdir: &str) -> String {
    let open = Open {
        workdir: workdir.into(),
        ..Open::default()
    };
    match Client::connect(host, &open).refusal() {
        Refusal::Directory { why, .. } => {
            assert!(!why.contains('\n'));
            why
        }
        other => panic!("{other:?}"),
    }
}

/// Links, foreign owners and open modes below the work directory are refused.
#[test]
fn directories_of_others_are_refused() {
    let host = Host::new();
    let workdir = host.home.join(".labproxy");
    fs::create_dir_all(workdir.join("elsewhere")).unwrap();
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    symlink(workdir.join("elsewhere"), workdir.join("sessions")).unwrap();
    assert!(why(&host, "~/.labproxy").contains("link"));
    fs::remove_file(workdir.join("sessions")).unwrap();
    fs::create_dir(workdir.join("sessions")).unwrap();
    open(&workdir.join("sessions"), 0o777);
    assert!(why(&host, "~/.labproxy").contains("others can write"));
    open(&workdir.join("sessions"), 0o700);
    let session = host.directory();
    fs::create_dir(&session).unwrap();
    symlink("/tmp", session.join("workspace")).unwrap();
    assert!(why(&host, "~/.labproxy").contains("link"));
    fs::remove_file(session.join("workspace")).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&session, Some(65_534), None).unwrap();
        assert!(why(&host, "~/.labproxy").contains("belongs to user 65534"));
        std::os::unix::fs::chown(&session, Some(0), None).unwrap();
    }
    // Now nothing is wrong with it.
    let mut client = Client::new(&host);
    client.end(0);
}

/// A work directory that cannot be made or means nothing says what to do.
#[test]
fn unusable_work_directories_are_refused() {
    let host = Host::new();
    assert!(why(&host, "relative").contains("absolute"));
    assert!(why(&host, "/proc/labproxy").contains("cannot be made"));
    fs::write(host.home.join("file"), "").unwrap();
    assert!(why(&host, "~/file").contains("link or a file"));
}

/// A full disk is named as the cause.
#[test]
fn a_full_disk_is_the_cause() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new();
    let mount = host.home.join("full");
    fs::create_dir(&mount).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=4k,nr_inodes=4,mode=700", "none"];
    let mounted = std::process::Command::new("mount")
        .args(options)
        .arg(&mount)
        .status();
    assert!(mounted.unwrap().success());
    let said = why(&host, mount.to_str().unwrap());
    let unmounted = std::process::Command::new("umount").arg(&mount).status();
    assert!(unmounted.unwrap().success());
    assert!(said.contains("the disk is full"), "{said}");
}

/// A program's directory is made when it is missing in the workspace: for this user alone, never
/// through a link, and nowhere else.
#[test]
fn a_missing_directory_of_the_workspace_is_made() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let elsewhere = host.home.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, host.workspace().join("link")).unwrap();
    let mut run = |id, directory: &str| {
        let mut spec = shell("pwd");
        spec.directory = ByteString::from(directory);
        client.run(id, &spec, b"")
    };
    let done = run(1, "workspace/a/b c/");
    let made = host.workspace().join("a/b c");
    assert_eq!(done.stdout, format!("{}\n", made.display()).into_bytes());
    for path in [&made, &host.workspace().join("a")] {
        let bits = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(bits & 0o7777, 0o700);
    }
    let again = run(2, "workspace/a/b c");
    assert_eq!(again.stdout, done.stdout);
    // ENOTDIR: a link is no directory.
    let through = run(3, "workspace/link/below").failed;
    assert_eq!(through, Some(StartError::Directory { errno: 20 }));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    for (id, directory) in [
        (4, "workspace/../up"),
        (5, "other"),
        (6, "workspace/n/../m"),
    ] {
        let failed = run(id, directory).failed;
        assert_eq!(
            failed,
            Some(StartError::Directory { errno: 2 }),
            "{directory}"
        );
    }
    assert!(!exists(&host.workspace().join("n")) && !exists(&host.directory().join("up")));
    client.end(0);
    assert!(made.is_dir());
}
