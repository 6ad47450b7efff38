//! A world in which a pass of the mirror stands still in the middle: the way to the host stops after so
//! many bytes, and goes on when the test says so. So a death falls into a step on every machine.

use std::path::PathBuf;

use serde_json::Value;

use crate::place::{here, world};
use crate::rig::{Done, Running, eventually, is_alive};
use crate::sshd::World;

/// Bytes that pass: more than the helper, which goes over the session's own connection.
pub(crate) const PASS: u64 = 3 * MIB;
/// Files of the tree that goes, each of [`FILE`] random bytes: far more than pass, and than what pipes and
/// sockets on the way hold.
pub(crate) const FILES: u8 = 20;
/// One file's bytes.
pub(crate) const FILE: u64 = MIB;
const MIB: u64 = 1024 * 1024;

/// Which way the bytes go that are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the host: a push.
    Up,
    /// From the host: a pull.
    Down,
}

/// A process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// labproxy itself.
    Controller,
    /// The ssh of the connection that stands still.
    Ssh,
    /// The program on the host that this connection started.
    HostsEnd,
}

/// A connection that stands still.
pub(crate) struct Held {
    ssh: i32,
}

/// A world whose way to the host has a gate.
pub(crate) fn gated() -> World {
    let world = world();
    let path = world.rig.path("ssh/ssh_config");
    let config = std::fs::read_to_string(&path).unwrap();
    let gate = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/gate.py");
    let directory = at_gate(&world, "");
    std::fs::create_dir(&directory).unwrap();
    let command = format!("python3 {gate} %h %p {}", directory.display());
    std::fs::write(&path, format!("{config}  ProxyCommand {command}\n")).unwrap();
    world
}

fn at_gate(world: &World, name: &str) -> PathBuf {
    world.rig.path("gate").join(name)
}

/// The first connection that passed so many bytes stops from now on.
pub(crate) fn stop_after(world: &World, direction: Direction, bytes: u64) {
    let name = match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let _not_yet = std::fs::remove_file(at_gate(world, "held"));
    let new = at_gate(world, "new");
    std::fs::write(&new, bytes.to_string()).unwrap();
    std::fs::rename(new, at_gate(world, name)).unwrap();
}

/// Waits for that.
pub(crate) fn held(world: &World) -> Held {
    let held = at_gate(world, "held");
    let said = eventually("a connection that stands still", || {
        std::fs::read_to_string(&held).ok()
    });
    let ssh = said.split_ascii_whitespace().nth(1).unwrap();
    Held {
        ssh: ssh.parse().unwrap(),
    }
}

/// What stands still goes on.
pub(crate) fn open(world: &World) {
    std::fs::write(at_gate(world, "open"), "").unwrap();
}

impl Held {
    /// Kills a process of this connection.
    pub(crate) fn kill(&self, world: &World, running: &Running, victim: Victim) {
        match victim {
            Victim::Controller => running.signal("KILL"),
            Victim::Ssh => crate::rig::kill("KILL", self.ssh),
            Victim::HostsEnd => {
                let ends = programs(world, "mirror");
                assert_eq!(ends.len(), 1, "{ends:?}");
                crate::rig::kill("KILL", ends[0]);
            }
        }
    }

    /// The other connection of this labproxy: the session's own, as soon as there is one.
    pub(crate) fn other(&self, labproxy: i32) -> Option<i32> {
        let is_other = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"ssh\0")
                && line.split(|byte| *byte == 0).any(|word| word == b"-M")
                && *pid != self.ssh
        };
        let all = crate::rig::descendants(labproxy);
        all.into_iter().find(is_other)
    }

    /// Nothing of the connection is left, here or there.
    pub(crate) fn is_gone(&self, world: &World) {
        eventually("the end of ssh", || (!is_alive(self.ssh)).then_some(()));
        eventually("the end of the mirror's end", || {
            programs(world, "mirror").is_empty().then_some(())
        });
    }
}

/// Processes of the host's program in this role; in any when it is empty.
pub(crate) fn programs(world: &World, role: &str) -> Vec<i32> {
    // It is not there before a login made it.
    let there = world.rig.path("").canonicalize().unwrap().join("there");
    let all = labproxy::processes::all().map(|seen| seen.stamp.pid);
    let of_host = all.filter(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        program.starts_with(&there)
            && (role.is_empty() || words.any(|word| word == role.as_bytes()))
    });
    of_host.collect()
}

/// No process of labproxy and no socket is left on the host.
pub(crate) fn nothing_is_left(world: &World) {
    eventually("the end of everything on the host", || {
        programs(world, "").is_empty().then_some(())
    });
    let sockets = world.rig.path("there-run");
    eventually("the host's sockets to go", || {
        let open = std::fs::read_dir(&sockets).unwrap().flatten();
        let mut left = open.flat_map(|one| std::fs::read_dir(one.path()).into_iter().flatten());
        left.next().is_none().then_some(())
    });
}

/// Fills the directory here with what takes long to push.
pub(crate) fn fill(world: &World) {
    for number in 0..FILES {
        let mut bytes = vec![0; usize::try_from(FILE).unwrap()];
        let mut noise = blake3::Hasher::new();
        noise.update(&[number]);
        noise.finalize_xof().fill(&mut bytes);
        std::fs::write(here(world, &format!("f{number}")), bytes).unwrap();
    }
}

/// A session's money, which must add up: spent, still held.
pub(crate) fn money(world: &World, session: &str) -> (u64, u64) {
    let shown = world.rig.show(session);
    let number = |name: &str| shown[name].as_u64().unwrap();
    (number("spent_pico_usd"), number("held_pico_usd"))
}

/// The ledger's chain and sums hold.
pub(crate) fn ledger_holds(world: &World) {
    let done: Done = world.rig.labproxy(&["ledger", "verify"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// The mirror's part of what `session list` says.
pub(crate) fn work(world: &World, session: &str) -> Value {
    crate::place::listed(world, session)["workspace"]["work"].clone()
}
