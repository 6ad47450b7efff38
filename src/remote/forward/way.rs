//! The way to the proxy: connections to where the link's ssh listens, and one that is opened before
//! anybody needs it.
//!
//! A connection through the link takes a round trip before it carries anything, and each program on
//! the way has to be woken for it. The next client need not wait for that: when an answer begins, one
//! connection is opened for whoever comes next. It carries nothing until a client has it alone.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
    sockopt,
};

use super::peer::Peers;
use crate::wire::link::ForwardEnd;

/// How long a connection is kept for a client that may come. The proxy gives each 10 s to ask its
/// first question (`STRANGER_LIMIT`); the other half is for the question's way there.
const READY_FOR: Duration = Duration::from_secs(5);

/// A connection that nobody has used.
#[derive(Debug)]
struct Ready {
    socket: OwnedFd,
    until: Instant,
}

impl Ready {
    /// Whether it is young enough, still open, and has said nothing: a proxy that says something
    /// before it was asked is about to close.
    fn is_good(&self, now: Instant) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let said = recv(&self.socket, &mut [0; 1], flags);
        now < self.until && matches!(said, Err(Errno::AGAIN))
    }
}

/// The way to the proxy, for as long as a link works.
#[derive(Debug)]
pub(super) struct Way {
    end: ForwardEnd,
    ready: Option<Ready>,
    /// A client came since one was opened ahead: another may follow.
    is_used: bool,
}

impl Way {
    /// By this link.
    pub(super) const fn new(end: ForwardEnd) -> Self {
        Self {
            end,
            ready: None,
            is_used: false,
        }
    }

    /// Where the link's ssh listens.
    pub(super) const fn end(&self) -> &ForwardEnd {
        &self.end
    }

    /// A connection for a client: the one that is ready, or a new one.
    ///
    /// # Errors
    /// When the link takes none at the moment.
    pub(super) fn take(&mut self, peers: &Peers, now: Instant) -> io::Result<OwnedFd> {
        self.is_used = true;
        match self.ready.take().filter(|ready| ready.is_good(now)) {
            Some(ready) => Ok(ready.socket),
            None => upstream(&self.end, peers),
        }
    }

    /// An answer came by it: now a connection for the next client is in nobody's way.
    pub(super) fn answered(&mut self, peers: &Peers, now: Instant) {
        if self.is_used && self.ready.is_none() {
            self.is_used = false;
            // One that cannot be had is tried again by the client who needs it.
            self.ready = upstream(&self.end, peers).ok().map(|socket| Ready {
                socket,
                until: now + READY_FOR,
            });
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ready.as_ref().map(|ready| ready.until)
    }

    /// Closes what nobody came for.
    pub(super) fn on_time(&mut self, now: Instant) {
        self.ready = self.ready.take().filter(|ready| now < ready.until);
    }
}

/// Connects to where a link's ssh listens. A socket takes that at once or not at all; a port of the
/// loopback is asked at once whether it refused.
fn upstream(end: &ForwardEnd, peers: &Peers) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let port = match end {
        ForwardEnd::Socket(socket) => {
            let upstream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            connect(&upstream, &SocketAddrUnix::new(socket.to_path_buf())?)?;
            return Ok(upstream);
        }
        ForwardEnd::Port(port) => *port,
    };
    let upstream = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&upstream, true)?;
    match connect(&upstream, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => sockopt::socket_error(&upstream)??,
        Err(error) => return Err(error.into()),
    }
    // Before a byte is sent: when ssh is gone, anybody may listen where it did.
    if peers.is_friend_listening(port) {
        Ok(upstream)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
