//! Waiting: for all that the supervisor has open, and until the next moment that something is due.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::remote::clock::{Moment, patience};
use crate::remote::exec::Exec;
use crate::remote::link::Link;
use crate::remote::tell;
use crate::wire::link::{ExecId, LAUNCHES_MAX, WINDOW};

use super::Supervisor;
use super::forwarding::Forwarding;
use super::streams::CHUNK;

/// Bytes of output that are held on the disk, all together; then the programs wait.
const SPOOL_MAX: usize = 256 * 1024 * 1024;
/// What every output may hold of that, whatever the others hold: a reader that does not read stops its
/// own program and no other.
const SHARE: usize = 192 * 1024;
/// Outputs of a program.
const OUTPUTS: usize = 2;
/// What outputs may hold beyond their shares, all together; each may be read once more when it is
/// full.
const COMMON: usize = SPOOL_MAX - LAUNCHES_MAX * OUTPUTS * (SHARE + CHUNK);

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// How much an output that holds `held` bytes may hold, when all outputs hold `beyond` bytes more than
/// their shares together.
fn room(held: u64, beyond: u64, is_attached: bool) -> u64 {
    let most = if is_attached {
        WINDOW
    } else {
        bytes(SPOOL_MAX)
    };
    (held.max(bytes(SHARE)) + bytes(COMMON).saturating_sub(beyond)).min(most)
}

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// The guard is gone.
    Guard,
    /// A signal came.
    Signal,
    /// A link comes.
    Listener,
    /// One of the other links.
    Other(usize),
    /// The link can be read.
    Link,
    /// A launch became its program or cannot.
    Launch(ExecId),
    /// The forwarder ended.
    Forwarder,
    /// The forward was tried.
    Probe,
    /// A look at what outlives the session is over.
    Look,
    /// A program takes input, or no more.
    Stdin(ExecId),
    /// A program's output, by its place.
    Output(ExecId, usize),
}

impl Supervisor {
    /// Waits until something is ready or due.
    pub(super) fn wait(&self) -> Vec<Ready> {
        let mut asked = vec![
            (Ready::Guard, PollFd::new(&self.line, PollFlags::IN)),
            (Ready::Signal, PollFd::new(&self.signals, PollFlags::IN)),
            (Ready::Listener, PollFd::new(&self.listener, PollFlags::IN)),
        ];
        if self.guard_is_gone {
            asked.remove(0);
        }
        for (at, link) in self.others.iter().enumerate() {
            asked.push((Ready::Other(at), PollFd::new(link, link.wanted())));
        }
        if let Some(link) = &self.link {
            asked.push((Ready::Link, PollFd::new(link, link.wanted())));
        }
        self.ask_forwarder(&mut asked);
        let last = self.last_look.as_ref().map(|(look, _)| look);
        for look in self.first_look.look().into_iter().chain(last) {
            asked.push((Ready::Look, PollFd::new(look, PollFlags::IN)));
        }
        self.ask_execs(&mut asked);
        let (what, mut polled): (Vec<Ready>, Vec<PollFd<'_>>) = asked.into_iter().unzip();
        let now = Moment::now();
        let wait = self.next(now).map(|moment| patience(now, moment));
        match poll(&mut polled, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => tell(&format!("poll: {error}")),
        }
        let happened = polled.iter().map(|asked| !asked.revents().is_empty());
        what.into_iter()
            .zip(happened)
            .filter_map(|(what, happened)| happened.then_some(what))
            .collect()
    }

    fn ask_forwarder<'a>(&'a self, asked: &mut Vec<(Ready, PollFd<'a>)>) {
        let Some(forwarding) = &self.forwarding else {
            return;
        };
        // One that cannot run is not asked again and again.
        if forwarding.may_restart() <= Moment::now() {
            let ended = forwarding.forwarder.ended();
            let asks = PollFd::from_borrowed_fd(ended, PollFlags::IN);
            asked.push((Ready::Forwarder, asks));
        }
        if let Some(probe) = &forwarding.probe {
            asked.push((Ready::Probe, PollFd::new(probe, PollFlags::IN)));
        }
    }

    fn ask_execs<'a>(&'a self, asked: &mut Vec<(Ready, PollFd<'a>)>) {
        let outputs = self.execs.values().flat_map(|exec| &exec.outputs);
        let beyond = outputs
            .map(|output| output.held().saturating_sub(bytes(SHARE)))
            .sum();
        for (id, exec) in &self.execs {
            if let Some(launching) = exec.launching() {
                let asks = PollFd::from_borrowed_fd(launching, PollFlags::IN);
                asked.push((Ready::Launch(*id), asks));
            }
            if let Some((pipe, wanted)) = exec.stdin.wanted() {
                asked.push((Ready::Stdin(*id), PollFd::new(pipe, wanted)));
            }
            for (at, output) in exec.outputs.iter().enumerate() {
                let room = room(output.held(), beyond, self.is_attached());
                if let Some(pipe) = output.wanted(room) {
                    asked.push((Ready::Output(*id, at), PollFd::new(pipe, PollFlags::IN)));
                }
            }
        }
    }

    /// When something is due without any news; `None`: never.
    fn next(&self, now: Moment) -> Option<Moment> {
        let links = self.others.iter().chain(&self.link).map(Link::next);
        let lease = self.alone.map(|since| since.after(self.lease));
        let lease = lease.filter(|_| self.ending.is_none());
        let execs = self.execs.values().filter_map(Exec::next);
        let ending = self.ending.as_ref().map(|ending| ending.next(now));
        let forwarding = self.forwarding.as_ref().map(Forwarding::may_restart);
        let forwarding = forwarding.filter(|moment| *moment > now);
        let beat = (!self.guard_is_gone).then_some(self.guarding.due);
        let all = links.chain(lease).chain(execs).chain(ending);
        all.chain(forwarding).chain(beat).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is held when every output always has more to give, read a chunk at a time in turn.
    fn full(outputs: usize, is_attached: bool) -> Vec<u64> {
        let chunk = bytes(CHUNK);
        let mut held = vec![0_u64; outputs];
        loop {
            // All that is ready in one round was judged by what was held before it.
            let beyond = held
                .iter()
                .map(|held| held.saturating_sub(bytes(SHARE)))
                .sum();
            let wanted: Vec<bool> = held
                .iter()
                .map(|held| *held < room(*held, beyond, is_attached))
                .collect();
            if !wanted.contains(&true) {
                return held;
            }
            for (held, _) in held.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
                *held += chunk;
            }
        }
    }

    /// Whatever runs, the disk holds no more than is said; each program gets its share, and one alone
    /// most of it.
    #[test]
    fn the_spools_are_bounded_together() {
        let most = LAUNCHES_MAX * OUTPUTS;
        for is_attached in [true, false] {
            for outputs in [1, 2, 40, most] {
                let held = full(outputs, is_attached);
                let sum: u64 = held.iter().sum();
                assert!(sum <= bytes(SPOOL_MAX), "{outputs} hold {sum}");
                assert!(held.iter().all(|held| *held >= bytes(SHARE)), "{outputs}");
            }
        }
        assert!(full(1, false)[0] > bytes(SPOOL_MAX) / 2);
        assert!(full(1, true)[0] <= WINDOW + bytes(CHUNK));
    }
}
