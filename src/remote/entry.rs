//! `supervise` and `attach`: what ssh runs. They greet, read which session is meant, find its
//! supervisor or start one, and become a pipe to it.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::wire::frame::{self, FRAME_MAX};
use crate::wire::greeting::{Nonce, greeting};
use crate::wire::link::{FromHost, Opening, Refusal};

use super::clock::Moment;
use super::controller::{hear, say};
use super::directory::{SessionDirectory, cannot};
use super::login::Login;
use super::record::Record;
use super::{own, pipe, reading, sweep};

/// The lock that a guard and its supervisor hold, in the session's directory.
const LOCK: &str = "lock";
/// How long a controller may take to say which session it wants.
const OPENING_LIMIT: Duration = Duration::from_mins(1);
/// How long a supervisor may take to answer: it starts, or one that is ending goes.
const REACH_LIMIT: Duration = Duration::from_secs(8);
/// How long a guard may take to begin: it sweeps what dead sessions left, a second for each that has
/// a control group. The controller waits a little longer.
const GUARD_LIMIT: Duration = Duration::from_secs(12);
/// Between two looks at a lock, of which nothing tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a guard is started with.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    /// What the controller asked for.
    pub opening: Opening,
    /// What the login gave.
    pub login: Login,
}

/// What a guard tells who started it.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardAnswer {
    /// The supervisor runs.
    Ready,
    /// Another guard holds the session's lock.
    Locked,
    /// There is no supervisor.
    Refused(Refusal),
}

/// The role `supervise`.
///
/// # Errors
/// When the channel is broken.
pub fn supervise(nonce: Nonce, login: &Login) -> Result<(), String> {
    let opening = greet(nonce)?;
    let may_start = !opening.must_live;
    become_link(&opening, reach(&opening, login, may_start))
}

/// The role `attach`: never starts a supervisor.
///
/// # Errors
/// When the channel is broken.
pub fn attach(nonce: Nonce, login: &Login) -> Result<(), String> {
    let opening = greet(nonce)?;
    become_link(&opening, reach(&opening, login, false))
}

fn become_link(opening: &Opening, reached: Result<UnixStream, Refusal>) -> Result<(), String> {
    let linked = reached.and_then(|socket| {
        let mut bytes = Vec::new();
        frame::encode(opening, &mut bytes).map_err(|error| failed(&error))?;
        (&socket)
            .write_all(&bytes)
            .map_err(|error| failed(&error))?;
        Ok(socket)
    });
    match linked {
        Ok(socket) => pipe::run(&socket).map_err(|error| error.to_string()),
        Err(refusal) => {
            let mut bytes = Vec::new();
            let message = FromHost::Refused(refusal);
            frame::encode(&message, &mut bytes).map_err(|error| error.to_string())?;
            say(&bytes)
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::Failed {
        what: error.to_string(),
    }
}

/// Greets, and reads the opening: its bytes and not one more, the rest is the link's.
fn greet(nonce: Nonce) -> Result<Opening, String> {
    say(&greeting(nonce))?;
    let message = hear(OPENING_LIMIT)?.ok_or("the controller left before it said what it wants")?;
    frame::decode(&message).map_err(|error| error.to_string())
}

/// Takes the session's lock if nobody has it.
///
/// # Errors
/// When the file system has no locks, or the file cannot be made.
pub fn lock(directory: &SessionDirectory) -> Result<Option<OwnedFd>, Refusal> {
    let path = directory.path().join(LOCK);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let opened = rustix::fs::openat(directory.opened(), LOCK, flags, mode)
        .map_err(|error| cannot(&path, "made", &error.into()))?;
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(opened)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(cannot(&path, "locked", &error.into())),
    }
}

/// Connects to the session's supervisor; one is started when none lives and that `may_start`.
fn reach(opening: &Opening, login: &Login, may_start: bool) -> Result<UnixStream, Refusal> {
    let directory = if may_start {
        SessionDirectory::make(opening, login)?
    } else {
        SessionDirectory::find(&opening.workdir, &opening.session, login)?
    };
    let until = Moment::now().after(REACH_LIMIT);
    let mut may_start = may_start;
    loop {
        if lock(&directory)?.is_some() {
            // Nobody held it; ours is closed again by now, for the guard to take.
            if !may_start {
                return Err(Refusal::NoSupervisor);
            }
            match start_guard(opening, login)? {
                GuardAnswer::Ready => may_start = false,
                GuardAnswer::Locked => {}
                GuardAnswer::Refused(refusal) => return Err(refusal),
            }
        }
        let record = Record::read(directory.opened());
        if let Some(record) = &record {
            sweep::wake(record);
        }
        let socket = record
            .as_ref()
            .map(|record| record.place.supervisor_socket());
        if let Some(socket) = socket
            && let Ok(connected) = connect(&socket)
        {
            return Ok(connected);
        }
        if Moment::now() >= until {
            let pid = record.map_or(0, |record| record.supervisor.pid);
            return Err(Refusal::Busy {
                pid: u32::try_from(pid).unwrap_or_default(),
            });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let connected = UnixStream::connect(socket)?;
    let peer = rustix::net::sockopt::socket_peercred(&connected)?;
    if peer.uid == rustix::process::geteuid() {
        return Ok(connected);
    }
    Err(io::Error::other("another user listens there"))
}

/// Starts a guard, which outlives us, and waits for what it says. One that says nothing in time hangs
/// in its directory's file system, and is left to it.
fn start_guard(opening: &Opening, login: &Login) -> Result<GuardAnswer, Refusal> {
    let handover = Handover {
        opening: opening.clone(),
        login: login.clone(),
    };
    let memory = own::into_memory(&handover).map_err(|error| failed(&error))?;
    let (answer, theirs) = io::pipe().map_err(|error| failed(&error))?;
    let mut command = own::role("guard");
    command.stdin(memory).stdout(theirs);
    let started = command.spawn();
    // The pipe's other end lives in the command.
    drop(command);
    let mut child = started.map_err(|error| failed(&format!("no guard: {error}")))?;
    let Ok(bytes) = reading::whole(&answer, FRAME_MAX, Moment::now().after(GUARD_LIMIT)) else {
        let seconds = GUARD_LIMIT.as_secs();
        return Err(failed(&format!(
            "the guard did not begin within {seconds} s: is the file system of the workdir up?"
        )));
    };
    match postcard::from_bytes(&bytes) {
        Ok(answer @ GuardAnswer::Ready) => Ok(answer),
        Ok(answer) => {
            // It ends now.
            child.wait().map_err(|error| failed(&error))?;
            Ok(answer)
        }
        Err(_) => Err(failed(&"the guard ended before it said anything")),
    }
}
