//! The seam between a session's tunnel and what carries it: ssh in earnest, pipes in tests.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::phase::Phase;
use crate::report::Failure;
use crate::wire::link::ForwardEnd;

/// Something that is being done, behind a pointer so that carriers can be exchanged.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What may be run at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `supervise`: starts the session's supervisor when none lives.
    Supervise,
    /// `attach`: never starts one.
    Attach,
    /// `serve`: answers questions about the host.
    Serve,
    /// `mirror`: the host's end of a mirror.
    Mirror,
    /// `rsync`: the host's rsync, for a mirror whose contents it moves.
    Rsync,
}

impl Role {
    /// As an argument of `labproxy-remote`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Supervise => "supervise",
            Self::Attach => "attach",
            Self::Serve => "serve",
            Self::Mirror => "mirror",
            Self::Rsync => "rsync",
        }
    }

    /// Whether it runs as root on a host with `sudo = true`.
    pub const fn may_be_root(self) -> bool {
        match self {
            Self::Mirror | Self::Rsync => true,
            Self::Supervise | Self::Attach | Self::Serve => false,
        }
    }
}

/// Why there is no link.
#[derive(Clone, Debug)]
pub struct LinkError {
    /// In which phase.
    pub phase: Phase,
    /// What is wrong, with the remedy.
    pub failure: Failure,
    /// How long to wait at least before another try; `None` when that is of no use, as with a changed
    /// host key.
    pub retry_after: Option<Duration>,
}

/// Makes links to one host.
pub trait Transport: Send + Sync {
    /// The host, as the user names it.
    fn host(&self) -> &str;

    /// Connects and runs a role there; what is returned has been greeted, and frames may follow.
    /// Tells each phase that begins to `phases`, and keeps the limits of those phases itself.
    fn open<'a>(
        &'a self,
        role: Role,
        phases: &'a dyn PhaseWatch,
    ) -> Doing<'a, Result<Opened, LinkError>>;

    /// Resolves when no process is left here of attempts that were given up and of links that are
    /// closed.
    fn settled(&self) -> Doing<'_, ()>;
}

/// Hears of phases as they begin.
pub trait PhaseWatch: Send + Sync {
    /// This one begins now; the one before it has ended well.
    fn begin(&self, phase: Phase);
}

/// A connection whose other end answered.
pub struct Opened {
    /// From the host; what was read beyond the greeting comes first.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The pipe below the reader, for whoever waits for it in a thread of its own and never reads the other:
    /// of a mirror's end, which says nothing after its greeting before it is asked.
    pub pipe: Option<OwnedFd>,
    /// To the host.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// What lies below.
    pub carrier: Box<dyn Carrier>,
}

/// The connection below a link.
pub trait Carrier: Send + Sync {
    /// Listens on the host's unix socket `remote`, or on a port there where the server forbids that
    /// and the user allows it, and carries its connections to `local` here. Tells which.
    fn forward<'a>(
        &'a self,
        remote: &'a Path,
        local: &'a Path,
    ) -> Doing<'a, Result<ForwardEnd, LinkError>>;

    /// Resolves when the connection is gone.
    fn closed(&self) -> Doing<'_, ()>;

    /// Ends the connection and every process of it here; returns when they are gone.
    fn close(self: Box<Self>) -> Doing<'static, ()>;
}
