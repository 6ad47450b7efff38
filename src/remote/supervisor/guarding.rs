//! The heartbeat to the guard, and the look whether the guard still runs: one that was stopped would
//! hold the lock for ever, and would not see our end.

use std::io;

use rustix::net::SendFlags;
use rustix::process::Signal;

use crate::processes::ProcessStamp;
use crate::remote::clock::Moment;
use crate::remote::guard::{BEAT, FAILURE, MISSED_MAX};
use crate::remote::{kill, tell};

use super::Supervisor;

/// What is known of the guard.
#[derive(Debug)]
pub(super) struct Guarding {
    guard: ProcessStamp,
    /// When it is told and looked at again.
    pub(super) due: Moment,
    /// Looks, one after the other, at which it was stopped.
    stopped: u32,
}

impl Guarding {
    pub(super) fn new(guard: ProcessStamp) -> Self {
        Self {
            guard,
            due: Moment::now(),
            stopped: 0,
        }
    }

    /// Lets it go on when it was stopped; gives whether it was.
    pub(super) fn wake(&self) -> bool {
        kill::wake(self.guard)
    }
}

/// Tells the guard why there is no supervisor.
pub(super) fn tell_failure(why: &io::Error) {
    let bytes = [FAILURE, why.to_string().as_bytes()].concat();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // A guard that is gone has nobody to tell.
    let _unheard = rustix::net::send(rustix::stdio::stdin(), &bytes, flags);
}

impl Supervisor {
    /// Tells the guard that we run, and looks whether it does. One that stays stopped is killed,
    /// and everything ends as on its death.
    pub(super) fn beat_to_guard(&mut self, now: Moment) {
        if self.guard_is_gone || now < self.guarding.due {
            return;
        }
        self.guarding.due = now.after(BEAT);
        // A line that is full or closed tells nothing that is not seen otherwise.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _unheard = rustix::net::send(&self.line, b".", flags);
        if !self.guarding.wake() {
            self.guarding.stopped = 0;
            return;
        }
        self.guarding.stopped += 1;
        if self.guarding.stopped >= MISSED_MAX {
            tell("the guard is stopped again and again");
            kill::signal(self.guarding.guard, Signal::KILL);
        }
    }
}
