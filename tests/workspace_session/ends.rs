//! Ends of sessions: work that does not come, and what brings it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::place::{here, listed, read, resume, run, world, write};
use crate::rig::{Running, eventually, finish, kill};
use crate::sshd::World;

/// The work as the list tells it.
fn work(world: &World, session: &str) -> String {
    let listed = listed(world, session);
    listed["workspace"]["work"].as_str().unwrap().to_owned()
}

/// A script that says that it works, and goes on when the test says so.
fn waiting(then: &str) -> String {
    format!("echo ready; read go; {then}")
}

/// A running session with the workspace, whose agent works.
fn started(world: &World, script: &str) -> Running {
    let options = ["--workspace", "."];
    let running = Running::of(&mut world.start(&options, &["sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running
}

/// A host that takes no further connection: the work stays there, the last lines say so, the status is the
/// agent's, and a resume brings it.
#[test]
fn t13_work_that_cannot_be_pulled_stays_until_it_is() {
    let mut world = world();
    let mut running = started(&world, &waiting("echo work >made; exit 4"));
    world.stop_sshd();
    running.say("go");
    let done = running.finish();
    assert_eq!(done.code, Some(4), "{done:?}");
    let loud = "WARNING: the agent's work on gpu1 was NOT pulled: ";
    assert!(done.stderr.contains(loud), "{done:?}");
    let session = world.rig.session();
    let last = format!("'labproxy session resume {session}' pulls it");
    assert!(
        done.stderr.lines().last().unwrap().contains(&last),
        "{done:?}"
    );
    assert_eq!(read(&world, "made"), None);
    assert_eq!(work(&world, &session), "unpulled");
    let shown = world.rig.labproxy(&["session", "show", &session]);
    assert!(
        shown.stdout.contains("UNPULLED work on the host"),
        "{shown:?}"
    );
    assert!(shown.stdout.contains(": unpulled ("), "{shown:?}");
    assert_eq!(world.rig.show(&session)["workspace"]["unpulled"], true);

    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("was not pulled"), "{done:?}");
    world.start_sshd();
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("has its work here"), "{done:?}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    assert_eq!(work(&world, &session), "pulled");
    let again = resume(&world, &session, None);
    assert!(
        again
            .stdout
            .contains("has no work on gpu1 that is not here"),
        "{again:?}"
    );
}

/// A tree over a limit is not pulled, and nothing of it is lost.
#[test]
fn t13_a_pull_over_a_limit_leaves_the_work_there() {
    let world = world();
    let done = run(&world, &[], "echo work >made; truncate -s 9G large");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("was NOT pulled"), "{done:?}");
    assert!(done.stderr.contains("large"), "{done:?}");
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "unpulled");
    assert_eq!(read(&world, "made"), None);
    std::fs::remove_file(world.there(&session).join("workspace/large")).unwrap();
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
}

/// An agent that emptied the workspace does not empty the directory here before somebody allows it.
#[test]
fn t13_an_emptied_workspace_empties_nothing_here() {
    let world = world();
    let done = run(&world, &[], "rm -r a.txt sub; ls -A");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{done:?}");
    assert!(
        done.stderr
            .contains("was NOT brought to what the agent left"),
        "{done:?}"
    );
    assert!(
        done.stderr.contains("nothing is lost: generation 1"),
        "{done:?}"
    );
    assert_eq!(read(&world, "a.txt").unwrap(), "one\n");
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "unpulled");
    let done = resume(&world, &session, Some("true"));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains("the workspace was not pushed to gpu1"),
        "{done:?}"
    );
    assert_eq!(read(&world, "a.txt").unwrap(), "one\n");
    let pull = ["mirror", "pull", "--session", &session, "--allow-empty"];
    let done = world.rig.labproxy(&pull);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!here(&world, "a.txt").exists());
    assert_eq!(work(&world, &session), "pulled");
}

