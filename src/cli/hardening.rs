//! What labproxy does to itself before it reads anything: no core dump, no reading of its memory.
//!
//! It is a fence against other programs of the same user, not a wall: `docs/threats.md`.

use rustix::process::{Resource, Rlimit};

/// The limits that were in force before, for what labproxy starts: its children may dump core as
/// they please.
#[derive(Clone, Debug)]
pub struct Before {
    /// The limit of core dumps.
    pub core: Rlimit,
}

/// Sets the soft limit of core dumps to nothing and makes the process non-dumpable, which also
/// closes `/proc/PID/environ` and `/proc/PID/mem` to other processes of the user.
///
/// Both are calls that a process may always make on itself; where a system refuses them all the
/// same, the command goes on without the fence.
pub fn harden() -> Before {
    let core = rustix::process::getrlimit(Resource::Core);
    let none = Rlimit {
        current: Some(0),
        maximum: core.maximum,
    };
    let _limited = rustix::process::setrlimit(Resource::Core, none);
    #[cfg(target_os = "linux")]
    let _closed =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    Before { core }
}
