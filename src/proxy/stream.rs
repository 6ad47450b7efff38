//! The two byte streams of a proxied call: the client's socket and the upstream's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
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
            let (room, before) = (buf.remaining(), buf.filled().len());
            let done = on_socket!(&*self.0, socket => socket.try_io(Interest::READABLE, || {
                let length = socket.try_read_buf(buf)?;
                // A short read has emptied the socket. Said in this way, while the runtime still
                // knows what it had heard before the read, the next read waits for news; otherwise
                // it would ask the kernel in vain once per message. What came since is not lost.
                if length > 0 && length < room {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(())
            }));
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if buf.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
                done => return Poll::Ready(done),
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Bytes that come while or after a short read took all there was wake the reader, and so does
    /// the end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_bytes_are_slept_through_after_a_short_read() {
        const MESSAGES: usize = 20_000;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let writing = tokio::spawn(async move {
            for number in 0..MESSAGES {
                theirs.write_all(b"message").await.unwrap();
                if number % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut stream = ClientStream(Arc::new(ClientSocket::Unix(ours)));
        let reading = async {
            let (mut buffer, mut total) = (vec![0; 1024], 0);
            loop {
                match stream.read(&mut buffer).await.unwrap() {
                    0 => return total,
                    length => total += length,
                }
            }
        };
        let limit = std::time::Duration::from_mins(1);
        let total = tokio::time::timeout(limit, reading).await.unwrap();
        assert_eq!(total, MESSAGES * b"message".len());
        writing.await.unwrap();
    }
}
