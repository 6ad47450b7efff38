//! Ending processes: all that descend from this one, however they hid.
//!
//! A descendant that called setsid or forked twice comes back to us, a subreaper, when its parent
//! ends; so what `/proc` shows below us is all of them. A process is signalled through a pidfd
//! after its start time was compared, so that a reused pid is left alone. What forks without end is
//! killed by whole process groups, which the kernel does at once.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

use crate::processes::{self, ProcessStamp, Seen};

use super::clock::Moment;

/// Between two looks at what is left; nobody is told when a grandchild ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Every descendant of this process that runs.
pub fn family() -> Vec<Seen> {
    ProcessStamp::current().family()
}

/// Sends a signal to exactly this process; gives whether it was there.
pub fn signal(process: ProcessStamp, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return false;
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(opened) => {
            process.is_alive() && rustix::process::pidfd_send_signal(&opened, signal).is_ok()
        }
        // A kernel before 5.3 has none: the pid may be reused only between these two calls.
        Err(Errno::NOSYS) => {
            process.is_alive() && rustix::process::kill_process(pid, signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Lets a process go on when it was stopped; gives whether it was.
pub fn wake(process: ProcessStamp) -> bool {
    is_stopped(process) && signal(process, Signal::CONT)
}

/// Whether exactly this process was stopped, by a signal or a tracer ('t').
pub fn is_stopped(process: ProcessStamp) -> bool {
    processes::seen(process.pid)
        .is_some_and(|now| now.stamp == process && matches!(now.state, 'T' | 't'))
}

/// Kills these processes and the groups that they are in.
pub fn kill(processes: &[Seen]) {
    // Never our own group, and not the one without a number here: that one would mean ours.
    let own = processes::own_group().map_or(0, |group| group.as_raw_nonzero().get());
    let mut groups = BTreeSet::from([0, own]);
    for process in processes {
        if groups.insert(process.group) {
            kill_group_of(process);
        }
    }
    for process in processes {
        // Gone with its group, most likely.
        signal(process.stamp, Signal::KILL);
    }
}

/// Kills a whole group. A member is stopped first: it cannot leave the group or end then, so the
/// group's number is still its own.
fn kill_group_of(member: &Seen) {
    if !signal(member.stamp, Signal::STOP) {
        return;
    }
    let still = processes::seen(member.stamp.pid)
        .is_some_and(|now| now.stamp == member.stamp && now.group == member.group);
    if let Some(group) = Pid::from_raw(member.group).filter(|_| still) {
        // Some of it may belong to another user, by setuid; the rest is killed all the same.
        let _some = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Takes in every child that has ended.
pub fn reap(mut ended: impl FnMut(Pid, WaitStatus)) {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        ended(pid, status);
    }
}

/// Kills every descendant; gives those that are still there after `limit`.
pub fn end_all(limit: Duration) -> Vec<Seen> {
    let until = Moment::now().after(limit);
    loop {
        reap(|_, _| {});
        let left = family();
        if left.is_empty() || Moment::now() >= until {
            return left;
        }
        kill(&left);
        std::thread::sleep(LOOK_EVERY);
    }
}
