//! The sockets that the agent connects to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt;

/// The unix socket's name in its directory.
pub const SOCKET_NAME: &str = "agent.sock";

/// A port of 127.0.0.1 and a unix socket, both listening. Whoever holds it holds the port.
#[derive(Debug)]
pub struct Listeners {
    tcp: TcpListener,
    unix: UnixListener,
    address: SocketAddrV4,
}

impl Listeners {
    /// Takes a free port and makes [`SOCKET_NAME`] in `directory`, which must be 0700 and ours:
    /// between the socket's making and its 0600 only that keeps others out.
    ///
    /// # Errors
    /// As the system says.
    pub fn bind(directory: &Path) -> io::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let path = directory.join(SOCKET_NAME);
        let unix = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Self::new(tcp, unix)
    }

    /// Takes sockets that listen already, from another process.
    ///
    /// # Errors
    /// When they are not an IPv4 and a unix socket.
    pub fn from_descriptors(tcp: OwnedFd, unix: OwnedFd) -> io::Result<Self> {
        Self::new(TcpListener::from(tcp), UnixListener::from(unix))
    }

    fn new(tcp: TcpListener, unix: UnixListener) -> io::Result<Self> {
        let SocketAddr::V4(address) = tcp.local_addr()? else {
            return Err(io::Error::other("a port of another family than IPv4"));
        };
        unix.local_addr()?;
        // What is accepted has these from the listening socket, without a call for each connection.
        // Whatever ends the process that accepted resets its connections: no part looks whole.
        sockopt::set_tcp_nodelay(&tcp, true)?;
        sockopt::set_socket_linger(&tcp, Some(Duration::ZERO))?;
        // Of the open socket, not of a descriptor: every process that holds it sees the same.
        tcp.set_nonblocking(true)?;
        unix.set_nonblocking(true)?;
        Ok(Self { tcp, unix, address })
    }

    /// The port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The port's address: that of our end of every connection to it.
    pub(super) const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The two sockets, the port's first, to be passed on.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.tcp.as_fd(), self.unix.as_fd()]
    }

    /// The port's socket.
    pub(super) const fn tcp(&self) -> &TcpListener {
        &self.tcp
    }

    /// The unix socket.
    pub(super) const fn unix(&self) -> &UnixListener {
        &self.unix
    }
}
