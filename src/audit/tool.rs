//! A tool at work: started, waited for, ended when its time is over.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::child::{self, ChildCommand, ChildSession, CoreLimit, ProcessLimits, Trampoline};
use crate::processes;

/// How long a tool that was killed may take to be gone.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// How a tool is started.
#[derive(Debug)]
pub struct Tool {
    /// What it is started through.
    pub trampoline: Trampoline,
    /// The file that is executed: bubblewrap, or the tool itself.
    pub program: PathBuf,
    /// Its argv.
    pub argv: Vec<OsString>,
    /// Its environment, whole.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it is started; nothing where bubblewrap says so.
    pub directory: Option<PathBuf>,
    /// How long it may run.
    pub limit: Duration,
    /// Its limit of core dumps, bytes; nothing is without limit.
    pub core: Option<u64>,
    /// What each of its processes may use.
    pub limits: ProcessLimits,
}

/// How a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status; 128 + n for signal n.
    Exited(u8),
    /// Its time was over.
    TimedOut,
    /// labproxy was told to end by this signal.
    Interrupted(i32),
}

impl Tool {
    /// Whether it runs in bubblewrap.
    const fn is_confined(&self) -> bool {
        self.directory.is_none()
    }

    /// Runs it with our stdio to its end; nothing of it runs on afterwards, but for what left the
    /// session of a tool without a sandbox.
    ///
    /// # Errors
    /// When it cannot be started or waited for.
    pub fn run(&self) -> io::Result<End> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.run_here())
    }

    async fn run_here(&self) -> io::Result<End> {
        // Before the start: no end is missed.
        let mut ended = signal(SignalKind::child())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut child = self.start()?;
        let deadline = Instant::now() + self.limit;
        let pid = pid_of(&child)?;
        let cut_short = loop {
            if has_ended(pid)? {
                break None;
            }
            tokio::select! {
                _ = ended.recv() => {}
                () = sleep_until(deadline) => break Some(End::TimedOut),
                _ = interrupt.recv() => break Some(End::Interrupted(Signal::INT.as_raw())),
                _ = terminate.recv() => break Some(End::Interrupted(Signal::TERM.as_raw())),
                _ = hang_up.recv() => break Some(End::Interrupted(Signal::HUP.as_raw())),
            }
        };
        let patience = Instant::now() + GONE_AFTER;
        if cut_short.is_some() {
            self.kill(pid);
        }
        while !has_ended(pid)? {
            tokio::select! {
                _ = ended.recv() => {}
                () = sleep_until(patience) => {
                    child.kill()?;
                    break;
                }
            }
        }
        if !self.is_confined() {
            // Not waited for yet, so the group is still the tool's own.
            let _none_left = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        let status = child.wait()?;
        Ok(cut_short.unwrap_or_else(|| End::Exited(status_of(status))))
    }

    fn start(&self) -> io::Result<Child> {
        let mut command = ChildCommand {
            trampoline: &self.trampoline,
            program: &self.program,
            argv: &self.argv,
            session: ChildSession::Own,
            core: CoreLimit::Soft(self.core),
            limits: self.limits,
        }
        .prepare(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        child::spawn(command)
    }

    /// Ends it: in bubblewrap its first process, with which the kernel ends everything in the
    /// namespace before bubblewrap learns of it; else its process group.
    fn kill(&self, pid: Pid) {
        if !self.is_confined() {
            let _gone = rustix::process::kill_process_group(pid, Signal::KILL);
            return;
        }
        let first: Vec<Pid> = processes::all()
            .filter(|process| process.parent == pid.as_raw_nonzero().get())
            .filter_map(|process| Pid::from_raw(process.stamp.pid))
            .collect();
        // None yet: bubblewrap is still at its beginning, and what it makes dies with it.
        let whom = if first.is_empty() { vec![pid] } else { first };
        for pid in whom {
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the system gave no pid"))
}

/// Whether it has ended; it stays to be waited for, so that its number remains its own.
fn has_ended(pid: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(seen) => return Ok(seen.is_some()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn status_of(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal().map(|signal| signal.saturating_add(128));
    let code = status.code().or(signal).unwrap_or(125);
    u8::try_from(code).unwrap_or(u8::MAX)
}