/// What somebody edits here while the agent works is not overwritten, and the agent's work is kept.
#[test]
fn t13_edits_here_meanwhile_are_kept_and_so_is_the_work() {
    let world = world();
    let mut running = started(&world, &waiting("echo there >a.txt; echo new >made"));
    write(&world, "a.txt", "edited here\n");
    running.say("go");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr
            .contains("was NOT brought to what the agent left"),
        "{done:?}"
    );
    assert!(done.stderr.contains("  a.txt"), "{done:?}");
    assert_eq!(read(&world, "a.txt").unwrap(), "edited here\n");
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "unpulled");
    write(&world, "a.txt", "one\n");
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, "a.txt").unwrap(), "there\n");
    assert_eq!(read(&world, "made").unwrap(), "new\n");
}

/// A killed labproxy loses nothing: what the agent did until its end is there, told, and brought.
#[test]
fn t13_a_killed_labproxy_leaves_its_work_unpulled() {
    let world = world();
    let script = "echo work >made; echo ready; sleep 1000";
    let running = started(&world, script);
    let session = world.rig.session();
    running.signal("KILL");
    drop(running.finish());
    let listed = listed(&world, &session);
    assert_eq!(listed["state"], "interrupted", "{listed}");
    assert_eq!(work(&world, &session), "unpulled");
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .contains("nothing of the session is left on gpu1"),
        "{done:?}"
    );
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    assert_eq!(work(&world, &session), "pulled");
}

/// Ctrl-C during the last pull ends at once; the work stays there.
#[test]
fn t13_an_interrupted_pull_leaves_the_work_there() {
    let mut world = world();
    // The agent is on this machine: it stops the server, which then answers no new connection.
    let server = world.sshd_pid();
    let script = format!("echo work >made; kill -STOP {server}; exit 5");
    let options = ["--workspace", "."];
    let mut command = world.start(&options, &["sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut labproxy = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(labproxy.id()).unwrap();
    let mut said = String::new();
    for line in BufReader::new(labproxy.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("pulling the workspace from gpu1") {
            kill("INT", pid);
        }
        said += &(line + "\n");
    }
    assert_eq!(labproxy.wait().unwrap().code(), Some(5), "{said}");
    assert!(
        said.contains("was NOT pulled: the pull was interrupted"),
        "{said}"
    );
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "unpulled");
    world.stop_sshd();
    world.start_sshd();
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
}

/// A session that goes on takes what was edited here along, and brings first what is there and not here.
#[test]
fn a_resumed_agent_has_what_is_here_and_what_was_there() {
    let world = world();
    let done = run(&world, &[], "echo first >made");
    assert_eq!(done.code, Some(0), "{done:?}");
    let session = world.rig.session();
    write(&world, "a.txt", "edited\n");
    let done = resume(&world, &session, Some("cat made a.txt"));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "first\nedited", "{done:?}");
    let there = world.there(&session).join("workspace/late.txt");
    std::fs::write(there, "late\n").unwrap();
    let done = resume(&world, &session, Some("cat late.txt; echo second >made"));
    assert_eq!(done.stdout, "late", "{done:?}");
    assert_eq!(read(&world, "late.txt").unwrap(), "late\n");
    assert_eq!(read(&world, "made").unwrap(), "second\n");
    let receipt = world.rig.show(&session);
    assert_eq!(receipt["workspace"]["pushes"], 3, "{receipt}");
    assert_eq!(receipt["workspace"]["pulls"], 4, "{receipt}");
    let other = world.rig.path("home").display().to_string();
    let done = world.rig.labproxy(&[
        "session",
        "resume",
        &session,
        "--workspace",
        &other,
        "--",
        "true",
    ]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("it does not go on with"), "{done:?}");
}

