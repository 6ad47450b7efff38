//! The guard: it outlives the ssh channel, holds the session's lock and listening sockets, starts
//! the supervisor and ends everything when that one dies or is silent; the supervisor does so when
//! the guard dies or stays stopped. Both are child subreapers, so that no descendant leaves them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};

use crate::processes::{self, ProcessStamp};
use crate::wire::bytes::ByteString;
use crate::wire::link::Refusal;

use super::cgroup::Group;
use super::clock::Moment;
use super::directory::{SessionDirectory, cannot};
use super::entry::{GuardAnswer, Handover, lock};
use super::place::{AGENT_SOCKET, Place, SUPERVISOR_SOCKET};
use super::reading::{self, ReadError};
use super::record::{PidSpace, Record};
use super::{handover, kill, own, private, sweep, tell};

/// The log of guard and supervisor, in the session's `log` directory.
const LOG: &str = "host.log";
/// How long the guard tries to end what a dead supervisor left.
const KILL_LIMIT: Duration = Duration::from_secs(20);
/// How often a supervisor tells its guard that it runs.
pub const BEAT: Duration = Duration::from_secs(2);
/// Beats, one after the other, that the other may miss: then it was stopped, and would outlive every
/// lease. Each is a wait of our own, so that a time in which we did not run either, as when the
/// machine was suspended, is one at most.
pub const MISSED_MAX: u32 = 10;

/// What the line's first bytes are when there is no supervisor; why not follows.
pub const FAILURE: &[u8] = b"!";
/// How long a supervisor may take to its first beat: less than [`super::entry`] gives the guard, which
/// swept before.
const BEGIN_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a reason that are told.
const REASON_MAX: usize = 1024;

/// The role `guard`: the handover on standard input, the answer on standard output.
pub fn main() -> u8 {
    let answer = match begin() {
        Ok(Some(guard)) => {
            say(&GuardAnswer::Ready);
            guard.watch();
            return 0;
        }
        Ok(None) => GuardAnswer::Locked,
        Err(refusal) => GuardAnswer::Refused(refusal),
    };
    say(&answer);
    super::FAILED
}

/// Tells who started us, and closes standard output: that one waits for its end.
fn say(answer: &GuardAnswer) {
    let bytes = postcard::to_extend(answer, Vec::new()).unwrap_or_default();
    // Who started us may be gone with its link; the session goes on all the same.
    let _unheard = io::stdout().write_all(&bytes);
    let _unheard = io::stdout().flush();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _kept = rustix::stdio::dup2_stdout(null);
    }
}

struct Guard {
    directory: SessionDirectory,
    /// Held until everything has ended.
    _lock: OwnedFd,
    /// Held so that nobody else gets the port and the paths while a supervisor restarts its
    /// forwarder.
    _listeners: Listeners,
    place: Place,
    group: Option<Group>,
    supervisor: Child,
    /// A byte for each beat; closed when the supervisor is gone.
    line: UnixStream,
}

/// What a supervisor is started with, beside descriptors.
#[derive(Serialize, Deserialize)]
pub struct Given {
    /// The guard itself.
    pub guard: ProcessStamp,
    /// What the guard was started with.
    pub handover: Handover,
    /// The runtime directory.
    pub place: Place,
    /// The control group for programs, where there is one.
    pub group: Option<Group>,
    /// The session's directory, absolute.
    pub session_directory: ByteString,
}

struct Listeners {
    supervisor: UnixListener,
    agent: UnixListener,
    tcp: TcpListener,
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::Failed {
        what: format!("{what}: {error}"),
    }
}

