//! The supervisor's hold on its forwarder.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::listeners::Listeners;
use super::order::{self, Order};
use super::probe::Prober;
use crate::wire::link::ForwardEnd;

/// The role's name on the command line.
pub const ROLE: &str = "forward";
/// This program, also when its file was removed or replaced.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// What the forwarder was told last: a new one is told the same.
#[derive(Debug)]
enum Link {
    Up(ForwardEnd),
    Down { lease_ends: Instant },
}

impl Link {
    fn order(&self) -> Order {
        match self {
            Self::Up(end) => Order::Up(end.clone()),
            Self::Down { lease_ends } => {
                let left = lease_ends.saturating_duration_since(Instant::now());
                Order::Down {
                    lease_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                }
            }
        }
    }
}

/// A forwarder and the sockets that it accepts from. Dropping it ends the process and frees the
/// port.
#[derive(Debug)]
pub struct Forwarder {
    program: PathBuf,
    listeners: Listeners,
    link: Link,
    process: Child,
    control: OwnedFd,
}

impl Forwarder {
    /// Starts `program`, which is [`OWN_PROGRAM`] but in tests, as a forwarder. No link works yet;
    /// one may come for `lease`.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(program: &Path, listeners: Listeners, lease: Duration) -> io::Result<Self> {
        let link = down_for(lease);
        let (process, control) = launch(program, &listeners, &link)?;
        Ok(Self {
            program: program.to_owned(),
            listeners,
            link,
            process,
            control,
        })
    }

    /// The proxy is behind `end` from now on. Connections of another link end as
    /// [`Self::down`] says; the same again changes nothing.
    pub fn up(&mut self, end: &ForwardEnd) {
        self.link = Link::Up(end.clone());
        self.tell();
    }

    /// No link works; one may come for `lease`. Requests without any byte of their answer get a
    /// 503, answers that have begun are cut, idle connections closed; new ones wait.
    pub fn down(&mut self, lease: Duration) {
        self.link = down_for(lease);
        self.tell();
    }

    /// Becomes readable when the forwarder has ended; then it wants [`Self::restart`].
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Starts a new forwarder in place of one that ended (or that is ended now), with the same
    /// sockets and told the same. Connections that wait to be accepted are not lost.
    ///
    /// # Errors
    /// When the process cannot be started; the next try may do it.
    pub fn restart(&mut self) -> io::Result<()> {
        self.end_process();
        (self.process, self.control) = launch(&self.program, &self.listeners, &self.link)?;
        Ok(())
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The port on 127.0.0.1: the same for its whole life.
    pub const fn port(&self) -> u16 {
        self.listeners.port()
    }

    /// What asks through the whole chain; it waits for the answer, so it is for another thread.
    pub const fn prober(&self) -> Prober {
        Prober::new(self.port())
    }

    /// A forwarder that cannot be told is ended, and the one that [`Self::restart`] brings is told.
    fn tell(&mut self) {
        if order::send(self.control.as_fd(), &self.link.order(), None).is_err() {
            self.end_process();
        }
    }

    /// Ends and reaps it. Another part of the supervisor may have reaped it before: then its pid
    /// is nobody's or somebody else's, and the library does not signal what it knows to be reaped
    /// only by itself, so the control socket is asked first.
    fn end_process(&mut self) {
        if !order::is_closed(self.control.as_fd()) {
            // It lives, and nobody else reaps the living.
            drop(self.process.kill());
        }
        drop(self.process.wait());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.end_process();
    }
}

fn down_for(lease: Duration) -> Link {
    let now = Instant::now();
    Link::Down {
        lease_ends: now.checked_add(lease).unwrap_or(now),
    }
}

/// Starts the process and gives it its sockets.
fn launch(program: &Path, listeners: &Listeners, link: &Link) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = order::pair()?;
    order::send(ours.as_fd(), &link.order(), Some(listeners))?;
    let process = Command::new(program)
        .arg(ROLE)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((process, ours))
}
