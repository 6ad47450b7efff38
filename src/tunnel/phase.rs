//! The steps from nothing to an agent's first byte, each with its limit, so that whatever is slow is
//! named.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::transport::PhaseWatch;
use crate::clock::SharedClock;

/// A step of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The host's name, its address, a connection, the host's key and the user's.
    Connect,
    /// The program for the host: looked for, sent, started.
    Put,
    /// The session's supervisor: started or found.
    Attach,
    /// The socket on the host, and a request through the whole chain.
    Forward,
    /// The program that was asked for.
    Start,
    /// Its first byte.
    FirstByte,
    /// The end of everything on the host.
    End,
}

impl Phase {
    /// The longest that it may take; `None` for what the transport limits itself, and for what an
    /// agent decides.
    pub const fn limit(self) -> Option<Duration> {
        match self {
            // One exchange; the supervisor starts within a second.
            Self::Attach => Some(Duration::from_secs(15)),
            // Two exchanges and a request.
            Self::Forward => Some(Duration::from_secs(20)),
            // A megabyte of arguments over a slow line.
            Self::Start => Some(Duration::from_mins(1)),
            // ssh's own limits are beside it; an end has its grace and `END_ROOM`.
            Self::Connect | Self::Put | Self::FirstByte | Self::End => None,
        }
    }

    /// The word in the log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Put => "put",
            Self::Attach => "attach",
            Self::Forward => "forward",
            Self::Start => "start",
            Self::FirstByte => "first byte",
            Self::End => "end",
        }
    }
}

/// As a sentence names it.
impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Connect => "connecting",
            Self::Put => "sending and starting labproxy-remote",
            Self::Attach => "attaching to the session's supervisor",
            Self::Forward => "opening the forward",
            Self::Start => "starting the program",
            Self::FirstByte => "waiting for the program's first byte",
            Self::End => "ending everything there",
        })
    }
}

/// Writes each phase into the log: when it began, and how long the one before took.
#[derive(Clone, Debug)]
pub struct PhaseLog {
    clock: SharedClock,
    now: Arc<Mutex<Option<(Phase, Duration)>>>,
}

impl PhaseLog {
    /// Nothing has begun.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            now: Arc::new(Mutex::new(None)),
        }
    }

    /// The phase that runs now has ended well.
    pub fn done(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        self.told(now.take());
    }

    /// The phase that runs now.
    pub fn current(&self) -> Option<Phase> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.map(|(phase, _)| phase)
    }

    fn told(&self, ended: Option<(Phase, Duration)>) {
        if let Some((phase, begun)) = ended {
            let took = self.clock.since_boot().saturating_sub(begun).as_millis();
            tracing::info!(phase = phase.word(), took_ms = %took, "phase done");
        }
    }
}

impl PhaseWatch for PhaseLog {
    fn begin(&self, phase: Phase) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_some_and(|(running, _)| running == phase) {
            return;
        }
        let begins = (phase, self.clock.since_boot());
        self.told(now.replace(begins));
        tracing::info!(phase = phase.word(), "phase begins");
    }
}
