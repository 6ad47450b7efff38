//! Pushes and pulls over a real ssh that are cut off: whoever dies, and whenever, every file is old or
//! new, and the next run finishes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use labproxy::tree::apply::is_unfinished;
use rustix::process::{Pid, Signal};

use crate::host::{World, children, eventually, signal};
use crate::rig::Ran;
use crate::trees::{Chance, Tree, contents, read};

/// Files of the tree.
const FILES: u64 = 60;
/// Most bytes of one.
const FILE: u64 = 40_000;
/// So many times as long is one that is moved in parts: 4 MB at most.
const LARGE: usize = 100;

/// Changes about a third of a tree: contents, new files, files that go, a directory's name.
fn edit(root: &Path, chance: &mut Chance) {
    for index in 0..FILES {
        let directory = root.join(format!("d{}", index % 5));
        let path = directory.join(format!("f{index}"));
        match chance.below(9) {
            0 | 1 => {
                fs::create_dir_all(&directory).unwrap();
                fs::write(&path, chance.bytes(FILE)).unwrap();
            }
            2 if index > 0 => drop(fs::remove_file(&path)),
            _ => {}
        }
    }
    let (one, other) = (root.join("d0"), root.join("renamed"));
    if chance.below(3) == 0 && one.exists() {
        drop(fs::remove_dir_all(&other));
        fs::rename(one, &other).unwrap();
    }
    fs::write(root.join("always"), chance.bytes(FILE)).unwrap();
    // One that a pull writes while it comes.
    let large = chance.bytes(FILE).repeat(LARGE);
    fs::write(root.join("large"), large).unwrap();
}

/// Whole contents that are staged on the host: bytes of all together.
fn staged(world: &World) -> u64 {
    let Ok(entries) = fs::read_dir(world.rig.path("there/mirrors")) else {
        return 0;
    };
    let staged = entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ext| ext == "staged"));
    let bytes = staged.map(|path| fs::read(path).unwrap_or_default());
    let (mut rest, mut whole) = (bytes.as_deref().unwrap_or_default(), 0);
    while let Some((head, after)) = rest.split_first_chunk::<40>() {
        let size = u64::from_le_bytes(head[32..].try_into().unwrap());
        let Some((content, after)) = after.split_at_checked(usize::try_from(size).unwrap()) else {
            break;
        };
        if blake3::hash(content).as_bytes() != &head[..32] {
            break;
        }
        whole += size;
        rest = after;
    }
    whole
}

/// Every file is of one of the trees, whole; only unfinished ones have other bytes.
#[track_caller]
fn assert_whole(now: &Tree, old: &Tree, new: &Tree) {
    let known: BTreeSet<&[u8]> = contents(old).into_iter().chain(contents(new)).collect();
    for (path, node) in now {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
        if is_unfinished(name) || old.get(path) == Some(node) || new.get(path) == Some(node) {
            continue;
        }
        // A directory that was renamed has old files under new names for a while.
        let one = Tree::from([(path.clone(), node.clone())]);
        let whole = contents(&one).iter().all(|bytes| known.contains(bytes));
        assert!(whole, "{} is partial", path.escape_ascii());
    }
}

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Controller,
    HostsEnd,
    Link,
}

/// Waits until the victim is there, then so long, and kills it, if it did not end by itself before.
fn kill(victim: Victim, running: &mut Child, world: &World, after: Duration) {
    let find = |running: &Child| match victim {
        Victim::Controller => Vec::new(),
        Victim::HostsEnd => world.ends(),
        Victim::Link => children(running.id(), "ssh"),
    };
    let mut found = find(running);
    while found.is_empty() && !matches!(victim, Victim::Controller) {
        if running.try_wait().unwrap().is_some() {
            return;
        }
        found = find(running);
    }
    std::thread::sleep(after);
    if matches!(victim, Victim::Controller) {
        drop(running.kill());
    }
    signal(&found, Signal::KILL);
}

