//! `--engine rsync`: the real rsync moves the contents, and everything else is as without it.
//!
//! A new enough rsync is not on every machine. Where a test is about what becomes of the trees, a
//! program stands for it that says it is new and then is the real one; the refusal of an old one is
//! tried with what the machine has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::host::World;
use crate::rig::{Ran, Rig};
use crate::trees::read;

/// Puts an rsync into a directory: it says that it is `version`, and before it becomes the real one
/// it does `before`, for which `$@` are its arguments.
fn stand_in(directory: &Path, version: &str, before: &str) {
    fs::create_dir_all(directory).unwrap();
    let file = directory.join("rsync");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || {{ echo 'rsync  version {version}  protocol version \
         32'; exit 0; }}\n{before}\nexec /usr/bin/rsync \"$@\"\n"
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the machine's own rsync says of itself.
fn real_version() -> String {
    let output = Command::new("/usr/bin/rsync").arg("--version").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.split_whitespace().nth(2).unwrap().to_owned()
}

/// `mirror WHAT local far --engine rsync MORE…` with the stand-in that is in `bin`.
fn by_rsync(rig: &Rig, what: &str, more: &[&str]) -> Ran {
    let (local, far) = (rig.path("local"), rig.path("far"));
    let mut command = rig.command(["mirror", what]);
    command
        .args([local, far])
        .args(["--engine", "rsync"])
        .args(more);
    Ran::of(&command.env("PATH", path(rig)).output().unwrap())
}

/// The same to the host.
fn over_ssh(world: &World, what: &str, more: &[&str]) -> Ran {
    let mut command = world.command(what, &["--engine", "rsync"]);
    command.args(more).env("PATH", path(&world.rig));
    Ran::of(&command.output().unwrap())
}

fn path(rig: &Rig) -> String {
    format!("{}:/usr/bin:/bin", rig.path("bin").display())
}

fn both_new(world: &World) {
    stand_in(&world.rig.path("bin"), "3.5.0", "");
    stand_in(&world.rig.path("host-bin"), "3.5.1", "");
}

/// Nothing of rsync is left: no directory for what came, no socket.
fn nothing_is_left(rig: &Rig) {
    let find = Command::new("find")
        .arg(rig.path(""))
        .args(["-name", "*landing*", "-o", "-name", "rsync-*"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&find.stdout), "");
}

/// A tree with what is hard to name, to read and to send.
fn hard_tree(rig: &Rig) {
    let names: [&[u8]; 9] = [
        b"#comment",
        b";comment",
        b"-dash",
        b"new\nline",
        b"wi*d[c]?rd",
        b"quote'\"\\$(x) `y`",
        b"\xff\xfe",
        b" space ",
        b"d:e",
    ];
    for name in names {
        use std::os::unix::ffi::OsStrExt as _;
        let name = std::ffi::OsStr::from_bytes(name);
        rig.write(Path::new("local/names").join(name), name.as_bytes());
        rig.write(Path::new("local").join(name).join("below"), b"below");
    }
    rig.write("local/empty", "");
    rig.write("local/big", vec![7; 3 * 1024 * 1024]);
    rig.write("local/run", "#!/bin/sh\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(rig.path("local/run"), executable).unwrap();
    fs::create_dir_all(rig.path("local/hollow/dir")).unwrap();
    std::os::unix::fs::symlink("../../outside", rig.path("local/hollow/link")).unwrap();
}

/// What the machine has is named with what is needed, wherever it is, and nothing was done.
#[test]
fn an_old_rsync_is_refused_at_either_end() {
    let world = World::new();
    world.rig.write("local/a", "a");
    let version = real_version();
    let old = if version.starts_with("3.2") {
        version
    } else {
        let old = "3.4.3";
        stand_in(&world.rig.path("bin"), old, "");
        stand_in(&world.rig.path("host-bin"), old, "");
        old.to_owned()
    };
    let refused = |ran: Ran, at: &str| {
        let wanted =
            format!("rsync {at} is version {old}, and --engine rsync needs 3.5.0 or newer");
        assert!(ran.stderr.contains(&wanted), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: leave out --engine rsync"));
        assert!(!world.rig.has("far"), "{}", ran.stderr);
    };
    refused(over_ssh(&world, "push", &[]).expect(2), "on this machine");
    refused(
        by_rsync(&world.rig, "push", &[]).expect(2),
        "on this machine",
    );
    stand_in(&world.rig.path("bin"), "3.5.0", "");
    refused(over_ssh(&world, "push", &[]).expect(1), "at the other end");
    stand_in(&world.rig.path("host-bin"), "openrsync", "");
    let ran = over_ssh(&world, "push", &[]).expect(1);
    assert!(
        ran.stderr.contains("does not tell its version"),
        "{}",
        ran.stderr
    );
    fs::remove_file(world.rig.path("bin/rsync")).unwrap();
    let mut none = world.command("pull", &["--engine", "rsync"]);
    let ran = Ran::of(&none.env("PATH", world.rig.path("bin")).output().unwrap());
    assert_ne!(ran.code, 0);
    nothing_is_left(&world.rig);
    // It is never chosen by itself.
    world.mirror("push", &[]).expect(0);
}

/// Both ways over ssh: every name, kind and bit arrives; an edit of a large file sends little; what
/// was pushed is what the other engine sees.
#[test]
fn m48_rsync_brings_a_tree_both_ways_over_ssh() {
    let world = World::new();
    let rig = &world.rig;
    both_new(&world);
    hard_tree(rig);
    let pushed = over_ssh(&world, "push", &["--json"]).expect(0).json();
    assert_eq!(read(&rig.path("far")), read(&rig.path("local")));
    assert!(pushed["sent_bytes"].as_u64().unwrap() >= 3 * 1024 * 1024);
    let again = world.mirror("push", &["--json"]).expect(0).json();
    assert_eq!(again["tree"], pushed["tree"]);
    assert_eq!(again["items"].as_array().unwrap().len(), 0);
    // An edit at the end: rsync finds the rest in the tree that is there.
    let mut big = rig.read("local/big");
    big.extend(b"more");
    rig.write("local/big", &big);
    let edited = over_ssh(&world, "push", &["--json"]).expect(0).json();
    assert!(edited["sent_bytes"].as_u64().unwrap() < 100_000, "{edited}");
    assert_eq!(rig.read("far/big"), big);
    // Back.
    rig.write("far/new/file", "theirs");
    rig.write("far/.envrc", "evil");
    fs::remove_file(rig.path("far/run")).unwrap();
    let pulled = over_ssh(&world, "pull", &["--json"]).expect(0).json();
    assert_eq!(pulled["held_back"][0]["path"], ".envrc");
    assert_eq!(pulled["received_bytes"], 10);
    assert_eq!(rig.read("local/new/file"), b"theirs");
    assert!(!rig.has("local/.envrc") && !rig.has("local/run"));
    world.mirror("verify", &[]).expect(0);
    nothing_is_left(rig);
}

/// The same within one machine, by the same program and with the same proof.
#[test]
fn rsync_brings_a_tree_both_ways_within_one_machine() {
    let rig = Rig::new();
    stand_in(&rig.path("bin"), "3.5.0", "");
    hard_tree(&rig);
    by_rsync(&rig, "push", &[]).expect(0);
    assert_eq!(read(&rig.path("far")), read(&rig.path("local")));
    rig.write("far/names/-dash", "theirs");
    by_rsync(&rig, "pull", &[]).expect(0);
    assert_eq!(read(&rig.path("far")), read(&rig.path("local")));
    rig.mirror("verify", "").expect(0);
    nothing_is_left(&rig);
    let refused = by_rsync(&rig, "push", &["--watch"]).expect(2);
    assert!(refused.stderr.contains("--watch"), "{}", refused.stderr);
}

/// The same brakes, excludes and refusals stand before it.
#[test]
fn what_stops_a_push_stops_one_by_rsync() {
    let rig = Rig::new();
    stand_in(&rig.path("bin"), "3.5.0", "");
    for number in 0..60 {
        rig.write(format!("local/{number}"), "x");
    }
    by_rsync(&rig, "push", &["--exclude", "*.log"]).expect(0);
    rig.write("far/mine.log", "theirs alone");
    rig.write("local/his.log", "ours alone");
    for number in 0..40 {
        fs::remove_file(rig.path(format!("local/{number}"))).unwrap();
    }
    let ran = by_rsync(&rig, "push", &[]).expect(1);
    assert!(ran.stderr.contains("40 of the 60 files"), "{}", ran.stderr);
    assert!(rig.has("far/0"));
    by_rsync(&rig, "push", &["--allow-deletes"]).expect(0);
    assert!(!rig.has("far/0") && rig.has("far/mine.log") && !rig.has("far/his.log"));
    rig.write("local/.env", "KEY=1");
    let ran = by_rsync(&rig, "push", &[]).expect(1);
    assert!(ran.stderr.contains("\n  .env: "), "{}", ran.stderr);
    assert!(!rig.has("far/.env"));
    fs::remove_file(rig.path("local/.env")).unwrap();
    rig.write("far/edited", "theirs");
    let ran = by_rsync(&rig, "push", &[]).expect(1);
    assert!(ran.stderr.contains("has changed since"), "{}", ran.stderr);
    assert!(rig.has("far/edited"));
}

/// What did not arrive as it was read is named, and the other end's tree is as it was.
#[test]
fn a_file_that_changes_while_rsync_reads_it_is_not_put_anywhere() {
    let rig = Rig::new();
    let file = rig.path("local/a");
    let change = format!("echo another >'{}'", file.display());
    stand_in(&rig.path("bin"), "3.5.0", "");
    rig.write("local/a", "first");
    rig.write("local/b", "first");
    by_rsync(&rig, "push", &[]).expect(0);
    let before = read(&rig.path("far"));
    stand_in(&rig.path("bin"), "3.5.0", &change);
    for name in ["a", "b"] {
        rig.write(format!("local/{name}"), "second");
    }
    let ran = by_rsync(&rig, "push", &[]).expect(1);
    assert!(ran.stderr.contains("did not arrive as they are here"));
    assert!(ran.stderr.contains("\n  a\n"), "{}", ran.stderr);
    assert_eq!(read(&rig.path("far")), before);
    stand_in(&rig.path("bin"), "3.5.0", "");
    by_rsync(&rig, "push", &[]).expect(0);
    assert_eq!(read(&rig.path("far")), read(&rig.path("local")));
    nothing_is_left(&rig);
}

/// A sender that sends other files than were asked for, or other bytes, or by way of a link out of
/// its tree, writes nothing beside the private directory, and nothing that it sent is kept.
#[test]
fn t33_m05_a_hostile_rsync_writes_nothing_outside_its_directory() {
    let world = World::new();
    let rig = &world.rig;
    both_new(&world);
    rig.write("local/a/b", "honest");
    over_ssh(&world, "push", &[]).expect(0);
    rig.write("far/a/b", "edited");
    rig.write("outside/b", "a secret");
    fs::create_dir(rig.path("evil")).unwrap();
    for (link, to) in [("a", "outside"), ("local", "local"), ("x", "outside")] {
        std::os::unix::fs::symlink(rig.path(to), rig.path("evil").join(link)).unwrap();
    }
    let before = (read(&rig.path("local")), read(&rig.path("outside")));
    let generations = || {
        let list = world.mirror("list", &["--json"]).expect(0).json();
        list.as_array().unwrap().len()
    };
    let evil = rig.path("evil");
    let evil = evil.display();
    let ways = [
        // Through a link out of the tree.
        format!("cd '{evil}'"),
        // The whole tree, with its links, whatever was asked for.
        format!("exec /usr/bin/rsync --server --sender -logDtpre.LsfxCIvu . '{evil}/'"),
        format!("cd '{evil}'; exec /usr/bin/rsync --server --sender -logDtprRe.LsfxCIvu . a/ x/"),
        // What is no protocol, and nothing at all.
        "cat /dev/urandom".to_owned(),
        "exit 0".to_owned(),
        "kill -9 $$".to_owned(),
    ];
    for way in ways {
        stand_in(&rig.path("host-bin"), "3.5.0", &way);
        let ran = over_ssh(&world, "pull", &[]).expect(1);
        let after = (read(&rig.path("local")), read(&rig.path("outside")));
        assert_eq!(after, before, "{way}\n{}", ran.stderr);
        assert_eq!(generations(), 0, "{way}");
        nothing_is_left(rig);
    }
    // Nothing of all that stands in the way of an honest one.
    both_new(&world);
    over_ssh(&world, "pull", &[]).expect(0);
    assert_eq!(rig.read("local/a/b"), b"edited");
}

/// A labproxy that is killed while rsync works leaves nothing that the next command does not find.
#[test]
fn m64_a_kill_while_rsync_works_loses_nothing() {
    let world = World::new();
    let rig = &world.rig;
    both_new(&world);
    rig.write("local/a", "first");
    over_ssh(&world, "push", &[]).expect(0);
    // labproxy is the parent of the rsync that it starts.
    stand_in(&rig.path("bin"), "3.5.0", "kill -KILL $PPID; sleep 60");
    rig.write("local/a", "second");
    assert_eq!(over_ssh(&world, "push", &[]).code, -1);
    assert_eq!(rig.read("far/a"), b"first");
    both_new(&world);
    crate::host::eventually("the other end has ended", || {
        (over_ssh(&world, "push", &[]).code == 0).then_some(())
    });
    assert_eq!(rig.read("far/a"), b"second");
    rig.write("far/a", "third");
    stand_in(&rig.path("bin"), "3.5.0", "kill -KILL $PPID; sleep 60");
    assert_eq!(over_ssh(&world, "pull", &[]).code, -1);
    assert_eq!(rig.read("local/a"), b"second");
    both_new(&world);
    crate::host::eventually("the other end has ended", || {
        (over_ssh(&world, "pull", &[]).code == 0).then_some(())
    });
    assert_eq!(rig.read("local/a"), b"third");
    nothing_is_left(rig);
}
