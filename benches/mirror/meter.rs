//! What something costs: wall time, processor time of everything that we started, bytes on loopback.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// Of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds.
    pub wall: f64,
    /// Seconds of processors: this process, ssh, sshd and what runs behind it.
    pub cpu: f64,
    /// Bytes on the wire, both ways, heads of packets included.
    pub wire: f64,
}

/// Makes whatever loses its parent ours, so that its time is counted.
pub fn adopt() {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).unwrap();
}

/// Does it, and says what it cost.
pub fn cost(work: impl FnOnce()) -> Cost {
    let (cpu, wire, start) = (cpu(), wire(), Instant::now());
    work();
    let wall = start.elapsed().as_secs_f64();
    Cost {
        wall,
        cpu: self::cpu() - cpu,
        wire: self::wire() - wire,
    }
}

/// Bytes that loopback carried in this namespace.
fn wire() -> f64 {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = table.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == "lo").then_some(numbers)
    });
    let first = line.unwrap().split_whitespace().next();
    first.unwrap().parse().unwrap()
}

/// Seconds that this process and all below it have used; those that ended count with their parents.
fn cpu() -> f64 {
    let mut parents = HashMap::new();
    let mut used = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap_or(0);
        parents.insert(pid, fields[1].parse::<u32>().unwrap());
        used.insert(pid, (11..15).map(number).sum::<u64>());
    }
    let own = std::process::id();
    let is_ours = |mut pid: u32| {
        while pid != own {
            match parents.get(&pid) {
                Some(parent) if *parent > 0 => pid = *parent,
                _ => return false,
            }
        }
        true
    };
    let ticks: u64 = used
        .iter()
        .filter(|(pid, _)| is_ours(**pid))
        .map(|(_, ticks)| ticks)
        .sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