/// Links that lead out are named at the end and followed by nobody; what runs by itself waits until it is
/// accepted by the session's name.
#[test]
fn t02_t33_links_that_leave_are_named_and_what_runs_by_itself_waits() {
    let world = world();
    let done = run(&world, &[], "ln -s /etc out; echo 'touch ran' >.envrc");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr
            .contains("link out leads out of the tree to /etc"),
        "{done:?}"
    );
    assert!(done.stderr.contains("held back .envrc"), "{done:?}");
    assert!(!here(&world, ".envrc").exists());
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "pulled");
    let done = world
        .rig
        .labproxy(&["mirror", "accept", "--session", &session, ".envrc"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(read(&world, ".envrc").unwrap(), "touch ran\n");
    let few = world.rig.labproxy(&["mirror", "accept", ".", "gpu1:x"]);
    assert_eq!(few.code, Some(2), "{few:?}");
    assert!(
        few.stderr.contains("does not say what to let in"),
        "{few:?}"
    );
    let both = ["mirror", "pull", ".", "gpu1:x", "--session", &session];
    assert_eq!(world.rig.labproxy(&both).code, Some(2));
}

/// What is excluded when the session begins stays here, whatever the agent writes of excludes.
#[test]
fn t14_an_agent_cannot_bring_out_what_is_excluded() {
    let world = world();
    write(&world, ".labproxyignore", "private/\n");
    write(&world, "private/notes", "mine\n");
    let done = run(
        &world,
        &[],
        "ls -A; mkdir private; echo theirs >private/notes; : >.labproxyignore",
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, ".labproxyignore\na.txt\nsub");
    assert_eq!(read(&world, "private/notes").unwrap(), "mine\n");
    let session = world.rig.session();
    let done = resume(&world, &session, Some("cat private/notes"));
    assert_eq!(done.stdout, "theirs", "{done:?}");
    assert_eq!(read(&world, "private/notes").unwrap(), "mine\n");
}

/// All sessions end, each with its work here; one that is forgotten leaves its files on the host.
#[test]
fn stop_all_ends_all_and_discard_says_what_stays() {
    let world = world();
    let script = "echo work >made; echo ready >ready; sleep 1000";
    let one = world.detached(&["--workspace", "."], &["sh", "-c", script]);
    let two = world.detached(&[], &["sh", "-c", script]);
    for session in [&one, &two] {
        let ready = world.there(session).join("workspace/ready");
        eventually("the agent", || ready.exists().then_some(()));
    }
    let done = world.rig.labproxy(&["session", "stop", "--all"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout.lines().count(), 2, "{done:?}");
    for session in [&one, &two] {
        assert!(
            done.stdout.contains(&format!("{session} has ended")),
            "{done:?}"
        );
        assert_eq!(listed(&world, session)["state"], "ended");
    }
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    let done = world.rig.labproxy(&["session", "stop", "--all"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "no session runs")
    );
    let table = world.rig.labproxy(&["session", "list"]);
    assert!(table.stdout.contains("WORKSPACE"), "{table:?}");
    assert!(table.stdout.contains("pulled"), "{table:?}");
    let done = world.rig.labproxy(&["session", "discard", &one]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("its files stay in gpu1:"), "{done:?}");
    assert!(world.there(&one).join("workspace/made").exists());
    let done = finish(&mut world.rig.command(&["session", "stop"]));
    assert_eq!(done.code, Some(2), "{done:?}");
}

/// A last pull waits for another process that works with the mirror, such as an audit, and then comes.
#[test]
fn a_last_pull_waits_for_its_turn() {
    let world = world();
    let mut command = world.start(
        &["--workspace", "."],
        &["sh", "-c", "echo work >made; echo ready >&2; read go"],
    );
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut labproxy = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = labproxy.stdin.take();
    let mut lock = None;
    let mut said = String::new();
    for line in BufReader::new(labproxy.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "ready" {
            let mirrors = std::fs::read_dir(world.rig.path("state/labproxy/mirrors"));
            let mirror = mirrors.unwrap().next().unwrap().unwrap().path();
            let file = std::fs::File::open(mirror.join("lock")).unwrap();
            file.try_lock().unwrap();
            lock = Some(file);
            // The end of its input lets the agent end.
            stdin = None;
        }
        if line.contains("waiting for process") {
            assert!(lock.take().is_some());
        }
        said += &(line + "\n");
    }
    drop(stdin);
    assert!(lock.is_none(), "it did not wait: {said}");
    let status = labproxy.wait().unwrap();
    assert!(said.contains("workspace pulled: "), "{said}");
    // `read` failed at the end of its input.
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(read(&world, "made").unwrap(), "work\n");
}
