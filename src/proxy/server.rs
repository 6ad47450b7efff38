//! Listeners and the clients' connections.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};

use super::peers::{Order, Peer, STRANGER_LIMIT};
use super::relay::ProxyBody;
use super::stream::{ClientSocket, ClientStream};
use super::{Proxy, serve};

/// Longest request head; `design.md` 12.
const MAX_HEAD: usize = 64 * 1024;
/// Read buffer of a connection: a head, and a piece of a large body.
const READ_BUFFER: usize = 128 * 1024;
/// How long a known client's connection may be idle, or take for a head: longer than clients keep
/// their own idle connections, so that the client is the one who closes.
const KNOWN_IDLE: Duration = Duration::from_mins(10);
/// After an error of `accept` (such as too many open files) the listener rests.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Where connections come from.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<ClientSocket> {
        match self {
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok(ClientSocket::Tcp(socket))
            }
            Self::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                Ok(ClientSocket::Unix(socket))
            }
        }
    }
}

/// Takes connections until the proxy closes; the listener is closed then.
pub(crate) async fn listen(proxy: Arc<Proxy>, listener: Listener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = proxy.closing.cancelled() => return,
        };
        match accepted {
            Ok(socket) => {
                let _started = proxy.tasks.spawn(connection(proxy.clone(), socket));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Serves one connection to its end.
async fn connection(proxy: Arc<Proxy>, socket: ClientSocket) {
    let socket = Arc::new(socket);
    let peer = proxy.peers.enter(&socket);
    let _leaving = Leaving {
        proxy: &proxy,
        peer: &peer,
    };
    let service = service_fn(|request: Request<Incoming>| answer(&proxy, &peer, request));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(KNOWN_IDLE)
        .max_header_size(MAX_HEAD)
        .max_buf_size(READ_BUFFER);
    let mut served = pin!(builder.serve_connection(TokioIo::new(ClientStream(socket)), service));
    let mut stranger_limit = pin!(tokio::time::sleep(STRANGER_LIMIT));
    let mut is_finishing = false;
    let ended = std::future::poll_fn(|cx| {
        let order = peer.order(cx.waker());
        if order == Order::End {
            return Poll::Ready(Ok(()));
        }
        if order == Order::Finish && !is_finishing {
            is_finishing = true;
            served.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = served.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if !peer.is_known() && stranger_limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// Boxed, so that a connection that streams does not keep room for the largest handler.
fn answer<'a>(
    proxy: &'a Arc<Proxy>,
    peer: &'a Arc<Peer>,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send + 'a>> {
    Box::pin(async move { Ok(serve::serve(proxy, peer, request).await) })
}

/// Takes the connection off the list however it ends.
struct Leaving<'a> {
    proxy: &'a Proxy,
    peer: &'a Peer,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.proxy.peers.leave(self.peer);
    }
}
