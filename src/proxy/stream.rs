//! The two byte streams of a proxied call: the client's socket and the upstream's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A client's socket. It is shared, so that a request can look whether its client is still there
/// while hyper owns the connection.
#[derive(Debug)]
pub(crate) enum ClientSocket {
    /// From the loopback listener.
    Tcp(TcpStream),
    /// From the unix socket.
    Unix(UnixStream),
}

macro_rules! on_socket {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket {
            ClientSocket::Tcp($inner) => $call,
            ClientSocket::Unix($inner) => $call,
        }
    };
}

impl ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on_socket!(self, socket => socket.as_fd())
    }

    /// Whether the client has closed its side, as of now: asks the kernel without waiting for the
    /// runtime to hear of it.
    pub(crate) fn has_left(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.as_fd(), &mut byte, flags) {
            Ok((_, length)) => length == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }
}

/// A client's connection as hyper reads and writes it.
pub(crate) struct ClientStream(pub(crate) Arc<ClientSocket>);

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(on_socket!(&*self.0, socket => socket.poll_read_ready(cx)))?;
            match on_socket!(&*self.0, socket => socket.try_read_buf(buf)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(on_socket!(&*self.0, socket => socket.poll_write_ready(cx)))?;
            match on_socket!(&*self.0, socket => socket.try_write(buf)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(self.0.as_fd(), Shutdown::Write).map_err(io::Error::from))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(on_socket!(&*self.0, socket => socket.poll_write_ready(cx)))?;
            match on_socket!(&*self.0, socket => socket.try_write_vectored(bufs)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// A connection to the upstream.
#[derive(Debug)]
pub(crate) enum UpstreamStream {
    /// Without TLS, to a loopback address.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! on_upstream {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            UpstreamStream::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            UpstreamStream::Tls($inner) => {
                let $inner = Pin::new($inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_upstream!(self, inner => inner.poll_read(cx, buf))
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_upstream!(self, inner => inner.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_upstream!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_upstream!(self, inner => inner.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_upstream!(self, inner => inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(inner) => inner.is_write_vectored(),
            Self::Tls(inner) => inner.is_write_vectored(),
        }
    }
}
