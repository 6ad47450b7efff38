//! Sessions whose workspace goes to the host and comes back.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use crate::place::{here, listed, read, resume, run, world, write};
use crate::rig::{KEY, Running, eventually, finish, kill};
use crate::sshd::{HOST, World};

/// The agent works in what is here; what it does is here afterwards, proven by the hash that the receipt
/// names. The key is nowhere.
#[test]
fn a_workspace_goes_there_and_comes_back() {
    let world = world();
    let call = world.rig.path("call").display().to_string();
    let receipt = world.rig.path("receipt.json").display().to_string();
    let script = format!(
        "pwd; cat a.txt sub/b.txt; {call} hi >/dev/null; echo made >sub/made.txt; rm sub/b.txt; exit 3"
    );
    let done = run(&world, &["--receipt", &receipt], &script);
    assert_eq!(done.code, Some(3), "{done:?}");
    let session = world.rig.session();
    let there = world.there(&session).join("workspace");
    let there = there.canonicalize().unwrap();
    assert_eq!(
        done.stdout,
        format!("{}\none\ntwo", there.display()),
        "{done:?}"
    );
    assert_eq!(read(&world, "sub/made.txt").unwrap(), "made\n");
    assert_eq!(read(&world, "a.txt").unwrap(), "one\n");
    assert!(!here(&world, "sub/b.txt").exists());
    let workspace = &world.rig.receipt()["workspace"];
    assert_eq!(workspace["pushes"], 1);
    assert_eq!(workspace["pulls"], 1);
    assert_eq!(workspace["changed_files"], 2);
    assert_eq!(workspace["unpulled"], false);
    assert_eq!(workspace["sent_bytes"], 18, "{workspace}");
    let tree = workspace["tree_after"].as_str().unwrap();
    assert_ne!(workspace["tree_before"].as_str().unwrap(), tree);
    let last = format!("generation 1, 5 bytes received; tree {tree}");
    assert!(done.stderr.contains(&last), "{done:?}");
    let status = world
        .rig
        .labproxy(&["mirror", "verify", "--session", &session[..9]]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert_eq!(world.rig.files_with_key(), Vec::<std::path::PathBuf>::new());
    assert_eq!(listed(&world, &session)["host"], HOST);
}

/// Without `--workspace` nothing goes there: the agent begins in an empty directory.
#[test]
fn without_a_workspace_nothing_goes_there() {
    let world = world();
    let done = finish(&mut world.start(&[], &["ls", "-A"]));
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{done:?}");
    let session = world.rig.session();
    let done = world
        .rig
        .labproxy(&["mirror", "status", "--session", &session]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("has no workspace that is mirrored"),
        "{done:?}"
    );
}

/// A directory that no mirror may touch, or that holds what the agent must not write, is refused before
/// anything is made.
#[test]
fn t06_a_workspace_that_is_no_root_is_refused() {
    let world = world();
    let path = |name: &str| world.rig.path(name).display().to_string();
    let (home, state, file) = (path("home"), path("state/labproxy"), path("work/a.txt"));
    let (inside, shim) = (path("work/receipt.json"), path("work/claude"));
    let within = format!("{state}/sessions");
    std::fs::create_dir_all(&within).unwrap();
    for (options, why) in [
        (vec!["--workspace", "/"], "the whole file system"),
        (vec!["--workspace", &home], "is the home directory"),
        (vec!["--workspace", &state], "contains the store of mirrors"),
        (
            vec!["--workspace", &within],
            "which is for labproxy's state",
        ),
        (vec!["--workspace", &file], "is no directory"),
        (vec!["--workspace", "absent"], "cannot be found"),
        (
            vec!["--workspace", ".", "--receipt", &inside],
            "contains receipts",
        ),
        (
            vec!["--workspace", ".", "--shim", &shim],
            "contains labproxy's shims",
        ),
        (vec!["--exclude", "*.o"], "--exclude needs a workspace"),
    ] {
        let done = finish(&mut world.start(&options, &["true"]));
        assert_eq!(done.code, Some(125), "{options:?} {done:?}");
        assert!(done.stderr.contains(why), "{options:?} {done:?}");
        assert!(!done.stderr.contains("cannot start"), "{done:?}");
    }
    assert_eq!(world.rig.list(), Vec::<serde_json::Value>::new());
    assert!(!world.rig.path("there").exists());
}

/// While a session lives in a directory no other session and no other mirror is in it; afterwards one may
/// be.
#[test]
fn t06_a_directory_is_one_living_sessions() {
    let world = world();
    let script = "echo ready >ready; sleep 1000";
    std::fs::create_dir(here(&world, "sub/deeper")).unwrap();
    let session = world.detached(&["--workspace", "sub"], &["sh", "-c", script]);
    for directory in [".", "sub", "sub/deeper"] {
        let done = finish(&mut world.start(&["--workspace", directory], &["true"]));
        assert_eq!(done.code, Some(125), "{directory} {done:?}");
        let named = format!("session {session}, which runs");
        assert!(done.stderr.contains(&named), "{directory} {done:?}");
    }
    for word in ["push", "pull"] {
        let far = format!("{HOST}:elsewhere");
        let done = world.rig.labproxy(&["mirror", word, "sub", &far]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("which runs"), "{done:?}");
        let done = world.rig.labproxy(&["mirror", word, "other", "sub/deeper"]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("lies in"), "{done:?}");
    }
    assert_eq!(listed(&world, &session)["workspace"]["work"], "in_use");
    assert_eq!(listed(&world, &session)["link"], "up");
    let ready = world.there(&session).join("workspace/ready");
    eventually("the agent", || ready.exists().then_some(()));
    let done = world
        .rig
        .labproxy(&["mirror", "pull", "--session", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, "sub/ready").unwrap(), "ready\n");
    assert_eq!(listed(&world, &session)["workspace"]["work"], "in_use");
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(listed(&world, &session)["workspace"]["work"], "pulled");
    let done = run(&world, &[], "cat sub/ready");
    assert_eq!(done.stdout, "ready", "{done:?}");
}

/// A push that is refused names its step and starts nothing; what it found is named, and what helps works.
#[test]
fn t14_a_workspace_with_a_secret_does_not_go() {
    let world = world();
    write(&world, ".env", "A=b\n");
    let done = run(&world, &[], "touch ran");
    assert_eq!(done.code, Some(125), "{done:?}");
    let step =
        "error: the workspace was not pushed to gpu1: the tree holds what looks like secrets";
    assert!(done.stderr.contains(step), "{done:?}");
    assert!(done.stderr.contains("  .env: "), "{done:?}");
    let session = world.rig.session();
    assert!(!world.there(&session).join("workspace/ran").exists());
    let workspace = &listed(&world, &session)["workspace"];
    assert_eq!(workspace["work"], "unchanged");
    let done = run(&world, &["--allow-secret", ".env"], "cat .env");
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "A=b"),
        "{done:?}"
    );

    write(&world, "notes.txt", &format!("the key is {KEY}\n"));
    let done = run(&world, &["--allow-secret", ".env"], "true");
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains("hold the configured credential"),
        "{done:?}"
    );
    let excluded = run(
        &world,
        &["--exclude", "notes.txt", "--exclude", ".env"],
        "ls -A",
    );
    assert_eq!(excluded.stdout, "a.txt\nsub", "{excluded:?}");
    assert!(here(&world, "notes.txt").exists());
    assert_eq!(world.rig.arrived(), 0);
}

