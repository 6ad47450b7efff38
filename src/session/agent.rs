//! The agent: a child with our terminal and stdio and an environment of its own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, WaitOptions};

use super::environment::AgentEnvironment;
use super::processes::ProcessStamp;
use crate::child::{
    self, ChildCommand, ChildSession, CoreLimit, ProcessLimits, Trampoline, Unfound,
};

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No program of that name: exit status 127.
    #[error("'{}' was not found", .name.display())]
    NotFound {
        /// The program as asked for.
        name: PathBuf,
    },
    /// It is there, and this user may not run it: exit status 126.
    #[error("'{}' is not executable", .name.display())]
    NotExecutable {
        /// The program as asked for.
        name: PathBuf,
    },
    /// The child could not be made.
    #[error("the agent could not be started")]
    Spawn(#[source] std::io::Error),
}

/// An agent's command line, with the program found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// The file that is executed.
    pub program: PathBuf,
    /// Every argument, the name first.
    pub argv: Vec<OsString>,
}

impl AgentCommand {
    /// Finds the program as a shell would: a name without `/` in `path`, anything else as it is.
    ///
    /// # Errors
    /// When it is not there or not executable.
    pub fn find(argv: Vec<OsString>, path: Option<&OsStr>) -> Result<Self, AgentError> {
        let name = argv.first().cloned().unwrap_or_default();
        match child::find(&name, path) {
            Ok(program) => Ok(Self { program, argv }),
            Err(Unfound::Absent) => Err(AgentError::NotFound { name: name.into() }),
            Err(Unfound::NotExecutable) => Err(AgentError::NotExecutable { name: name.into() }),
        }
    }

    /// The name it was asked for by.
    pub fn argv0(&self) -> &OsStr {
        self.argv
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str)
    }
}

/// Where the agent's stdio goes.
#[derive(Debug)]
pub enum AgentStdio {
    /// Ours: the same terminal, pipes or files.
    Inherited,
    /// Nothing to read, and two files to write: a detached session.
    Files {
        /// stdout.
        out: File,
        /// stderr.
        err: File,
    },
}

/// How an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// It was on a host that cannot be asked any more.
    Lost(Loss),
}

/// Why an agent's host cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There is no link, and will be none.
    Link,
    /// What ran the agent there was killed, and the agent with it.
    Host,
}

impl AgentEnd {
    /// The status that labproxy passes on: 128+n for a signal.
    pub fn status(self) -> u8 {
        let status = match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => signal.saturating_add(128),
            // A failure of labproxy's part, not of the agent.
            Self::Lost(_) => 125,
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }

    /// The exit code, when it exited.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signaled(_) | Self::Lost(_) => None,
        }
    }

    /// The signal's name, such as `SIGTERM`, when one ended it.
    pub fn signal_name(self) -> Option<String> {
        match self {
            Self::Exited(_) | Self::Lost(_) => None,
            Self::Signaled(number) => Some(signal_name(number)),
        }
    }
}

/// The name of a signal that can end a process, else `SIG` and its number.
fn signal_name(number: i32) -> String {
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    named
        .iter()
        .find(|(signal, _)| signal.as_raw() == number)
        .map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned())
}

/// What a look at the agent shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentChange {
    /// It was stopped, as by Ctrl-Z.
    Stopped,
    /// It goes on.
    Continued,
    /// It is gone.
    Ended(AgentEnd),
}

/// A started agent.
#[derive(Debug)]
pub struct Agent {
    pid: Pid,
    stamp: ProcessStamp,
    end: Option<AgentEnd>,
}

impl Agent {
    /// Starts the agent in our process group and terminal, with `core` as its limit of core dumps
    /// (`None`: no limit), which labproxy lowered for itself.
    ///
    /// # Errors
    /// When the child cannot be made.
    pub fn start(
        command: &AgentCommand,
        environment: &AgentEnvironment,
        stdio: AgentStdio,
        core: Option<u64>,
    ) -> Result<Self, AgentError> {
        let prepared = ChildCommand {
            trampoline: &Trampoline::own(),
            program: &command.program,
            argv: &command.argv,
            session: ChildSession::Ours,
            core: CoreLimit::Soft(core),
            limits: ProcessLimits::default(),
        };
        let mut child = prepared.prepare(&environment.variables);
        if let AgentStdio::Files { out, err } = stdio {
            child.stdin(Stdio::null()).stdout(out).stderr(err);
        }
        let pid = child::spawn(child)
            .and_then(|child| {
                i32::try_from(child.id())
                    .ok()
                    .and_then(Pid::from_raw)
                    .ok_or_else(|| std::io::Error::other("the system gave no pid"))
            })
            .map_err(AgentError::Spawn)?;
        let stamp = ProcessStamp::of(pid.as_raw_nonzero().get()).unwrap_or(ProcessStamp {
            pid: pid.as_raw_nonzero().get(),
            started: 0,
        });
        Ok(Self {
            pid,
            stamp,
            end: None,
        })
    }

    /// Its pid and start time.
    pub fn stamp(&self) -> ProcessStamp {
        self.stamp
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            // It may end between the look and the signal; its pid stays ours until it is waited for.
            let _gone = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// What happened to it since the last look, without waiting.
    pub fn change(&mut self) -> Option<AgentChange> {
        if let Some(end) = self.end {
            return Some(AgentChange::Ended(end));
        }
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        let end = match rustix::process::waitpid(Some(self.pid), options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => return None,
            Ok(Some((_, status))) => {
                if status.stopped() {
                    return Some(AgentChange::Stopped);
                }
                if status.continued() {
                    return Some(AgentChange::Continued);
                }
                match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => AgentEnd::Exited(code),
                    (None, Some(signal)) => AgentEnd::Signaled(signal),
                    (None, None) => return None,
                }
            }
            // Not our child any more: nothing is known of its end.
            Err(_) => AgentEnd::Exited(125),
        };
        self.end = Some(end);
        Some(AgentChange::Ended(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a program, and 128 more than the signal that ended it.
    #[test]
    fn an_end_is_passed_on() {
        assert_eq!(AgentEnd::Exited(7).status(), 7);
        assert_eq!(AgentEnd::Signaled(9).status(), 137);
        assert_eq!(AgentEnd::Signaled(15).status(), 143);
        assert_eq!(
            AgentEnd::Signaled(15).signal_name().as_deref(),
            Some("SIGTERM")
        );
        assert_eq!(
            AgentEnd::Signaled(64).signal_name().as_deref(),
            Some("SIG64")
        );
    }
}
