//! What of this machine a link is made with: the environment that ssh gets, a place for sockets,
//! and how children start.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::failure::LinkFailure;
use crate::child::{
    self, ChildCommand, ChildSession, CoreLimit, ProcessLimits, Trampoline, Unfound,
};

/// What ssh, and the commands of its configuration, see of our environment: enough to find keys,
/// agents and tickets. The user's shell runs `ProxyCommand` and `Match exec`.
const PASSED: [&str; 9] = [
    "HOME",
    "KRB5CCNAME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "USER",
    "XDG_RUNTIME_DIR",
];
/// Most of what a short command prints is kept; `ssh -G` prints 5 KiB.
const OUTPUT_MAX: u64 = 256 * 1024;

/// What of this machine a link is made with.
#[derive(Debug, Clone)]
pub struct Local {
    environment: Vec<(OsString, OsString)>,
    sockets: PathBuf,
    trampoline: Trampoline,
    ssh: PathBuf,
    /// Every ssh that was started and is not gone.
    running: TaskTracker,
}

/// An ssh of ours. When it is dropped before its end, it and its process group are killed, and waited
/// for beside whatever goes on.
#[derive(Debug)]
pub(super) struct SshProcess {
    /// Taken out when it is dropped.
    child: Option<Child>,
    group: Option<Pid>,
    running: TaskTrackerToken,
}

impl SshProcess {
    /// Its pid, as long as it was not waited for.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Its streams, once.
    pub(super) fn streams(
        &mut self,
    ) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match &mut self.child {
            Some(child) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            None => (None, None, None),
        }
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait().await,
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Kills it and its process group, and waits for it.
    async fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(child) = &mut self.child {
            // Before it has its own group it is alone.
            let _ended = child.kill().await;
        }
    }

    /// Signals its process group, which is its own and has a `ProxyCommand` in it too, as long as it
    /// was not waited for.
    pub(super) fn signal(&self, signal: Signal) {
        if let (Some(_), Some(group)) = (self.id(), self.group) {
            let _gone = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let waited_for = self.id().is_none();
        let Some(mut child) = self.child.take().filter(|_| !waited_for) else {
            return;
        };
        // It may not have a group yet.
        let _gone = child.start_kill();
        let running = self.running.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ended = child.wait().await;
                drop(running);
            });
        }
    }
}

/// What a short command printed.
#[derive(Debug)]
pub(super) struct Output {
    /// Its exit status; `None` when a signal ended it.
    pub(super) status: Option<i32>,
    /// Standard output.
    pub(super) stdout: Vec<u8>,
    /// Standard error.
    pub(super) stderr: Vec<u8>,
}

impl Local {
    /// From our own environment, of which ssh sees a few variables; `sockets` is a directory of
    /// ours, 0700, below which control directories are made.
    ///
    /// # Errors
    /// When there is no ssh.
    pub fn new(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        sockets: &Path,
        trampoline: Trampoline,
    ) -> Result<Self, LinkFailure> {
        let mut environment: Vec<_> = environment
            .into_iter()
            .filter(|(name, _)| PASSED.iter().any(|passed| name == passed))
            .collect();
        // Its messages are read by a program.
        environment.push(("LC_ALL".into(), "C".into()));
        let path = environment
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.as_os_str());
        let ssh = child::find(OsStr::new("ssh"), path).map_err(|why| match why {
            Unfound::Absent => LinkFailure::NoSsh,
            Unfound::NotExecutable => LinkFailure::Here {
                what: "ssh cannot be run".to_owned(),
                why: "this user may not execute it".to_owned(),
            },
        })?;
        Ok(Self {
            environment,
            sockets: sockets.to_path_buf(),
            trampoline,
            ssh,
            running: TaskTracker::new(),
        })
    }

    /// Where control directories are made.
    pub(super) fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Starts ssh with these arguments, in a session of its own.
    pub(super) fn start_ssh(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<SshProcess, LinkFailure> {
        let argv: Vec<OsString> = std::iter::once("ssh".into()).chain(arguments).collect();
        let command = ChildCommand {
            trampoline: &self.trampoline,
            program: &self.ssh,
            argv: &argv,
            session: ChildSession::Own,
            core: CoreLimit::Kept,
            limits: ProcessLimits::default(),
        };
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let mut command = command.prepare(environment);
        command.current_dir("/");
        let running = self.running.token();
        let child = child::spawn_piped(command).map_err(|error| LinkFailure::Here {
            what: "ssh cannot be started".to_owned(),
            why: error.to_string(),
        })?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(SshProcess {
            child: Some(child),
            group: id.and_then(Pid::from_raw),
            running,
        })
    }

    /// Waits until every ssh that was started is gone, those included of attempts that were dropped.
    pub async fn settled(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Runs ssh to its end; `None` when that takes longer than `limit`.
    pub(super) async fn run_ssh(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        limit: Duration,
    ) -> Result<Option<Output>, LinkFailure> {
        let mut child = self.start_ssh(arguments)?;
        let (stdin, stdout, stderr) = child.streams();
        drop(stdin);
        let all = async {
            let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
            status.map(|status| Output {
                status: status.code(),
                stdout,
                stderr,
            })
        };
        let ran = tokio::time::timeout(limit, all).await;
        match ran {
            Err(_) => {
                child.kill().await;
                Ok(None)
            }
            Ok(Ok(output)) => Ok(Some(output)),
            Ok(Err(error)) => Err(LinkFailure::Here {
                what: "ssh cannot be waited for".to_owned(),
                why: error.to_string(),
            }),
        }
    }
}

/// Everything up to a limit; what is longer is cut, what cannot be read is not there.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _error_ends_it = pipe.take(OUTPUT_MAX).read_to_end(&mut bytes).await;
    }
    bytes
}
