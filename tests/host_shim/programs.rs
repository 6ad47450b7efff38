//! Which CLI runs on the host, and how it comes there.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::rig::World;

fn kept(world: &World) -> Vec<PathBuf> {
    let bin = world.host.file("home/bash/.labproxy/bin");
    let entries = fs::read_dir(bin)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("claude-")
        })
        .collect()
}

/// The CLI is sent once, found again by its content, and sent anew when it was altered there.
#[test]
fn the_cli_is_sent_once() {
    let world = World::new();
    let told = || {
        let done = world.run("\"$SHIM\" -v; \"$SHIM\" run sh -c 'echo $0'");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.stdout, "2.1.332 (Claude Code)\nsh\n", "{done:?}");
    };
    told();
    let [file] = &kept(&world)[..] else { panic!() };
    let before = fs::metadata(file).unwrap();
    assert_eq!(before.mode() & 0o777, 0o700);
    told();
    assert_eq!(fs::metadata(file).unwrap().ino(), before.ino());
    fs::write(file, "#!/bin/sh\necho altered\n").unwrap();
    told();
    assert_eq!(kept(&world).len(), 1);
}

/// A command of the host is used when nothing here fits, and one that is nowhere is 127 with the remedy,
/// before there is a shim.
#[test]
fn a_cli_that_is_nowhere_is_127() {
    let world = World::new();
    world.configure("");
    fs::remove_file(world.path("bin/claude")).unwrap();
    let mut start = world.start(&[], &["true"]);
    let output = start.env("PATH", "/usr/bin:/bin").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(127), "{stderr}");
    assert!(stderr.contains("'claude' was not found on rig"), "{stderr}");
    assert!(stderr.contains("claude-agent-sdk"), "{stderr}");
    assert!(!world.shim().exists());
    world.host.assert_quiet();
}

/// What means nothing without a host, and a file that is not ours, are refused before anything is made.
#[test]
fn wrong_options_are_refused_before_the_host_is_asked() {
    let world = World::new();
    for (options, said) in [
        (vec!["--shim", "x"], "--shim needs a host"),
        (vec!["--env", "X"], "--env needs a host"),
        (vec!["--workspace", "."], "--workspace needs a host"),
        (
            vec!["--host", "rig", "--env", "HF_TOKEN"],
            "--env HF_TOKEN does not go",
        ),
        (
            vec!["--host", "rig", "--shim", "/etc/passwd"],
            "is there already",
        ),
        (vec!["--host", "rig", "--shim", "x.mjs"], "as JavaScript"),
        (
            vec!["--host", "rig", "--workspace", "/absent"],
            "cannot be found",
        ),
    ] {
        let start = [
            &["session", "start", "--cap", "1"],
            &options[..],
            &["--", "true"],
        ]
        .concat();
        let output = world.labproxy(&start).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
}
