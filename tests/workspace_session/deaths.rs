//! Who dies while a session's workspace goes to the host or comes back: what is charged, what is kept,
//! what is cleaned, and that the next command goes on. The rows of ARCHITECTURE.md's table name them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::gate::{
    Direction, FILE, FILES, Held, PASS, Victim, fill, gated, held, ledger_holds, money,
    nothing_is_left, open, programs, stop_after, work,
};
use crate::place::{here, listed, read, resume};
use crate::rig::{Done, Running, eventually, kill};
use crate::sshd::World;

/// Every file of a directory, by its name.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Bytes that the host has staged of a push.
fn staged(world: &World) -> u64 {
    let entries = std::fs::read_dir(world.rig.path("there/mirrors"));
    let entries = entries.into_iter().flatten().flatten();
    let staged = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".staged"));
    staged.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// A session whose push stands still in the middle.
fn pushing(world: &World) -> (Running, Held) {
    fill(world);
    stop_after(world, Direction::Up, PASS);
    let running = Running::of(&mut world.start(&["--workspace", "."], &["touch", "ran"]));
    let held = held(world);
    // What passed has been taken: all but what is on its way inside sshd.
    eventually("half of what passed", || {
        (staged(world) > PASS / 2).then_some(())
    });
    (running, held)
}

/// After a push that was cut off: nothing ran, nothing was spent, the tree there is as it was, no lock is
/// left, and a resume sends what is not there and runs the agent in the whole tree.
fn push_is_finished_later(world: &World) {
    let session = world.rig.session();
    let there = world.there(&session).join("workspace");
    assert_eq!(files(&there), BTreeMap::new());
    assert_eq!(work(world, &session), "unchanged");
    assert_eq!(world.rig.arrived(), 0);
    let before = files(&here(world, ""));
    let done = resume(world, &session, Some("ls -A | wc -l; echo made >made"));
    assert_eq!(done.code, Some(0), "{done:?}");
    // The files, and what the place itself has: `a.txt` and `sub`.
    assert_eq!(done.stdout, (FILES + 2).to_string(), "{done:?}");
    let sent = world.rig.show(&session)["workspace"]["sent_bytes"].as_u64();
    assert!(
        sent.unwrap() <= u64::from(FILES) * FILE - PASS / 2 + FILE,
        "{sent:?}"
    );
    assert_eq!(files(&there), files(&here(world, "")));
    assert_eq!(read(world, "made").unwrap(), "made\n");
    assert!(
        before
            .iter()
            .all(|(name, bytes)| files(&there)[name] == *bytes)
    );
    assert_eq!(work(world, &session), "pulled");
    assert_eq!(money(world, &session), (0, 0));
    ledger_holds(world);
    nothing_is_left(world);
}

/// labproxy is killed in the middle of its push: the host ends the rest by itself, and what it took stays
/// for the next push.
#[test]
fn a_controller_that_dies_in_its_push_has_spent_nothing_and_goes_on_later() {
    let world = gated();
    world.lease("2s");
    let (running, held) = pushing(&world);
    held.kill(&world, &running, Victim::Controller);
    assert_eq!(running.finish().code, None);
    held.is_gone(&world);
    nothing_is_left(&world);
    let session = world.rig.session();
    assert_eq!(listed(&world, &session)["state"], "interrupted");
    push_is_finished_later(&world);
}

/// The push's other end is killed: the session ends with the step, and everything there with it.
fn push_without(victim: Victim) {
    let world = gated();
    let (running, held) = pushing(&world);
    held.kill(&world, &running, victim);
    let done = running.finish();
    assert_eq!(done.code, Some(125), "{victim:?} {done:?}");
    for told in [
        "error: the workspace was not pushed to gpu1: ",
        "nothing of the session is left on gpu1",
    ] {
        assert!(done.stderr.contains(told), "{victim:?} {done:?}");
    }
    held.is_gone(&world);
    nothing_is_left(&world);
    let session = world.rig.session();
    assert_eq!(listed(&world, &session)["state"], "ended");
    push_is_finished_later(&world);
}

