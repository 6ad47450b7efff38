//! The agent: a child with our terminal and stdio, an environment of its own, and a death signal.
//!
//! It is started through this program's hidden `__exec` command, a trampoline that asks the kernel
//! to kill it when labproxy dies and then becomes the agent; that needs no `unsafe`. The death
//! signal follows the *thread* that started the child, so one thread starts it and then lives as
//! long as the process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, WaitOptions};

use super::environment::AgentEnvironment;
use super::processes::ProcessStamp;

/// The hidden command that becomes the agent.
pub const EXEC_COMMAND: &str = "__exec";
/// Where the program stands among its arguments.
pub const PROGRAM_AT: usize = 2;
/// How a missing limit is written there.
const UNLIMITED: &str = "unlimited";

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
        let name = PathBuf::from(argv.first().cloned().unwrap_or_default());
        if name.as_os_str().as_bytes().contains(&b'/') {
            return match executable(&name) {
                Presence::Runs => Ok(Self {
                    program: name,
                    argv,
                }),
                Presence::There => Err(AgentError::NotExecutable { name }),
                Presence::Absent => Err(AgentError::NotFound { name }),
            };
        }
        let mut seen = false;
        for directory in path.into_iter().flat_map(env::split_paths) {
            // An empty entry is the working directory; the path must not be searched for again.
            let program = Path::new(".").join(directory).join(&name);
            match executable(&program) {
                Presence::Runs if !name.as_os_str().is_empty() => {
                    return Ok(Self { program, argv });
                }
                Presence::There => seen |= program.is_file(),
                Presence::Runs | Presence::Absent => {}
            }
        }
        if seen {
            Err(AgentError::NotExecutable { name })
        } else {
            Err(AgentError::NotFound { name })
        }
    }

    /// The name it was asked for by.
    pub fn argv0(&self) -> &OsStr {
        self.argv
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str)
    }
}

enum Presence {
    Runs,
    There,
    Absent,
}

fn executable(path: &Path) -> Presence {
    match path.metadata() {
        Ok(meta) if meta.is_file() => {
            let marked = meta.permissions().mode() & 0o111 != 0;
            if marked && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() {
                Presence::Runs
            } else {
                Presence::There
            }
        }
        Ok(_) => Presence::There,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Presence::There,
        Err(_) => Presence::Absent,
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
}

impl AgentEnd {
    /// The status that labproxy passes on: 128+n for a signal.
    pub fn status(self) -> u8 {
        let status = match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => signal.saturating_add(128),
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }

    /// The exit code, when it exited.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signaled(_) => None,
        }
    }

    /// The signal's name, such as `SIGTERM`, when one ended it.
    pub fn signal_name(self) -> Option<String> {
        match self {
            Self::Exited(_) => None,
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
        let mut child = trampoline(command, core);
        child.env_clear().envs(&environment.variables);
        if let AgentStdio::Files { out, err } = stdio {
            child.stdin(Stdio::null()).stdout(out).stderr(err);
        }
        let pid = spawn_for_life(child).map_err(AgentError::Spawn)?;
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

/// Our own file, even when it was replaced on disk meanwhile.
pub(super) fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        env::current_exe().unwrap_or_else(|_| PathBuf::from("labproxy"))
    }
}

/// The trampoline's command line.
fn trampoline(command: &AgentCommand, core: Option<u64>) -> Command {
    let mut child = Command::new(own_program());
    child
        .arg0("labproxy")
        .arg(EXEC_COMMAND)
        // The agent's own arguments may hold options, and `--`.
        .arg("--")
        .arg(rustix::process::getpid().as_raw_nonzero().to_string())
        .arg(core.map_or_else(|| UNLIMITED.to_owned(), |limit| limit.to_string()))
        .arg(&command.program)
        .args(&command.argv);
    child
}

/// Starts a child from a thread that never ends before the process does.
fn spawn_for_life(mut child: Command) -> std::io::Result<Pid> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("children".to_owned())
        .spawn(move || {
            let started = child.spawn().and_then(|child| {
                i32::try_from(child.id())
                    .ok()
                    .and_then(Pid::from_raw)
                    .ok_or_else(|| std::io::Error::other("the system gave no pid"))
            });
            let goes_on = started.is_ok();
            if sender.send(started).is_ok() && goes_on {
                loop {
                    thread::park();
                }
            }
        })?;
    receiver
        .recv()
        .map_err(|_| std::io::Error::other("the thread that starts children ended"))?
}

/// The trampoline: binds this process's life to its parent's, then becomes the program. Returns
/// only when it cannot, with the exit status and what to tell.
///
/// `arguments` are the parent's pid, the limit of core dumps, the program's file and its argv.
pub fn become_agent(arguments: &[OsString]) -> (u8, String) {
    let [parent, core, program, argv @ ..] = arguments else {
        return (125, "the trampoline got no program".to_owned());
    };
    let Some((argv0, rest)) = argv.split_first() else {
        return (125, "the trampoline got no argv".to_owned());
    };
    #[cfg(target_os = "linux")]
    {
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            return (125, format!("no death signal: {error}"));
        }
        // The parent may have died before the request took hold.
        let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if now.as_deref().map(OsStr::new) != Some(parent) {
            return (125, "labproxy ended before the agent began".to_owned());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    restore_core_limit(core);
    let error = Command::new(program).arg0(argv0).args(rest).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    (status, error.to_string())
}

/// Gives the agent the soft limit that labproxy had before it lowered its own.
fn restore_core_limit(core: &OsStr) {
    let resource = rustix::process::Resource::Core;
    let mut limit = rustix::process::getrlimit(resource);
    limit.current = core.to_str().and_then(|text| text.parse().ok());
    // Never above the hard limit, which stayed as it was.
    let _refused = rustix::process::setrlimit(resource, limit);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn find(name: &str, path: &Path) -> Result<AgentCommand, AgentError> {
        AgentCommand::find(vec![name.into()], Some(path.as_os_str()))
    }

    /// Absent is 127's case, present without the right to run is 126's, as in a shell.
    #[test]
    fn a_program_is_found_or_named_as_a_shell_would() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        fs::write(&plain, "#!/bin/sh\n").unwrap();
        fs::create_dir(directory.path().join("folder")).unwrap();
        let path = directory.path();
        assert!(matches!(
            find("plain", path),
            Err(AgentError::NotExecutable { .. })
        ));
        assert!(matches!(
            find("folder", path),
            Err(AgentError::NotFound { .. })
        ));
        assert!(matches!(
            find("absent", path),
            Err(AgentError::NotFound { .. })
        ));
        assert!(matches!(find("", path), Err(AgentError::NotFound { .. })));
        let folder = path.join("folder");
        assert!(matches!(
            find(folder.to_str().unwrap(), path),
            Err(AgentError::NotExecutable { .. })
        ));
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find("plain", path).unwrap().program, plain);
        assert_eq!(find(plain.to_str().unwrap(), path).unwrap().program, plain);
    }

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
