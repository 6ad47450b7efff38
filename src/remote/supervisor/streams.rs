//! What is ready is served: programs' streams, signals, the guard's end.

use std::io::Read as _;

use crate::remote::clock::Moment;
use crate::remote::exec::Exec;
use crate::remote::tell;
use crate::wire::frame::CHUNK_MAX;
use crate::wire::link::{FromHost, Refusal};

use super::Supervisor;
use super::ending::{Cause, LEASE_GRACE};
use super::polling::Ready;

/// Bytes of an output that are read, and sent, at once.
pub(super) const CHUNK: usize = 64 * 1024;
const _: () = assert!(CHUNK <= CHUNK_MAX, "a chunk fits a frame");

impl Supervisor {
    /// Serves what is ready.
    pub(super) fn serve(&mut self, ready: &[Ready]) {
        let mut buffer = vec![0; CHUNK];
        // From the last: an opened link leaves its place among the others.
        for ready in ready.iter().rev() {
            match *ready {
                Ready::Guard => {
                    self.guard_is_gone = true;
                    tell("the guard is gone");
                    self.begin_ending(Cause::Guard, LEASE_GRACE, Moment::now());
                }
                Ready::Signal => self.serve_signal(),
                Ready::Listener => self.accept(),
                Ready::Other(at) => self.serve_other(at),
                Ready::Link => self.serve_link(),
                Ready::Launch(id) => {
                    let news = self.execs.get_mut(&id).and_then(Exec::look);
                    self.look_at_group(news.as_ref());
                    if let Some(news) = news {
                        self.say(&news);
                    }
                }
                Ready::Forwarder => self.restart_forwarder(Moment::now()),
                Ready::Probe => self.serve_probe(),
                // Whoever waits for it looks in its own turn.
                Ready::Look => {}
                Ready::Stdin(id) => {
                    if let Some(exec) = self.execs.get_mut(&id) {
                        exec.stdin.pump();
                    }
                }
                Ready::Output(id, at) => {
                    let exec = self.execs.get_mut(&id);
                    if let Some(output) = exec.and_then(|exec| exec.outputs.get_mut(at)) {
                        output.read(self.private.opened(), &mut buffer);
                    }
                }
            }
        }
    }

    /// A program that started is in the group, if there is one, or the session is not contained.
    fn look_at_group(&mut self, news: Option<&FromHost<'_>>) {
        if let (Some(FromHost::Started { pid, .. }), Some(group)) = (news, &self.group) {
            self.contained &= group.holds(*pid);
        }
    }

    fn serve_signal(&mut self) {
        let mut bytes = [0; 64];
        // How many came says nothing: children are looked at all, and one of these is enough.
        while self.signals.read(&mut bytes).is_ok_and(|length| length > 0) {}
        if self.asked_to_end.load(std::sync::atomic::Ordering::Relaxed) {
            self.begin_ending(Cause::Signal, LEASE_GRACE, Moment::now());
        }
    }

    /// Tells what is new of programs: their input, their end.
    pub(super) fn tell_news(&mut self, now: Moment) {
        let ids: Vec<_> = self.execs.keys().copied().collect();
        // An end that our own end made is not the program's: the last message says whose it was.
        let is_ours = self
            .ending
            .as_ref()
            .is_some_and(|ending| ending.cause.killed().is_some());
        for id in ids {
            let Some(exec) = self.execs.get_mut(&id) else {
                continue;
            };
            for output in &mut exec.outputs {
                output.unstick(self.private.opened());
            }
            let mut news = exec.stdin_news();
            news.extend(exec.look());
            news.extend(exec.end_message(now).filter(|_| !is_ours));
            let taken = (!exec.stdin.is_closed()).then(|| exec.stdin.taken());
            self.launches.stdin_taken(id, taken);
            for message in news {
                self.say(&message);
            }
        }
    }

    /// Gives the link outputs, a chunk of each in turn, while it has room.
    pub(super) fn fill_link(&mut self) {
        let mut buffer = vec![0; CHUNK];
        let mut more = self.is_attached();
        while more {
            more = false;
            for (id, exec) in &mut self.execs {
                for output in &mut exec.outputs {
                    let Some(link) = self.link.as_mut().filter(|link| link.has_room()) else {
                        return;
                    };
                    match output.next(&mut buffer) {
                        Ok(None) => {}
                        Ok(Some((offset, length))) => {
                            let bytes = buffer.get(..length).unwrap_or_default();
                            more = true;
                            // A chunk fits a frame, and there is room.
                            let _queued = link.send(&FromHost::Output {
                                exec: *id,
                                output: output.kind,
                                offset,
                                bytes: bytes.into(),
                            });
                        }
                        Err(error) => {
                            let what = format!("output cannot be read back: {error}");
                            tell(&what);
                            self.drop_link(Some(Refusal::Failed { what }));
                            return;
                        }
                    }
                }
            }
        }
    }
}