#[test]
fn a_push_whose_ssh_dies_ends_the_session_and_is_finished_later() {
    push_without(Victim::Ssh);
}

#[test]
fn a_push_whose_end_on_the_host_dies_ends_the_session_and_is_finished_later() {
    push_without(Victim::HostsEnd);
}

/// The session's own ssh dies during the push, which has another: the link is made again, and the session
/// goes on.
#[test]
fn a_push_outlives_the_sessions_own_ssh() {
    let world = gated();
    let (running, held) = pushing(&world);
    let own = held.other(running.pid()).unwrap();
    kill("KILL", own);
    eventually("another connection", || {
        held.other(running.pid()).filter(|other| *other != own)
    });
    open(&world);
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("link to gpu1 lost"), "{done:?}");
    assert_eq!(read(&world, "ran").unwrap(), "");
    nothing_is_left(&world);
}

/// A program that watches over the session there dies during the push: no agent runs, and the next command
/// goes on with what is there.
fn push_unwatched(watch: &str) {
    let world = gated();
    let (running, _held) = pushing(&world);
    let watching = programs(&world, watch);
    assert_eq!(watching.len(), 1, "{watch} {watching:?}");
    kill("KILL", watching[0]);
    open(&world);
    let done = running.finish();
    assert_eq!(done.code, Some(125), "{done:?}");
    assert_eq!(read(&world, "ran"), None);
    let session = world.rig.session();
    // No agent was let in, or none could be started: either way there is no work that is not here.
    let work = work(&world, &session);
    assert!(work == "unchanged" || work == "pulled", "{work} {done:?}");
    nothing_is_left(&world);
    let done = resume(&world, &session, Some("ls -A | wc -l"));
    assert_eq!(done.stdout, (FILES + 2).to_string(), "{done:?}");
}

#[test]
fn a_push_whose_supervisor_dies_starts_nothing() {
    push_unwatched("supervisor");
}

#[test]
fn a_push_whose_guard_dies_starts_nothing() {
    push_unwatched("guard");
}

/// Makes as much as a push has, and asks the model once.
const MAKE: &str =
    "i=0; while [ $i -lt 20 ]; do head -c 1048576 /dev/urandom >g$i; i=$((i+1)); done";

/// A session whose last pull stands still in the middle.
fn pulling(world: &World) -> (Running, Held) {
    stop_after(world, Direction::Down, PASS);
    let call = world.rig.path("call").display().to_string();
    let receipt = world.rig.path("receipt.json").display().to_string();
    let script = format!("{MAKE}; {call} hi; echo; exit 3");
    let options = ["--workspace", ".", "--receipt", &receipt];
    let running = Running::of(&mut world.start(&options, &["sh", "-c", &script]));
    let held = held(world);
    assert_eq!(running.line(), "200");
    (running, held)
}

/// After a pull that was cut off: the directory here is as it was, nothing is published, the work is on the
/// host and marked, and what was served is charged, no more.
fn work_is_kept_there(world: &World) {
    let session = world.rig.session();
    assert_eq!(work(world, &session), "unpulled");
    assert_eq!(files(&here(world, "")).len(), 1);
    assert_eq!(
        files(&world.there(&session).join("workspace")).len(),
        usize::from(FILES) + 1
    );
    assert_eq!(
        world.rig.show(&session)["workspace"]["generation"],
        serde_json::Value::Null
    );
    nothing_is_left(world);
}

/// The next command brings it.
fn work_comes_later(world: &World) {
    let session = world.rig.session();
    let done = resume(world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("has its work here"), "{done:?}");
    assert_eq!(work(world, &session), "pulled");
    assert_eq!(
        files(&here(world, "")),
        files(&world.there(&session).join("workspace"))
    );
    assert_eq!(
        money(world, &session),
        (world.rig.standin.served().pico_usd, 0)
    );
    ledger_holds(world);
    nothing_is_left(world);
}