/// Starts everything; `None` when another guard has the lock.
fn begin() -> Result<Option<Guard>, Refusal> {
    rustix::process::setsid().map_err(|error| failed("no session of its own", &error))?;
    adopt()?;
    let stdin = rustix::stdio::stdin();
    let memory = stdin
        .try_clone_to_owned()
        .map_err(|error| failed("no handover", &error))?;
    let handed: Handover =
        own::from_memory(memory).map_err(|error| failed("no handover", &error))?;
    let directory = SessionDirectory::make(&handed.opening, &handed.login)?;
    let Some(lock) = lock(&directory)? else {
        return Ok(None);
    };
    log_to(&directory)?;
    sweep::locked(&directory);
    let sessions = directory.path().parent().unwrap_or(directory.path());
    let opening = &handed.opening;
    sweep::others(&opening.workdir, sessions, &opening.session, &handed.login);
    let mut place = Place::make(&handed.login)
        .map_err(|(parent, error)| cannot(&parent, "used for sockets", &error))?;
    let group = Group::make();
    match start(&directory, &mut place, group.as_ref(), &lock, handed) {
        Ok((listeners, supervisor, line)) => {
            let guard = Guard {
                directory,
                _lock: lock,
                _listeners: listeners,
                place,
                group,
                supervisor,
                line,
            };
            match began(&guard.line) {
                Ok(()) => Ok(Some(guard)),
                Err(refusal) => {
                    guard.end();
                    Err(refusal)
                }
            }
        }
        Err(refusal) => {
            // What was made for nothing goes again.
            let _left = place.remove();
            if let Some(group) = group {
                group.kill();
                group.remove();
            }
            Err(refusal)
        }
    }
}

/// Waits for a supervisor's first beat. One that is slow is left to its beats later.
fn began(line: &UnixStream) -> Result<(), Refusal> {
    let mut heard = [0; REASON_MAX];
    let until = Moment::now().after(BEGIN_LIMIT);
    let count = match reading::once(line, &mut heard, until) {
        Ok(count) => count,
        Err(ReadError::Late) => return Ok(()),
        Err(error) => return Err(failed("the supervisor cannot be heard", &error)),
    };
    let heard = heard.get(..count).unwrap_or_default();
    match heard.strip_prefix(FAILURE) {
        Some(why) => Err(failed("no supervisor", &String::from_utf8_lossy(why))),
        None if heard.is_empty() => Err(failed("no supervisor", &"it ended as it began")),
        None => Ok(()),
    }
}

/// Takes in that orphans among our descendants come to us.
pub fn adopt() -> Result<(), Refusal> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| failed("orphans cannot be taken in", &error))
}

fn log_to(directory: &SessionDirectory) -> Result<(), Refusal> {
    let path = directory.path().join("log").join(LOG);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW;
    let opened = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        .map_err(|error| cannot(&path, "opened", &error.into()))?;
    rustix::stdio::dup2_stderr(&opened).map_err(|error| cannot(&path, "used", &error.into()))
}

/// A socket that only its user can connect to, whatever the login's umask is.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    // Its directory is 0700, so nobody else reaches it between these two calls.
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn listen(place: &mut Place) -> io::Result<Listeners> {
    let supervisor = bind_private(&place.supervisor_socket())?;
    place.made(SUPERVISOR_SOCKET)?;
    let agent = bind_private(&place.agent_socket())?;
    place.made(AGENT_SOCKET)?;
    Ok(Listeners {
        supervisor,
        agent,
        tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
    })
}

