//! The main loop of a session: the agent, the signals, the end.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::agent::{AgentChange, AgentEnd};
use super::live::Live;
use super::orphans::Orphans;
use super::runner::Runner;
use super::signals::{Asked, Signals, terminal_signals_us};

/// How long an agent that was told to end, and requests in flight, are waited for.
pub const GRACE: Duration = Duration::from_secs(15);

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The agent ended by itself.
    AgentExit(AgentEnd),
    /// The session was told to end; the agent's end, when there was one.
    Stopped {
        /// How the agent ended.
        agent: Option<AgentEnd>,
        /// When the grace of requests in flight is over; past after a second signal.
        until: Instant,
    },
    /// The session was told to end while the agent's host could not be reached.
    Unreached {
        /// The exit status: 128 and the signal's number.
        status: u8,
        /// As in `Stopped`.
        until: Instant,
    },
}

impl Ending {
    /// How the agent ended, when there was one.
    pub fn agent(&self) -> Option<AgentEnd> {
        match self {
            Self::AgentExit(end) => Some(*end),
            Self::Stopped { agent, .. } => *agent,
            Self::Unreached { .. } => None,
        }
    }
}

/// The loop's own state.
struct Loop<'a> {
    live: &'a Live,
    agent: Option<&'a mut Runner>,
    stopped_by_job_control: bool,
    /// When the grace is over, once the session was told to end.
    until: Option<Instant>,
    /// What told it to.
    asked: Asked,
    killed: bool,
    orphans: Orphans,
}

/// Runs until the agent has ended or the session was told to end.
pub async fn run(live: &Live, agent: Option<&mut Runner>, signals: &mut Signals) -> Ending {
    let mut state = Loop {
        live,
        agent,
        stopped_by_job_control: false,
        until: None,
        asked: Asked::Terminate,
        killed: false,
        orphans: Orphans::default(),
    };
    let stop = live.stop_requested();
    tokio::pin!(stop);
    loop {
        // The agent may have ended before its SIGCHLD was waited for.
        if let Some(ending) = state.look() {
            return ending;
        }
        tokio::select! {
            asked = signals.next() => state.signal(asked),
            () = changed(state.agent.as_deref_mut()) => {}
            // A signal that ends the session says so to the control socket as well: once is enough.
            () = &mut stop, if state.until.is_none() => state.end(Asked::Terminate),
            () = expired(state.until.filter(|_| !state.killed)) => state.kill(),
        }
    }
}

async fn changed(agent: Option<&mut Runner>) {
    match agent {
        Some(agent) => agent.changed().await,
        None => std::future::pending().await,
    }
}

async fn expired(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl Loop<'_> {
    /// Looks at the agent; the ending when there is nothing left to wait for.
    fn look(&mut self) -> Option<Ending> {
        let Some(agent) = self.agent.as_deref_mut() else {
            return self
                .until
                .map(|until| Ending::Stopped { agent: None, until });
        };
        while let Some(change) = agent.change() {
            match change {
                AgentChange::Stopped => {
                    self.stopped_by_job_control = true;
                    // Stopped by itself and not with us by the terminal: the shell waits for us, so
                    // it gets the terminal back only when we stop too. It continues the group.
                    if terminal_signals_us() {
                        let _stopped_until_continued =
                            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                    }
                }
                AgentChange::Continued => self.stopped_by_job_control = false,
                AgentChange::Ended(end) => {
                    self.live.agent_ended();
                    return Some(match self.until {
                        None => Ending::AgentExit(end),
                        Some(until) => Ending::Stopped {
                            agent: Some(end),
                            until,
                        },
                    });
                }
            }
        }
        // A link that comes back in time is still used to end everything there.
        let until = self.until.filter(|_| agent.is_out_of_reach())?;
        agent.give_up();
        self.live.agent_ended();
        Some(Ending::Unreached {
            status: interrupted(self.asked),
            until,
        })
    }

    fn signal(&mut self, asked: Asked) {
        match asked {
            Asked::Child => self
                .orphans
                .reap(self.agent.as_deref().and_then(Runner::stamp)),
            Asked::Continue => self.go_on(),
            Asked::Interrupt | Asked::Quit => match &self.agent {
                None => self.end(asked),
                Some(agent) if agent.is_out_of_reach() => self.end(asked),
                // From the terminal it has the signal already, and decides what it means.
                Some(agent) if !agent.hears_terminal() => agent.signal(asked.raw()),
                Some(_) => {}
            },
            Asked::Terminate | Asked::HangUp => self.end(asked),
        }
    }

    /// Passes SIGCONT on when only we got it.
    fn go_on(&mut self) {
        if self.stopped_by_job_control
            && let Some(agent) = &self.agent
        {
            agent.signal(Signal::CONT);
        }
    }

    /// Begins the end, or, the second time, ends at once.
    fn end(&mut self, asked: Asked) {
        if self.until.is_some() {
            self.until = Some(Instant::now());
            self.kill();
            return;
        }
        self.until = Some(Instant::now() + GRACE);
        self.asked = asked;
        self.live.request_stop();
        if let Some(agent) = &self.agent {
            agent.signal(asked.raw());
            // A stopped agent acts on the signal only when it goes on.
            self.go_on();
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        if let Some(agent) = &self.agent {
            agent.signal(Signal::KILL);
        }
    }
}

/// The exit status of a session that was interrupted before it ran anything: 128+n.
pub fn interrupted(asked: Asked) -> u8 {
    u8::try_from(asked.raw().as_raw().saturating_add(128)).unwrap_or(u8::MAX)
}
