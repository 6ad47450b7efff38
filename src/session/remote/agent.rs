//! An agent on the host, as the main loop of a session sees it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;

use super::screen::{self, RawMode};
use super::watcher::Watcher;
use crate::session::agent::{AgentChange, AgentEnd, Loss};
use crate::tunnel::exec::{RemoteExec, Status};
use crate::wire::link::{ExecEnd, ExecSignal};

/// A running agent.
#[derive(Debug)]
pub struct RemoteAgent {
    exec: RemoteExec,
    host: String,
    raw: Option<RawMode>,
    resized: Option<unix::Signal>,
    watcher: Arc<Watcher>,
    losses: watch::Receiver<Option<Duration>>,
    end: Option<AgentEnd>,
}

impl RemoteAgent {
    pub(super) fn new(
        exec: RemoteExec,
        host: &str,
        raw: Option<RawMode>,
        watcher: Arc<Watcher>,
    ) -> io::Result<Self> {
        let resized = match raw {
            Some(_) => Some(unix::signal(SignalKind::window_change())?),
            None => None,
        };
        Ok(Self {
            exec,
            host: host.to_owned(),
            raw,
            resized,
            losses: watcher.losses(),
            watcher,
            end: None,
        })
    }

    /// Resolves when [`Self::change`] has something to tell.
    pub async fn changed(&mut self) {
        loop {
            tokio::select! {
                _end = self.exec.ended() => return,
                Ok(()) = self.losses.changed() => {
                    // Keys cannot reach the agent's terminal now: those that signal are ours.
                    if let Some(raw) = &self.raw {
                        raw.signal_us(self.losses.borrow_and_update().is_some());
                    }
                    return;
                }
                () = resized(self.resized.as_mut()) => {
                    if let Some(size) = screen::size() {
                        self.exec.resize(size);
                    }
                }
            }
        }
    }

    /// What happened to it, without waiting.
    pub fn change(&mut self) -> Option<AgentChange> {
        if let Some(end) = self.end {
            return Some(AgentChange::Ended(end));
        }
        let end = match self.exec.status() {
            Status::Ended(end) => self.ended(end),
            Status::Lost(error) => {
                self.leave_terminal();
                let failure = error.failure(&self.host);
                crate::report::tell(&failure.render(crate::table::Style::Plain));
                AgentEnd::Lost(if error.is_host_killed() {
                    Loss::Host
                } else {
                    Loss::Link
                })
            }
            // A start was awaited before.
            Status::NotStarted(_) => AgentEnd::Lost(Loss::Link),
            Status::Starting | Status::Running { .. } => return None,
        };
        self.leave_terminal();
        self.end = Some(end);
        Some(AgentChange::Ended(end))
    }

    fn ended(&mut self, end: ExecEnd) -> AgentEnd {
        match end {
            ExecEnd::Exited(status) => AgentEnd::Exited(i32::from(status)),
            ExecEnd::Signaled {
                signal,
                out_of_memory,
            } => {
                self.leave_terminal();
                if out_of_memory {
                    self.watcher.tell(&format!(
                        "{} ran out of memory: its kernel ended the agent",
                        self.host
                    ));
                }
                AgentEnd::Signaled(i32::from(signal))
            }
        }
    }

    /// Whether its host cannot be reached.
    pub fn is_out_of_reach(&self) -> bool {
        self.end.is_none() && self.watcher.is_lost()
    }

    /// Gives up waiting for it, as its host cannot be reached, and says what becomes of it.
    pub fn give_up(&mut self) {
        self.leave_terminal();
        self.watcher.tell_unreached();
    }

    /// The terminal is the shell's again.
    fn leave_terminal(&mut self) {
        self.raw = None;
        self.watcher.raw(false);
    }

    /// Sends it a signal; to its process group, and with a terminal to the group in front.
    pub fn signal(&self, signal: Signal) {
        if self.end.is_some() {
            return;
        }
        let passed = match signal {
            Signal::INT => ExecSignal::Interrupt,
            Signal::QUIT => ExecSignal::Quit,
            Signal::TERM => ExecSignal::Terminate,
            Signal::HUP => ExecSignal::HangUp,
            Signal::CONT => ExecSignal::Continue,
            _ => ExecSignal::Kill,
        };
        self.exec.signal(passed);
    }
}

async fn resized(signal: Option<&mut unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}