/// labproxy is killed in the middle of its last pull.
#[test]
fn a_controller_that_dies_in_its_last_pull_leaves_the_work_there() {
    let world = gated();
    let (running, held) = pulling(&world);
    held.kill(&world, &running, Victim::Controller);
    assert_eq!(running.finish().code, None);
    held.is_gone(&world);
    let session = world.rig.session();
    assert_eq!(listed(&world, &session)["state"], "interrupted");
    work_is_kept_there(&world);
    work_comes_later(&world);
}

/// The last pull's other end is killed: the receipt says that the work is there.
fn pull_without(victim: Victim) {
    let world = gated();
    let (running, held) = pulling(&world);
    held.kill(&world, &running, victim);
    open(&world);
    let done = running.finish();
    assert_eq!(done.code, Some(3), "{victim:?} {done:?}");
    assert!(
        done.stderr.contains("was NOT pulled"),
        "{victim:?} {done:?}"
    );
    held.is_gone(&world);
    let receipt = world.rig.receipt();
    assert_eq!(
        receipt["workspace"]["unpulled"], true,
        "{victim:?} {receipt}"
    );
    assert_eq!(
        receipt["spent_pico_usd"],
        world.rig.standin.served().pico_usd
    );
    work_is_kept_there(&world);
    work_comes_later(&world);
}

#[test]
fn a_last_pull_whose_ssh_dies_leaves_the_work_there() {
    pull_without(Victim::Ssh);
}

#[test]
fn a_last_pull_whose_end_on_the_host_dies_leaves_the_work_there() {
    pull_without(Victim::HostsEnd);
}

/// Who gives up what a cut pull left has it on the host still, and nothing else of the session.
#[test]
fn a_discard_after_a_cut_pull_says_where_the_work_is() {
    let world = gated();
    let (running, held) = pulling(&world);
    held.kill(&world, &running, Victim::Controller);
    drop(running.finish());
    let session = world.rig.session();
    let done: Done = world.rig.labproxy(&["session", "discard", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .contains("work that was NOT pulled stays in gpu1:"),
        "{done:?}"
    );
    assert_eq!(
        files(&world.there(&session).join("workspace")).len(),
        usize::from(FILES) + 1
    );
    assert_eq!(files(&here(&world, "")).len(), 1);
    assert!(
        !world
            .rig
            .path("state/labproxy/sessions")
            .join(&session)
            .exists()
    );
    nothing_is_left(&world);
    ledger_holds(&world);
    // The directory here is free for another session.
    let done = crate::place::run(&world, &[], "cat a.txt");
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "one"),
        "{done:?}"
    );
}

/// labproxy is killed between a pull and its proof: the files are here, and still the work counts as not
/// pulled until a pull was proven.
#[test]
fn a_controller_that_dies_before_the_proof_pulls_again() {
    let world = crate::place::world();
    let running = Running::of(&mut world.start(
        &["--workspace", "."],
        &["sh", "-c", "echo ready; read go; echo work >made"],
    ));
    assert_eq!(running.line(), "ready");
    let session = world.rig.session();
    // Whoever writes the pull down waits for this.
    let lock = world
        .rig
        .path("state/labproxy/sessions")
        .join(&session)
        .join("mirror.lock");
    let lock = std::fs::File::open(lock).unwrap();
    lock.try_lock().unwrap();
    let mut running = running;
    running.say("go");
    eventually("the work", || read(&world, "made"));
    running.signal("KILL");
    drop(running.finish());
    drop(lock);
    assert_eq!(work(&world, &session), "unpulled");
    nothing_is_left(&world);
    let done = resume(&world, &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(work(&world, &session), "pulled");
    assert_eq!(money(&world, &session), (0, 0));
    ledger_holds(&world);
}