/// An interrupt in the middle of a push ends labproxy, its ssh and everything on the host, before an agent
/// runs; a resume finishes what was begun.
#[test]
fn t39_an_interrupted_push_starts_nothing_and_is_finished_later() {
    let world = world();
    let noise: Vec<u8> = (0..32 << 20_u32)
        .map(|at: u32| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    std::fs::write(here(&world, "noise"), &noise).unwrap();
    for told in ["mirror phase=connect", "first push: "] {
        let told = told.to_owned();
        let (code, stderr) = interrupted_at(&world, &told);
        assert_eq!(code, Some(130), "{told}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert!(
            stderr.contains("nothing of the session is left on gpu1"),
            "{stderr}"
        );
    }
    for one in world.rig.list() {
        assert_eq!(one["state"], "ended", "{one}");
        assert_eq!(one["workspace"]["work"], "unchanged", "{one}");
        let there = world.there(one["session"].as_str().unwrap());
        assert!(!there.join("workspace/ran").exists());
    }
    let session = world.rig.list()[1]["session"].as_str().unwrap().to_owned();
    let done = resume(
        &world,
        &session,
        Some("cmp noise ../../../../work/noise && echo same"),
    );
    assert_eq!(done.stdout, "same", "{done:?}");
    assert_eq!(world.rig.arrived(), 0);
}

/// Starts a session and interrupts it when its stderr says this; its status, and what it said.
fn interrupted_at(world: &World, told: &str) -> (Option<i32>, String) {
    let mut command = world.start(
        &["--workspace", "."],
        &["sh", "-c", "touch ran; sleep 1000"],
    );
    // A process group of its own is not the foreground of any terminal.
    command.env("LABPROXY_LOG", "debug").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut labproxy = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(labproxy.id()).unwrap();
    let stderr = BufReader::new(labproxy.stderr.take().unwrap());
    let (mut said, mut is_sent) = (String::new(), false);
    for line in stderr.lines() {
        let line = line.unwrap();
        if line.contains(told) && !is_sent {
            kill("INT", pid);
            is_sent = true;
        }
        said += &(line + "\n");
    }
    let status = labproxy.wait().unwrap();
    assert!(is_sent, "{told} was not said: {said}");
    (status.code(), said)
}

/// A CLI that an agent here starts through the shim works in the workspace too, and its work comes here.
#[test]
fn a_shims_programs_work_in_the_workspace() {
    let world = world();
    let cli =
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 1.0\npwd >&2; cat b.txt; echo made >made\n";
    let cli = world.rig.write_program("claude", cli).display().to_string();
    let config = world.rig.path("config/labproxy/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = format!("{text}[agent]\nbinary = \"{cli}\"\n");
    std::fs::write(&config, text).unwrap();
    let shim = world.rig.path("home/shim").display().to_string();
    let options = ["--shim", &shim];
    let done = run(
        &world,
        &options,
        &format!("cd sub && {shim} -p hi </dev/null"),
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "two", "{done:?}");
    assert!(done.stderr.contains("/workspace/sub\n"), "{done:?}");
    assert_eq!(read(&world, "sub/made").unwrap(), "made\n");
    let session = world.rig.session();
    assert_eq!(listed(&world, &session)["workspace"]["work"], "pulled");
}

/// Of two sessions that begin in one directory at the same time one has it; the other changes nothing.
#[test]
fn t06_of_two_starts_in_one_directory_one_wins() {
    let world = world();
    let agent = ["sh", "-c", "echo ready; read go; echo work >made"];
    let start = || Running::of(&mut world.start(&["--workspace", "."], &agent));
    let both = (start(), start());
    let owner = eventually("an owner with an agent", || {
        let all = world.rig.list();
        let one = all
            .iter()
            .find(|one| one["workspace"]["work"] == "in_use")?;
        one["pid"].as_i64()
    });
    let (mut winner, loser) = if i64::from(both.0.pid()) == owner {
        both
    } else {
        (both.1, both.0)
    };
    // Before the winner ends: a slow loser would find the directory free then, and win as well.
    let done = loser.finish();
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("which runs"), "{done:?}");
    assert_eq!(winner.line(), "ready");
    winner.say("go");
    let done = winner.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
}
