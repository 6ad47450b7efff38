//! The supervisor: it owns a session's programs, keeps what they write, serves one link after the
//! other, and ends everything when the controller says so or the lease is over.
//!
//! One thread and one `poll`: whatever is ready is done without waiting for anything else.

mod begin;
mod ending;
mod forwarding;
mod guarding;
mod links;
mod looking;
mod memory;
mod orders;
mod polling;
mod streams;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::Signal;

use crate::wire::link::ExecId;

use super::cgroup::Group;
use super::clock::Moment;
use super::escapes::Look;
use super::exec::Exec;
use super::launches::Launches;
use super::link::Link;
use super::login::Login;
use super::place::Place;
use super::private::Private;
use super::{kill, tell};

use self::ending::Ending;
use self::forwarding::Forwarding;
use self::guarding::Guarding;
use self::looking::FirstLook;
use self::memory::MemoryWatch;

/// The role `supervisor`: its line to the guard is standard input.
pub fn main() -> u8 {
    match begin::begin() {
        Ok(mut supervisor) => {
            supervisor.run();
            0
        }
        Err(why) => {
            tell(&format!("no supervisor: {why}"));
            guarding::tell_failure(&why);
            super::FAILED
        }
    }
}

/// What a session has on its host.
struct Supervisor {
    session_directory: PathBuf,
    /// The session's directory, opened.
    session: OwnedFd,
    private: Private,
    place: Place,
    group: Option<Group>,
    /// Whether each program was seen in the group.
    contained: bool,
    memory: MemoryWatch,
    /// The look at what outlives sessions, when this one began.
    first_look: FirstLook,
    /// The look when nothing of it runs any more, and when that is given up.
    last_look: Option<(Look, Moment)>,
    login: Login,
    port: u16,
    forwarding: Option<Forwarding>,
    /// Held, beside the guard's, until everything has ended.
    _lock: OwnedFd,
    /// The guard at its other end; its end is the guard's.
    line: OwnedFd,
    guarding: Guarding,
    /// One byte for each signal of ours.
    signals: UnixStream,
    listener: UnixListener,
    /// Connections that have not opened, or say their last.
    others: Vec<Link>,
    link: Option<Link>,
    /// The highest number of a link.
    newest: u64,
    lease: Duration,
    /// Since when there is no link.
    alone: Option<Moment>,
    launches: Launches,
    execs: BTreeMap<ExecId, Exec>,
    ending: Option<Ending>,
    /// Set by a signal that asks us to end.
    asked_to_end: Arc<AtomicBool>,
    guard_is_gone: bool,
    /// Everything has ended and was told.
    over: bool,
}

impl Supervisor {
    /// Runs until everything has ended.
    fn run(&mut self) {
        while !self.over {
            let ready = self.wait();
            self.serve(&ready);
            self.reap();
            let now = Moment::now();
            self.beat_to_guard(now);
            self.first_look.go_on(now);
            self.tell_news(now);
            self.judge_links(now);
            self.judge_lease(now);
            self.fill_link();
            self.flush();
            while self.go_on_ending(Moment::now()) {}
            self.flush();
        }
        // Else it would not see our end.
        self.guarding.wake();
    }

    /// Takes in children that ended: programs, and orphans that came to us.
    fn reap(&mut self) {
        let (execs, memory, group) = (&mut self.execs, &mut self.memory, self.group.as_ref());
        kill::reap(|pid, status| {
            let exec = execs.values_mut().find(|exec| exec.process() == Some(pid));
            if let Some(exec) = exec {
                let killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
                let by_kernel = killed && !exec.killed && memory.has_grown(group);
                exec.ended(status, by_kernel);
            }
        });
        if !self.execs.is_empty() {
            self.memory.refresh(self.group.as_ref(), Moment::now());
        }
    }

    /// The lease is over when no link came for so long.
    fn judge_lease(&mut self, now: Moment) {
        let over = self
            .alone
            .is_some_and(|since| now.since(since) >= self.lease);
        if over && self.ending.is_none() {
            tell("the lease is over");
            self.begin_ending(ending::Cause::Lease, ending::LEASE_GRACE, now);
        }
    }
}
