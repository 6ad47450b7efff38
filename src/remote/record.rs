//! The record of a session's supervisor, in the session's directory: where it is reached, and
//! enough to prove later that it is gone.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::processes::{self, ProcessStamp};

use super::cgroup::Group;
use super::place::Place;

/// The record's name in the session's directory.
const NAME: &str = "supervisor";
/// While it is written.
const NEW_NAME: &str = "supervisor.new";
/// The first bytes: a record of another form proves nothing.
const FORM: &[u8] = b"labproxy supervisor 1\n";
/// Longest record: a few paths.
const RECORD_MAX: u64 = 64 * 1024;

/// Where pids mean something: one machine, one boot, one pid namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidSpace {
    /// The machine's id and name: a home directory may be shared by many machines.
    machine: String,
    boot: String,
    namespace: String,
}

impl PidSpace {
    /// This process's. What cannot be read is empty and equals nothing.
    pub fn current() -> Self {
        let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            machine: format!("{} {}", id.trim(), name.trim()),
            boot: processes::boot_id(),
            namespace: namespace.to_string_lossy().into_owned(),
        }
    }
}

/// Whether an owner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It runs.
    Lives,
    /// It is proven gone.
    Gone,
    /// It may run where we cannot look.
    Unknown,
}

/// What is written down of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The user's number.
    pub uid: u32,
    /// Where its pids mean something.
    pub space: PidSpace,
    /// The guard.
    pub guard: ProcessStamp,
    /// The supervisor.
    pub supervisor: ProcessStamp,
    /// The runtime directory.
    pub place: Place,
    /// The control group of its programs, where there is one.
    pub group: Option<Group>,
}

impl Record {
    /// Writes it into the session's directory, whole or not at all.
    pub fn write(&self, session: &OwnedFd) -> io::Result<()> {
        let bytes = postcard::to_extend(self, FORM.to_vec()).map_err(io::Error::other)?;
        match rustix::fs::unlinkat(session, NEW_NAME, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(session, NEW_NAME, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(opened).write_all(&bytes)?;
        Ok(rustix::fs::renameat(session, NEW_NAME, session, NAME)?)
    }

    /// Reads it; `None` when there is none that can be read.
    pub fn read(session: &OwnedFd) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(session, NAME, flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(opened)
            .take(RECORD_MAX)
            .read_to_end(&mut bytes)
            .ok()?;
        postcard::from_bytes(bytes.strip_prefix(FORM)?).ok()
    }

    /// Removes it.
    pub fn remove(session: &OwnedFd) -> io::Result<()> {
        match rustix::fs::unlinkat(session, NAME, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether guard or supervisor lives. Gone is only what was looked for where it would be seen:
    /// what is hidden, or runs on another machine or in another namespace, may live.
    pub fn owner(&self) -> Owner {
        let here = PidSpace::current();
        let ours = rustix::process::geteuid().as_raw();
        if self.uid != ours || here.machine.trim().is_empty() || here.machine != self.space.machine
        {
            return Owner::Unknown;
        }
        if here.boot.is_empty() || self.space.boot.is_empty() {
            return Owner::Unknown;
        }
        if here.boot != self.space.boot {
            // One machine runs one boot at a time.
            return Owner::Gone;
        }
        if here.namespace.is_empty() || here.namespace != self.space.namespace {
            return Owner::Unknown;
        }
        let each = [state(self.guard), state(self.supervisor)];
        if each.contains(&Owner::Lives) {
            Owner::Lives
        } else if each.contains(&Owner::Unknown) {
            Owner::Unknown
        } else {
            Owner::Gone
        }
    }
}

fn state(stamp: ProcessStamp) -> Owner {
    if let Some(now) = processes::seen(stamp.pid) {
        let same = now.stamp == stamp && !now.zombie;
        return if same { Owner::Lives } else { Owner::Gone };
    }
    // Not in `/proc`: gone, unless `/proc` hides it.
    match Pid::from_raw(stamp.pid).map(rustix::process::test_kill_process) {
        Some(Err(Errno::SRCH)) => Owner::Gone,
        _ => Owner::Unknown,
    }
}
