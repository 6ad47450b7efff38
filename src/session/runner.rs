//! The agent of a session, here or on a host: what the main loop asks of either.

use rustix::process::Signal;

use super::agent::{Agent, AgentChange};
use super::processes::ProcessStamp;
use super::remote::agent::RemoteAgent;
use super::signals::terminal_signals_us;

/// A running agent.
#[derive(Debug)]
pub enum Runner {
    /// A child of this process.
    Here(Agent),
    /// On the session's host.
    There(Box<RemoteAgent>),
}

impl Runner {
    /// Resolves when [`Self::change`] may have something to tell that no signal announces.
    pub async fn changed(&mut self) {
        match self {
            // SIGCHLD announces it.
            Self::Here(_) => std::future::pending().await,
            Self::There(agent) => agent.changed().await,
        }
    }

    /// What happened to it since the last look, without waiting.
    pub fn change(&mut self) -> Option<AgentChange> {
        match self {
            Self::Here(agent) => agent.change(),
            Self::There(agent) => agent.change(),
        }
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        match self {
            Self::Here(agent) => agent.signal(signal),
            Self::There(agent) => agent.signal(signal),
        }
    }

    /// Whether it works on a host that cannot be reached.
    pub fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::There(agent) => agent.is_out_of_reach(),
        }
    }

    /// Gives up waiting for one that is out of reach.
    pub fn give_up(&mut self) {
        if let Self::There(agent) = self {
            agent.give_up();
        }
    }

    /// Whether a key such as Ctrl-C in our terminal signals it without our help.
    pub fn hears_terminal(&self) -> bool {
        match self {
            Self::Here(_) => terminal_signals_us(),
            Self::There(_) => false,
        }
    }

    /// Its process, when it is one of this machine.
    pub fn stamp(&self) -> Option<ProcessStamp> {
        match self {
            Self::Here(agent) => Some(agent.stamp()),
            Self::There(_) => None,
        }
    }
}
