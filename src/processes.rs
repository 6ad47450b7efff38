//! Who is who among the processes of this machine: identity that survives reuse of a pid, parents,
//! descendants.

use std::collections::BTreeMap;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who it is.
    pub stamp: ProcessStamp,
    /// Its parent's pid.
    pub parent: i32,
    /// Its process group; 0 where the group's leader is outside this PID namespace.
    pub group: i32,
    /// Its session, as `setsid` makes them; 0 like the group.
    pub session: i32,
    /// Its state's letter, as in `ps`.
    pub state: char,
    /// Whether nothing of it runs any more; its parent has not looked yet.
    pub zombie: bool,
    /// Its name: bytes that it chose itself.
    pub name: Vec<u8>,
}

impl ProcessStamp {
    /// This process.
    pub fn current() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// The process that has this pid now, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        seen(pid).map(|process| process.stamp)
    }

    /// Whether exactly this process still runs; a zombie does not.
    pub fn is_alive(&self) -> bool {
        if cfg!(target_os = "linux") {
            return seen(self.pid).is_some_and(|now| now.stamp == *self && !now.zombie);
        }
        rustix::process::Pid::from_raw(self.pid)
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    /// Its chain of parents, nearest first, without itself.
    pub fn ancestors(&self) -> Vec<Self> {
        let mut chain = Vec::new();
        let mut at = seen(self.pid);
        while let Some(parent) = at.map(|process| process.parent).filter(|pid| *pid > 0) {
            at = seen(parent);
            let Some(process) = &at else { break };
            if chain.len() >= CHAIN_MAX {
                break;
            }
            chain.push(process.stamp);
        }
        chain
    }

    /// Every living process that descends from this one, as `/proc` shows them now.
    pub fn descendants(&self) -> Vec<Self> {
        let found = self.family();
        found.into_iter().map(|process| process.stamp).collect()
    }

    /// The same, with what `/proc` shows of each.
    pub fn family(&self) -> Vec<Seen> {
        let mut children: BTreeMap<i32, Vec<Seen>> = BTreeMap::new();
        for process in all().filter(|process| !process.zombie) {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = Vec::new();
        let mut open = vec![self.pid];
        while let Some(parent) = open.pop() {
            // Taken out, so that a loop in what `/proc` tells ends.
            for child in children.remove(&parent).unwrap_or_default() {
                open.push(child.stamp.pid);
                found.push(child);
            }
        }
        found.sort_by_key(|process| process.stamp);
        found
    }
}

/// Children of this process that ended and that nobody has waited for.
pub fn own_zombies() -> Vec<ProcessStamp> {
    let own = ProcessStamp::current().pid;
    all()
        .filter(|process| process.zombie && process.parent == own)
        .map(|process| process.stamp)
        .collect()
}

/// The process group of this process; none where its leader is outside this PID namespace, which
/// then has no number here.
pub fn own_group() -> Option<rustix::process::Pid> {
    let own = seen(ProcessStamp::current().pid)?;
    rustix::process::Pid::from_raw(own.group)
}

/// The random name of this boot; pids and start times mean nothing across boots.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Every process that `/proc` shows.
pub fn all() -> impl Iterator<Item = Seen> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(seen)
}

/// The process that has this pid now, if `/proc` shows one.
pub fn seen(pid: i32) -> Option<Seen> {
    // Names of processes are bytes, and an agent chooses its own.
    parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads the name, which may itself hold spaces and brackets, and the fields behind it.
fn parse_stat(pid: i32, text: &[u8]) -> Option<Seen> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let name = text.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5): state is field 3, the parent 4, the group 5, the session 6, the number of threads 20, the start 22.
    let state = fields.first()?.chars().next()?;
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Seen {
        stamp: ProcessStamp {
            pid,
            started: fields.get(19)?.parse().ok()?,
        },
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        state,
        // The first thread may end before the others: the process runs on.
        zombie: matches!(state, 'Z' | 'X') && threads <= 1,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may name itself so that a careless reader finds another parent.
    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = b"77 (a) Z 1 (\xffb) S 42 77 78 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        assert_eq!(
            parse_stat(77, text),
            Some(Seen {
                stamp: ProcessStamp {
                    pid: 77,
                    started: 98_765
                },
                parent: 42,
                group: 77,
                session: 78,
                state: 'S',
                zombie: false,
                name: b"a) Z 1 (\xffb".to_vec(),
            })
        );
        assert_eq!(parse_stat(77, b"77 (x"), None);
        assert_eq!(parse_stat(77, b"77 )x("), None);
        assert_eq!(parse_stat(77, b"77 (x) S 42"), None);
    }

    /// A process whose first thread ended runs on in the others.
    #[test]
    fn a_dead_first_thread_is_not_the_end() {
        let stat = |threads: u32| {
            format!("7 (x) Z 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 {threads} 0 98765 1 1")
        };
        assert!(parse_stat(7, stat(1).as_bytes()).unwrap().zombie);
        assert!(!parse_stat(7, stat(2).as_bytes()).unwrap().zombie);
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
