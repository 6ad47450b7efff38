//! A control group for a session's programs, where this user may make one: what is in it can be
//! killed at once, whatever it forks, and the kernel counts there what it ended for want of memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};

use crate::wire::bytes::ByteString;

use super::clock::Moment;

/// Where processes are moved by writing their number.
const PROCESSES: &str = "cgroup.procs";
/// Where writing 1 kills all.
const KILL: &str = "cgroup.kill";

/// How long what was killed may take to leave a group.
const REMOVE_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks at that, of which nothing tells.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A control group (version 2) that we made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group(ByteString);

impl Group {
    /// Makes one below our own, if that can be done.
    pub fn make() -> Option<Self> {
        let own = own_group(Hierarchy::Second)?;
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).ok()?;
        let name = format!("labproxy-{:016x}", u64::from_le_bytes(random));
        let path = own.join(name);
        fs::create_dir(&path).ok()?;
        let group = Self(ByteString::from(path.as_os_str()));
        // Without these it is of no use.
        if path.join(PROCESSES).is_file() && path.join(KILL).is_file() {
            return Some(group);
        }
        group.remove();
        None
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        self.0.to_path_buf()
    }

    /// Moves this process into it.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.path().join(PROCESSES), "0")
    }

    /// Whether a process is in it.
    pub fn holds(&self, pid: u32) -> bool {
        let members = fs::read_to_string(self.path().join(PROCESSES)).unwrap_or_default();
        let pid = pid.to_string();
        members.lines().any(|line| line == pid)
    }

    /// Kills all that is in it.
    pub fn kill(&self) {
        // Gone is as good.
        let _gone = fs::write(self.path().join(KILL), "1");
    }

    /// Removes it, when it is empty; what waits for a device keeps it.
    pub fn remove(&self) {
        let until = Moment::now().after(REMOVE_LIMIT);
        // What was killed leaves it a little later.
        while fs::remove_dir(self.path()).is_err_and(|error| is_busy(&error))
            && Moment::now() < until
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// The two kinds of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1, the memory controller's.
    Memory,
    /// Version 2.
    Second,
}

/// The directory of this process's own group.
fn own_group(hierarchy: Hierarchy) -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = path_in(&groups, hierarchy)?;
    let (root, mount) = mounts.lines().find_map(|line| mount_of(line, hierarchy))?;
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mount).join(below))
}

/// A group's path in its hierarchy: `HIERARCHY:CONTROLLERS:PATH`, as in cgroups(7).
fn path_in(groups: &str, hierarchy: Hierarchy) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let found = match hierarchy {
            Hierarchy::Memory => controllers.split(',').any(|name| name == "memory"),
            Hierarchy::Second => controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// Root and place of a mount of this hierarchy: fields 4 and 5 of a line of mountinfo, as in
/// proc(5); what follows `-` are its type, source and options.
fn mount_of(line: &str, hierarchy: Hierarchy) -> Option<(&str, &str)> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(3);
    let (root, place) = (front.next()?, front.next()?);
    let mut back = back.split(' ');
    let (kind, options) = (back.next()?, back.nth(1)?);
    let found = match hierarchy {
        Hierarchy::Memory => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
        Hierarchy::Second => kind == "cgroup2",
    };
    found.then_some((root, place))
}

/// How often the kernel has ended a process for want of memory, counted as near to the session's
/// programs as it can be: in their group, in ours, or on the whole machine.
pub fn out_of_memory_kills(group: Option<&Group>) -> Option<u64> {
    let ours = || own_group(Hierarchy::Second);
    let files = [
        group.map(|group| group.path().join("memory.events")),
        ours().map(|path| path.join("memory.events")),
        own_group(Hierarchy::Memory).map(|path| path.join("memory.oom_control")),
        Some(PathBuf::from("/proc/vmstat")),
    ];
    let texts = files.into_iter().flatten().map(fs::read_to_string);
    texts.flatten().find_map(|text| count_in(&text))
}

fn count_in(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as systemd and containers make them.
    #[test]
    fn groups_and_mounts_are_read() {
        let groups = "9:name=systemd:/\n4:cpu,memory:/a\n0::/user.slice/x.scope\n";
        assert_eq!(path_in(groups, Hierarchy::Memory), Some("/a"));
        assert_eq!(
            path_in(groups, Hierarchy::Second),
            Some("/user.slice/x.scope")
        );
        assert_eq!(path_in("1:cpu:/\n", Hierarchy::Second), None);
        let second =
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let memory = "37 27 0:31 /b /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        assert_eq!(
            mount_of(second, Hierarchy::Second),
            Some(("/", "/sys/fs/cgroup"))
        );
        assert_eq!(mount_of(second, Hierarchy::Memory), None);
        assert_eq!(
            mount_of(memory, Hierarchy::Memory),
            Some(("/b", "/sys/fs/cgroup/memory"))
        );
        assert_eq!(mount_of("nonsense", Hierarchy::Memory), None);
    }

    /// The count is one word among others, in each of the files that have it.
    #[test]
    fn kills_are_counted_where_they_are_told() {
        assert_eq!(
            count_in("low 0\noom 2\noom_kill 3\noom_group_kill 1\n"),
            Some(3)
        );
        assert_eq!(
            count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            Some(7)
        );
        assert_eq!(count_in("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
