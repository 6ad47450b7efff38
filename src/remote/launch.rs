//! `launch`: the trampoline between the supervisor and a program. It makes the process what the
//! program expects (its own session, its terminal, its descriptors, its directory), binds its life
//! to the supervisor's, and becomes the program. What fails on the way is told exactly.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::wire::bytes::ByteString;
use crate::wire::link::StartError;

use super::cgroup::Group;
use super::{handover, own, workspace};

/// The status of a launch that became nothing; nobody sees it, the reason goes its own way.
const NO_PROGRAM: u8 = 127;
/// Longest reason.
const REASON_MAX: u64 = 4096;
/// Signals that a login may have left ignored, which a program would inherit.
const RESTORED: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CHILD,
];

/// What a program is started as, every placeholder replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// A path, or a name that is looked up in the `PATH` of `environment`.
    pub program: ByteString,
    /// All arguments, `argv[0]` first.
    pub argv: Vec<ByteString>,
    /// The whole environment.
    pub environment: Vec<(ByteString, ByteString)>,
    /// Where it runs, absolute.
    pub directory: ByteString,
    /// The session's workspace, in which that directory is made when it is missing.
    pub workspace: ByteString,
    /// Its umask.
    pub umask: u32,
    /// Whether its standard input is to be its controlling terminal.
    pub terminal: bool,
    /// The control group that it enters, where there is one.
    pub group: Option<Group>,
    /// The supervisor's pid.
    pub parent: u32,
}

/// A launch that has not become its program yet.
#[derive(Debug)]
pub struct Launching {
    /// Readable when it has, or cannot.
    socket: UnixStream,
    /// What it said so far.
    said: Vec<u8>,
}

impl Launching {
    /// Starts the trampoline with these descriptors as the program's standard streams.
    pub fn start(plan: &Plan, streams: [BorrowedFd<'_>; 3]) -> io::Result<(Self, Child)> {
        let (socket, theirs) = UnixStream::pair()?;
        let memory = own::into_memory(plan)?;
        let [stdin, stdout, stderr] = streams;
        handover::send(&socket, &[memory.as_fd(), stdin, stdout, stderr])?;
        socket.set_nonblocking(true)?;
        let mut command = own::role("launch");
        command.stdin(OwnedFd::from(theirs));
        let child = command.spawn()?;
        let said = Vec::new();
        Ok((Self { socket, said }, child))
    }

    /// Whether it became its program, or why not; `None` while it is under way.
    pub fn outcome(&mut self) -> Option<Result<(), StartError>> {
        // What is read before the socket is dry stays in `said`.
        match (&self.socket).take(REASON_MAX).read_to_end(&mut self.said) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // Also when it was killed before it could say anything, which its end tells.
            Ok(_) | Err(_) if self.said.is_empty() => Some(Ok(())),
            // A reset behind a reason changes nothing: it left something unread.
            Ok(_) | Err(_) => Some(Err(
                postcard::from_bytes(&self.said).unwrap_or(StartError::Malformed)
            )),
        }
    }
}

impl AsFd for Launching {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The role `launch`.
pub fn main() -> u8 {
    let Ok(socket) = rustix::stdio::stdin().try_clone_to_owned() else {
        return NO_PROGRAM;
    };
    let socket = File::from(socket);
    let why = become_program(&socket);
    let bytes = postcard::to_extend(&why, Vec::new()).unwrap_or_default();
    // Without a supervisor nobody wants to know.
    let _unread = (&socket).write_all(&bytes);
    NO_PROGRAM
}

fn exhausted(what: &str) -> impl Fn(Errno) -> StartError {
    move |errno| StartError::Exhausted {
        what: what.to_owned(),
        errno: errno.raw_os_error(),
    }
}

fn broken(what: &str) -> impl Fn(io::Error) -> StartError {
    move |error| exhausted(what)(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns only when it cannot.
fn become_program(socket: &File) -> StartError {
    match prepare(socket) {
        Ok(plan) => {
            let error = command(&plan).exec();
            program_error(&plan, &error)
        }
        Err(error) => error,
    }
}

fn prepare(socket: &File) -> Result<Plan, StartError> {
    let [memory, stdin, stdout, stderr] =
        handover::receive(socket).map_err(broken("the handover"))?;
    let plan: Plan = own::from_memory(memory).map_err(broken("the handover"))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(exhausted("a death signal"))?;
    // The supervisor may have died before the request took hold.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(plan.parent) {
        return Err(exhausted("the supervisor")(Errno::SRCH));
    }
    if let Some(group) = &plan.group {
        // Outside it is followed by its parents, as where there is none; the supervisor looks.
        let _outside = group.enter();
    }
    rustix::process::setsid().map_err(exhausted("a session of its own"))?;
    if plan.terminal {
        rustix::process::ioctl_tiocsctty(&stdin).map_err(exhausted("the terminal"))?;
    }
    for signal in RESTORED {
        // A handler does not survive the change of program: then the default holds again.
        signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false)))
            .map_err(broken("a signal"))?;
    }
    rustix::process::umask(Mode::from_bits_truncate(plan.umask));
    let directory = Path::new(plan.directory.as_os_str());
    workspace::enter(directory, Path::new(plan.workspace.as_os_str())).map_err(|errno| {
        StartError::Directory {
            errno: errno.raw_os_error(),
        }
    })?;
    rustix::stdio::dup2_stdin(&stdin).map_err(exhausted("standard input"))?;
    rustix::stdio::dup2_stdout(&stdout).map_err(exhausted("standard output"))?;
    rustix::stdio::dup2_stderr(&stderr).map_err(exhausted("standard error"))?;
    Ok(plan)
}

fn command(plan: &Plan) -> Command {
    let mut command = Command::new(plan.program.as_os_str());
    command.env_clear();
    if let Some((name, rest)) = plan.argv.split_first() {
        command.arg0(name.as_os_str());
        command.args(rest.iter().map(ByteString::as_os_str));
    }
    for (name, value) in &plan.environment {
        command.env(name.as_os_str(), value.as_os_str());
    }
    command
}

fn program_error(plan: &Plan, error: &io::Error) -> StartError {
    match Errno::from_io_error(error) {
        // A byte 0 in an argument or variable.
        None => StartError::Malformed,
        Some(Errno::TOOBIG) => StartError::TooLong,
        // It is there: what is missing is its interpreter.
        Some(Errno::NOENT) if is_there(plan) => StartError::NotExecutable {
            errno: Errno::NOENT.raw_os_error(),
        },
        Some(Errno::NOENT) => StartError::NotFound,
        Some(errno @ (Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE)) => {
            exhausted("the program")(errno)
        }
        Some(errno) => StartError::NotExecutable {
            errno: errno.raw_os_error(),
        },
    }
}

/// Whether a file of the program's name is where it was looked for.
fn is_there(plan: &Plan) -> bool {
    let program = Path::new(plan.program.as_os_str());
    if plan.program.as_bytes().contains(&b'/') {
        return program.is_file();
    }
    let path = plan
        .environment
        .iter()
        .rev()
        .find(|(name, _)| name.as_bytes() == b"PATH");
    path.is_some_and(|(_, value)| {
        std::env::split_paths(value.as_os_str())
            .any(|folder| !program.as_os_str().is_empty() && folder.join(program).is_file())
    })
}
