//! Programs under test as child processes: what they use, and how they end.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child process and its descendants; ended when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self {
            child: command.spawn()?,
        })
    }

    /// The child, to take its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Processor time used so far by the living threads of it and of its living descendants, to
    /// the nanosecond: `stat` counts in hundredths of a second, too coarse for a short run.
    pub fn cpu(&self) -> Duration {
        let threads = self.family().into_iter().flat_map(|pid| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten();
            tasks.flatten().map(|task| task.path().join("schedstat"))
        });
        let nanos = threads.filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Resident memory of it and its living descendants in bytes: all of it, and the part that is
    /// its own (heap and stacks, not the mapped program).
    pub fn memory(&self) -> Memory {
        let mut sum = Memory::default();
        for pid in self.family() {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            sum.resident += kib(&text, "VmRSS:") * 1024;
            sum.own += kib(&text, "RssAnon:") * 1024;
        }
        sum
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end and waits for that, at most 20 s; then ends it and its descendants at once.
    pub fn end(&mut self) {
        let family = self.family();
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.alive() {
            for pid in family {
                signal(pid, Signal::KILL);
            }
            drop(self.child.wait());
        }
    }

    fn family(&self) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if let Some(parent) = parent(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut family = vec![self.child.id()];
        let mut next = 0;
        while let Some(pid) = family.get(next).copied() {
            family.extend(children.remove(&pid).unwrap_or_default());
            next += 1;
        }
        family
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.alive() {
            self.end();
        }
    }
}

/// Resident memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All of it.
    pub resident: u64,
    /// The anonymous part.
    pub own: u64,
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold blanks and brackets: fields are counted from its last bracket.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    fields.get(1)?.parse().ok()
}

fn kib(status: &str, key: &str) -> u64 {
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}
