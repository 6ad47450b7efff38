//! Who is who among the processes of this machine: identity that survives reuse of a pid, parents,
//! descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::{Deserialize, Serialize};

/// Longest chain of parents that is walked; deeper than any real one, so a loop in what `/proc`
/// tells cannot hang a command.
const CHAIN_MAX: usize = 4_096;

/// One process: its pid and when it started, so that a reused pid is somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessStamp {
    /// Its pid.
    pub pid: i32,
    /// When it started, in clock ticks since boot; 0 where the system does not tell.
    pub started: u64,
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    started: u64,
    zombie: bool,
}

impl ProcessStamp {
    /// This process.
    pub fn current() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// The process that has this pid now, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        stat_of(pid).map(|stat| Self {
            pid,
            started: stat.started,
        })
    }

    /// Whether exactly this process still runs; a zombie does not.
    pub fn is_alive(&self) -> bool {
        if cfg!(target_os = "linux") {
            return stat_of(self.pid)
                .is_some_and(|stat| stat.started == self.started && !stat.zombie);
        }
        rustix::process::Pid::from_raw(self.pid)
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    /// Its chain of parents, nearest first, without itself.
    pub fn ancestors(&self) -> Vec<Self> {
        let mut chain = Vec::new();
        let mut at = stat_of(self.pid);
        while let Some(parent) = at.map(|stat| stat.parent).filter(|pid| *pid > 0) {
            at = stat_of(parent);
            let Some(stat) = at else { break };
            if chain.len() >= CHAIN_MAX {
                break;
            }
            chain.push(Self {
                pid: parent,
                started: stat.started,
            });
        }
        chain
    }

    /// Every living process that descends from this one, as `/proc` shows them now.
    pub fn descendants(&self) -> Vec<Self> {
        let mut children: BTreeMap<i32, Vec<Self>> = BTreeMap::new();
        for (pid, stat) in all() {
            if !stat.zombie {
                children.entry(stat.parent).or_default().push(Self {
                    pid,
                    started: stat.started,
                });
            }
        }
        let mut found = BTreeSet::new();
        let mut open = vec![self.pid];
        while let Some(parent) = open.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                if found.insert(child) {
                    open.push(child.pid);
                }
            }
        }
        found.into_iter().collect()
    }
}

/// Children of this process that ended and that nobody has waited for.
pub(super) fn own_zombies() -> Vec<ProcessStamp> {
    let own = ProcessStamp::current().pid;
    all()
        .filter(|(_, stat)| stat.zombie && stat.parent == own)
        .map(|(pid, stat)| ProcessStamp {
            pid,
            started: stat.started,
        })
        .collect()
}

/// The random name of this boot; pids and start times mean nothing across boots.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn all() -> impl Iterator<Item = (i32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| stat_of(pid).map(|stat| (pid, stat)))
}

fn stat_of(pid: i32) -> Option<Stat> {
    // Names of processes are bytes, and an agent chooses its own.
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&text))
}

/// Reads the fields behind the name, which may itself hold spaces and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5): state is field 3, the parent 4, the start time 22.
    Some(Stat {
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may name itself so that a careless reader finds another parent.
    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "77 (a) Z 1 (b) S 42 77 77 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        assert_eq!(
            parse_stat(text),
            Some(Stat {
                parent: 42,
                started: 98_765,
                zombie: false
            })
        );
        assert_eq!(parse_stat("77 (x"), None);
        assert_eq!(parse_stat("77 (x) S 42"), None);
    }

    /// This test's process is alive, descends from its parents, and a changed start time is nobody.
    #[test]
    fn a_stamp_is_one_process_only() {
        let own = ProcessStamp::current();
        assert!(own.is_alive());
        assert!(!own.ancestors().is_empty());
        let reused = ProcessStamp {
            started: own.started + 1,
            ..own
        };
        assert!(!reused.is_alive());
    }

    /// A child is among the descendants while it runs, and this process among its ancestors.
    #[test]
    fn a_child_is_found_from_both_ends() {
        let own = ProcessStamp::current();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let stamp = ProcessStamp::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(own.descendants().contains(&stamp));
        assert!(stamp.ancestors().contains(&own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!stamp.is_alive());
    }
}