/// Runs it, and kills somebody after so long; says whether it was done before.
fn cut(world: &World, what: &str, victim: Victim, after: Duration) -> bool {
    let mut running = world.command(what, &["--allow-deletes"]).spawn().unwrap();
    kill(victim, &mut running, world, after);
    let ran = Ran::of(&running.wait_with_output().unwrap());
    eventually("the host's end to go", || {
        world.ends().is_empty().then_some(())
    });
    if ran.code != 0 && !matches!(victim, Victim::Controller) {
        assert_eq!(ran.code, 1, "{what} {victim:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
    ran.code == 0
}

/// Runs what was cut off to its end; a number of its JSON.
fn finish(world: &World, what: &str, number: &str) -> u64 {
    let ran = world.mirror(what, &["--allow-deletes", "--json"]).expect(0);
    ran.json()[number].as_u64().unwrap()
}

/// M-64: SIGKILL at seeded moments, of the controller, of the host's end, of ssh, in pushes and pulls.
#[test]
fn m64_killed_at_any_moment_every_file_is_old_or_new() {
    let kills = std::env::var("LABPROXY_SOAK_MIRROR_KILLS");
    let kills: u64 = kills.map_or(40, |text| text.parse().unwrap());
    let world = World::new();
    let (local, far) = (world.rig.path("local"), world.rig.path("far"));
    let mut chance = Chance(64);
    for _ in 0..6 {
        edit(&local, &mut chance);
    }
    finish(&world, "push", "sent_bytes");
    // In these times kills fall; they follow the machine's speed, so that about half come in time.
    let mut windows = [Duration::from_millis(150); 6];
    let mut cut_off = 0_u32;
    for round in 0..kills {
        let kind = usize::try_from(round % 6).unwrap();
        let victim = [Victim::Controller, Victim::HostsEnd, Victim::Link][kind / 2];
        let (what, from, to, number) = if round % 2 == 0 {
            ("push", &local, &far, "sent_bytes")
        } else {
            ("pull", &far, &local, "received_bytes")
        };
        let old = read(to);
        edit(from, &mut chance);
        let new = read(from);
        let share = u32::try_from(chance.below(1_000)).unwrap();
        let after = windows[kind] * share / 1_000;
        let done = cut(&world, what, victim, after);
        let now = read(to);
        assert_whole(&now, &old, &new);
        assert_eq!(read(from), new, "the source of a {what} was changed");
        let there: BTreeSet<&[u8]> = contents(&old).into_iter().collect();
        let needed: BTreeSet<&[u8]> = contents(&new).into_iter().collect();
        let needed: usize = needed.difference(&there).map(|bytes| bytes.len()).sum();
        let whole = staged(&world);
        let moved = finish(&world, what, number);
        assert_eq!(read(to), new, "{what}, round {round}, {victim:?}");
        let needed = u64::try_from(needed).unwrap();
        // An old content may have lost its last place meanwhile: it is sent again then.
        let lost: usize = contents(&old).iter().map(|bytes| bytes.len()).sum();
        let lost = if now == old {
            0
        } else {
            u64::try_from(lost).unwrap()
        };
        assert!(
            moved <= needed + lost,
            "{what} {round}: {moved} of {needed}"
        );
        if what == "push" && now == old {
            assert!(moved + whole <= needed, "{moved} sent, {whole} were staged");
        }
        if done {
            assert_eq!(moved, 0, "{what} {round} was done already");
            windows[kind] = windows[kind] * 4 / 5;
        } else {
            cut_off += 1;
            windows[kind] = windows[kind] * 9 / 8;
        }
        assert_eq!(staged(&world), 0);
    }
    let most = u32::try_from(kills).unwrap();
    // The first of each kind find the speed.
    assert!(cut_off * 3 >= most, "only {cut_off} of {most} were cut off");
}

/// Waits for something of a command that runs, and shows what it said when it ends before.
fn while_it_runs<T>(running: Child, mut get: impl FnMut() -> Option<T>) -> (Child, T) {
    let mut running = running;
    loop {
        if let Some(value) = get() {
            return (running, value);
        }
        if running.try_wait().unwrap().is_some() {
            let ran = Ran::of(&running.wait_with_output().unwrap());
            panic!("it ended too early, with {}: {}", ran.code, ran.stderr);
        }
    }
}

/// An edit of an agent after a push that was cut off is neither overwritten nor taken for a part of it.
#[test]
fn m64_a_push_that_was_cut_off_hides_no_edit() {
    let world = World::new();
    let (local, far) = (world.rig.path("local"), world.rig.path("far"));
    // So many that the kill falls long before the last one is written.
    let write_all = |text: &str| {
        for index in 0..4_000 {
            let path = format!("local/d/f{index:04}");
            world.rig.write(path, format!("{text} {index}"));
        }
    };
    write_all("old");
    world.mirror("push", &[]).expect(0);
    write_all("new");
    let running = world.command("push", &[]).spawn().unwrap();
    let (running, ends) = while_it_runs(running, || {
        (fs::read(far.join("d/f0000")).ok()? == b"new 0").then(|| world.ends())
    });
    signal(&ends, Signal::KILL);
    Ran::of(&running.wait_with_output().unwrap()).expect(1);
    eventually("the host's end to go", || {
        world.ends().is_empty().then_some(())
    });
    assert_eq!(fs::read(far.join("d/f3999")).unwrap(), b"old 3999");
    let unfinished = format!("d/.labproxy-{}.tmp", "0123456789abcdef".repeat(2));
    fs::write(far.join(&unfinished), "half").unwrap();
    fs::write(far.join("d/f3997"), "an agent's").unwrap();
    fs::write(far.join("d/more"), "an agent's").unwrap();
    let ran = world.mirror("push", &[]).expect(1);
    assert!(
        ran.stderr.contains("d/f3997") && ran.stderr.contains("d/more"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("d/f3998"), "{}", ran.stderr);
    assert_eq!(fs::read(far.join("d/f3997")).unwrap(), b"an agent's");
    // Without them it finishes, and what was not finished is gone.
    fs::write(far.join("d/f3997"), "old 3997").unwrap();
    fs::remove_file(far.join("d/more")).unwrap();
    world.mirror("push", &[]).expect(0);
    assert_eq!(read(&far), read(&local));
    // Now that both agree, a file that is set back is an edit again.
    fs::write(far.join("d/f3997"), "old 3997").unwrap();
    let ran = world.mirror("push", &[]).expect(1);
    assert!(ran.stderr.contains("d/f3997"), "{}", ran.stderr);
}

/// M-25: the other end falls silent, and our own limit ends the wait, whatever it says.
#[test]
fn m25_a_silent_host_is_given_up_by_our_own_clock() {
    let world = World::new();
    world.rig.write("local/a", "a");
    world.mirror("push", &[]).expect(0);
    // Enough to be read and sent for a while, in holes that cost no disk.
    let large = fs::File::create(world.rig.path("far/large")).unwrap();
    large.set_len(1024 * 1024 * 1024).unwrap();
    let mut pull = world.command("pull", &["--generation-only"]);
    // It has opened the root, and reads.
    let (running, ends) = while_it_runs(pull.spawn().unwrap(), || {
        let ends = world.ends();
        let is_open = |end: &Pid| {
            let open = fs::read_dir(format!("/proc/{}/fd", end.as_raw_pid())).ok();
            let mut links = open.into_iter().flatten().flatten();
            links.any(|link| {
                let target = fs::read_link(link.path()).unwrap_or_default();
                target
                    .extension()
                    .is_some_and(|extension| extension == "lock")
            })
        };
        ends.iter().any(is_open).then_some(ends)
    });
    signal(&ends, Signal::STOP);
    let started = Instant::now();
    let ran = Ran::of(&running.wait_with_output().unwrap()).expect(1);
    let waited = started.elapsed();
    signal(&ends, Signal::KILL);
    assert!(waited < Duration::from_mins(1), "{waited:?}");
    assert!(ran.stderr.contains("30 s"), "{}", ran.stderr);
}
