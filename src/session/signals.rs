//! The signals that a session process handles, and what they mean to it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGINT: the terminal's Ctrl-C, or somebody's `kill -INT`.
    Interrupt,
    /// SIGQUIT: the terminal's Ctrl-\.
    Quit,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGCONT: goes on after a stop.
    Continue,
    /// SIGCHLD: something happened to a child.
    Child,
}

impl Asked {
    /// The signal's number.
    pub fn raw(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Quit => rustix::process::Signal::QUIT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::HangUp => rustix::process::Signal::HUP,
            Self::Continue => rustix::process::Signal::CONT,
            Self::Child => rustix::process::Signal::CHILD,
        }
    }
}

/// The installed handlers. Once installed they stay for the life of the process; a handled signal
/// is back to its default in a program that is executed, an ignored one would stay ignored.
#[derive(Debug)]
pub struct Signals {
    interrupt: Option<Signal>,
    quit: Option<Signal>,
    terminate: Signal,
    hang_up: Option<Signal>,
    go_on: Signal,
    child: Signal,
}

impl Signals {
    /// Installs the handlers. What was ignored when the process began stays ignored (`nohup`, and
    /// background jobs of a script).
    ///
    /// # Errors
    /// When the system refuses one.
    pub fn install() -> io::Result<Self> {
        let ignored = ignored_signals();
        let unless_ignored = |kind: SignalKind| {
            let bit = u32::try_from(kind.as_raw_value() - 1).unwrap_or(0);
            if ignored.checked_shr(bit).is_some_and(|mask| mask & 1 == 1) {
                Ok(None)
            } else {
                signal(kind).map(Some)
            }
        };
        Ok(Self {
            interrupt: unless_ignored(SignalKind::interrupt())?,
            quit: unless_ignored(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: unless_ignored(SignalKind::hangup())?,
            go_on: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
            child: signal(SignalKind::child())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            () = received(self.interrupt.as_mut()) => Asked::Interrupt,
            () = received(self.quit.as_mut()) => Asked::Quit,
            () = received(Some(&mut self.terminate)) => Asked::Terminate,
            () = received(self.hang_up.as_mut()) => Asked::HangUp,
            () = received(Some(&mut self.go_on)) => Asked::Continue,
            () = received(Some(&mut self.child)) => Asked::Child,
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The set of signals that this process ignores, bit n-1 for signal n; none where unknown.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// Whether the terminal sends its keys' signals to this process's group: then the agent, in the
/// same group, gets them without our help.
pub fn terminal_signals_us() -> bool {
    std::fs::File::open("/dev/tty").is_ok_and(|terminal| {
        rustix::termios::tcgetpgrp(&terminal)
            .is_ok_and(|foreground| crate::processes::own_group() == Some(foreground))
    })
}