fn start(
    directory: &SessionDirectory,
    place: &mut Place,
    group: Option<&Group>,
    lock: &OwnedFd,
    handed: Handover,
) -> Result<(Listeners, Child, UnixStream), Refusal> {
    let listeners = listen(place).map_err(|error| failed("no listening sockets", &error))?;
    let (line, theirs) = UnixStream::pair().map_err(|error| failed("no socket", &error))?;
    let given = Given {
        guard: ProcessStamp::current(),
        handover: handed,
        place: place.clone(),
        group: group.cloned(),
        session_directory: directory.path().into(),
    };
    let memory = own::into_memory(&given).map_err(|error| failed("no handover", &error))?;
    let descriptors = [
        memory.as_fd(),
        lock.as_fd(),
        directory.opened().as_fd(),
        listeners.supervisor.as_fd(),
        listeners.agent.as_fd(),
        listeners.tcp.as_fd(),
    ];
    handover::send(&line, &descriptors).map_err(|error| failed("no handover", &error))?;
    let mut command = own::role("supervisor");
    command
        .stdin(OwnedFd::from(theirs))
        .stderr(std::process::Stdio::inherit());
    let started = command.spawn();
    // Its end of the line must be its alone.
    drop(command);
    let child = started.map_err(|error| failed("no supervisor", &error))?;
    record(directory, place, group, &child)
        .map_err(|error| cannot(&directory.path().join("supervisor"), "written", &error))?;
    Ok((listeners, child, line))
}

fn record(
    directory: &SessionDirectory,
    place: &Place,
    group: Option<&Group>,
    child: &Child,
) -> io::Result<()> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let supervisor = ProcessStamp::of(pid)
        .ok_or_else(|| io::Error::other("the supervisor ended before it began"))?;
    Record {
        uid: rustix::process::geteuid().as_raw(),
        space: PidSpace::current(),
        guard: ProcessStamp::current(),
        supervisor,
        place: place.clone(),
        group: group.cloned(),
    }
    .write(directory.opened())
}

/// What a wait for the supervisor gave.
enum Heard {
    Beat,
    Nothing,
    /// It is gone.
    End,
}

impl Guard {
    /// Waits for one beat.
    fn listen(&self) -> Heard {
        let wait = Timespec {
            tv_sec: i64::try_from(BEAT.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        loop {
            let mut polled = [PollFd::new(&self.line, PollFlags::IN)];
            match poll(&mut polled, Some(&wait)) {
                Err(Errno::INTR) => continue,
                // Who waits for a device is not stopped, and could not be killed.
                Ok(0) if self.waits_for_a_device() => return Heard::Beat,
                Ok(0) => return Heard::Nothing,
                Ok(_) | Err(_) => {}
            }
            let mut beats = [0; 64];
            return match rustix::net::recv(&self.line, &mut beats, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Heard::End,
                Ok(_) => Heard::Beat,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => Heard::End,
            };
        }
    }

    fn waits_for_a_device(&self) -> bool {
        let pid = i32::try_from(self.supervisor.id()).ok();
        pid.and_then(processes::seen)
            .is_some_and(|process| process.state == 'D')
    }

    /// Waits for the supervisor's end or silence, then ends and removes what it left.
    fn watch(mut self) {
        let mut missed = 0;
        loop {
            match self.listen() {
                Heard::Beat => missed = 0,
                Heard::Nothing => missed += 1,
                Heard::End => break,
            }
            if missed >= MISSED_MAX {
                tell("the supervisor is silent, and is killed");
                if let Err(error) = self.supervisor.kill() {
                    tell(&format!("the supervisor cannot be killed: {error}"));
                }
                break;
            }
        }
        self.end();
    }

    /// Ends and removes what a supervisor left that is gone or was killed.
    fn end(mut self) {
        if let Err(error) = self.supervisor.wait() {
            tell(&format!("the supervisor's end is unknown: {error}"));
        }
        if let Some(group) = &self.group {
            group.kill();
        }
        let left = kill::end_all(KILL_LIMIT);
        if let Some(group) = &self.group {
            group.remove();
        }
        for process in &left {
            let name = String::from_utf8_lossy(&process.name);
            tell(&format!("still there: {} {name}", process.stamp.pid));
        }
        if let Err(error) = self.place.remove() {
            tell(&format!("the runtime directory stays: {error}"));
        }
        if let Err(error) = private::clear(self.directory.opened()) {
            tell(&format!("private files stay: {error}"));
        }
        if let Err(error) = Record::remove(self.directory.opened()) {
            tell(&format!("the record stays: {error}"));
        }
    }
}
