//! The upstream: a pool of connections to one origin, and sending one request on one of them.
//!
//! The pool is this program's own for two reasons. A hold turns into money at risk at a known
//! point, between having a connection and handing the request to it; and a request may be sent a
//! second time only where it is provable that the first never counted. Nothing is retried here.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::connect::{CONNECT_LIMIT, ConnectError, Connected, Connector};
use super::driven::{Driver, Shared as Driven};
use super::tasks::Tasks;
use super::{ProxySetupError, UpstreamSettings};

/// An idle HTTP/2 connection is used again within this time; beyond it a NAT may have dropped it
/// without a word, and a request sent into the void costs its whole hold.
const HTTP2_IDLE: Duration = Duration::from_mins(1);
/// Streams per HTTP/2 connection: the least that RFC 9113 advises a server to allow.
const HTTP2_STREAMS: usize = 100;
/// Most idle HTTP/1.1 connections kept; as many as a session's clients have by default.
const MAX_IDLE: usize = 256;
/// Bytes of one response that may wait here for a slow client.
const HTTP2_STREAM_WINDOW: u32 = 256 * 1024;
/// Bytes of all responses on one connection that may wait here: 64 slow clients do not stall it.
const HTTP2_CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// While a response is awaited, a dead HTTP/2 peer is noticed within twice this time.
const HTTP2_PING: Duration = Duration::from_secs(30);
/// Read buffer of an HTTP/1.1 connection, and so the limit of a response's head.
const HTTP1_BUFFER: usize = 64 * 1024;
/// How long a connection that has just delivered a whole response may take to be ready again.
const SETTLE_DOWN: Duration = Duration::from_millis(50);

/// One request, without its credential's and host's headers.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// Path and query below the base URL.
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The connection closed before it took the request: not a byte was sent.
    NotSent,
    /// The peer declared that it did not process the request.
    Unprocessed,
    /// Anything else; nobody knows what the peer did.
    Broken,
}

/// Connections to one origin.
pub(crate) struct Upstream {
    connector: Connector,
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    prefix: String,
    /// An idle HTTP/1.1 connection is used again only within this time.
    http1_idle: Duration,
    tasks: Tasks,
    pool: Mutex<Pool>,
    /// Connecting is single-flight until the peer is known to speak HTTP/1.1 only.
    connecting: tokio::sync::Mutex<()>,
    http1_only: AtomicBool,
}

#[derive(Default)]
struct Pool {
    closed: bool,
    http1: Vec<(Http1, Instant)>,
    http2: Vec<Shared>,
}

/// A connection for one request at a time.
struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    driven: Arc<Driven>,
}

struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<AtomicUsize>,
    used: Instant,
}

/// A connection that is ready to take one request.
pub(crate) struct Ready {
    upstream: Arc<Upstream>,
    sender: Sender,
}

enum Sender {
    Http1(Http1),
    Http2(http2::SendRequest<Full<Bytes>>, StreamCount),
}

/// One stream of a shared connection, counted while it lives.
struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    fn take(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(streams.clone())
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a connection for one response; giving it back lets the next request use it.
pub(crate) struct Lease {
    upstream: Arc<Upstream>,
    sender: Sender,
    /// `None` for a connection that others read from too.
    driver: Option<Driver>,
}

impl Lease {
    /// Lets the connection read on for whoever waits for its response; whether that is possible.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let driver = self.driver.as_mut();
        driver.map(|driver| driver.drive(cx)).is_some()
    }

    /// The response was read to its end.
    pub(crate) fn give_back(self) {
        match self.sender {
            Sender::Http1(http1) if !http1.sender.is_closed() => {
                // Its own task has it again before another request can.
                drop(self.driver);
                let mut pool = self.upstream.lock();
                if !pool.closed && pool.http1.len() < MAX_IDLE {
                    pool.http1.push((http1, Instant::now()));
                }
            }
            Sender::Http1(_) | Sender::Http2(..) => {}
        }
    }
}

impl Upstream {
    /// # Errors
    /// When the URL cannot be used, or the roots cannot be loaded.
    pub(crate) fn new(
        settings: &UpstreamSettings,
        http1_idle: Duration,
        tasks: Tasks,
    ) -> Result<Arc<Self>, ProxySetupError> {
        let connector = Connector::new(settings)?;
        let url = settings.base_url.clone().into_parts();
        let bad = || ProxySetupError::Upstream {
            what: format!("'{}' is not a URL with a host", settings.base_url),
        };
        let scheme = url.scheme.ok_or_else(bad)?;
        // User information would be a credential in the wrong place; the host is a constant.
        let authority = url.authority.ok_or_else(bad)?;
        let host = match authority.as_str().rsplit_once('@') {
            Some((_, host)) => host,
            None => authority.as_str(),
        };
        let default_port = if scheme == Scheme::HTTPS {
            ":443"
        } else {
            ":80"
        };
        let host = host.strip_suffix(default_port).unwrap_or(host);
        let path = url.path_and_query.as_ref().map_or("", PathAndQuery::path);
        Ok(Arc::new(Self {
            connector,
            authority: host.parse().map_err(|_| bad())?,
            host: HeaderValue::from_str(host).map_err(|_| bad())?,
            prefix: path.trim_end_matches('/').to_owned(),
            scheme,
            http1_idle,
            tasks,
            pool: Mutex::new(Pool::default()),
            connecting: tokio::sync::Mutex::new(()),
            http1_only: AtomicBool::new(false),
        }))
    }

    /// A connection that is ready for one request: an idle one, or a new one.
    ///
    /// # Errors
    /// When none can be made; nothing was sent.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Ready, ConnectError> {
        if let Some(sender) = self.pooled().await {
            return Ok(self.with(sender));
        }
        if self.scheme == Scheme::HTTP || self.http1_only.load(Ordering::Relaxed) {
            return Ok(self.with(self.connect().await?));
        }
        // Whoever waits here behind an upstream that does not answer gives up as if it had tried.
        let turn = tokio::time::timeout(CONNECT_LIMIT, self.connecting.lock()).await;
        let _turn = turn.map_err(|_| self.connector.too_late())?;
        if let Some(sender) = self.pooled().await {
            return Ok(self.with(sender));
        }
        Ok(self.with(self.connect().await?))
    }

    /// Closes idle connections; the others close when their response ends.
    pub(crate) fn close(&self) {
        let mut pool = self.lock();
        *pool = Pool {
            closed: true,
            ..Pool::default()
        };
    }

    fn with(self: &Arc<Self>, sender: Sender) -> Ready {
        Ready {
            upstream: self.clone(),
            sender,
        }
    }

    async fn pooled(&self) -> Option<Sender> {
        loop {
            let mut http1 = match self.take()? {
                Sender::Http1(http1) => http1,
                shared @ Sender::Http2(..) => return Some(shared),
            };
            if http1.sender.is_ready() {
                return Some(Sender::Http1(http1));
            }
            // It may have delivered its last response a moment ago; a closed one fails at once.
            if let Ok(Ok(())) = tokio::time::timeout(SETTLE_DOWN, http1.sender.ready()).await {
                return Some(Sender::Http1(http1));
            }
        }
    }

    /// The most recently used connection that is fresh enough.
    fn take(&self) -> Option<Sender> {
        let mut pool = self.lock();
        let now = Instant::now();
        pool.http2.retain(|shared| {
            let streams = shared.streams.load(Ordering::Relaxed);
            let is_stale = streams == 0 && now.duration_since(shared.used) > HTTP2_IDLE;
            !is_stale && !shared.sender.is_closed()
        });
        for shared in &mut pool.http2 {
            if shared.streams.load(Ordering::Relaxed) < HTTP2_STREAMS {
                shared.used = now;
                let count = StreamCount::take(&shared.streams);
                return Some(Sender::Http2(shared.sender.clone(), count));
            }
        }
        match pool.http1.pop() {
            Some((http1, since)) if now.duration_since(since) <= self.http1_idle => {
                Some(Sender::Http1(http1))
            }
            Some(_) => {
                // The ones below it have been idle for longer still.
                pool.http1.clear();
                None
            }
            None => None,
        }
    }

    async fn connect(&self) -> Result<Sender, ConnectError> {
        let Connected { stream, http2 } = self.connector.connect().await?;
        let io = TokioIo::new(stream);
        let failed = |error: hyper::Error| ConnectError::Tcp {
            host: self.host.to_str().unwrap_or_default().to_owned(),
            source: std::io::Error::other(error),
        };
        if http2 {
            let (sender, connection) = http2::Builder::new(self.tasks.clone())
                .timer(TokioTimer::new())
                .initial_stream_window_size(HTTP2_STREAM_WINDOW)
                .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
                .keep_alive_interval(HTTP2_PING)
                .keep_alive_timeout(HTTP2_PING)
                .handshake(io)
                .await
                .map_err(failed)?;
            self.drive(connection);
            let streams = Arc::new(AtomicUsize::new(0));
            let count = StreamCount::take(&streams);
            let mut pool = self.lock();
            if !pool.closed {
                pool.http2.push(Shared {
                    sender: sender.clone(),
                    streams,
                    used: Instant::now(),
                });
            }
            return Ok(Sender::Http2(sender, count));
        }
        self.http1_only.store(true, Ordering::Relaxed);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HTTP1_BUFFER)
            .handshake(io)
            .await
            .map_err(failed)?;
        let driven = Driven::new(connection);
        self.tasks.spawn(driven.driving());
        Ok(Sender::Http1(Http1 { sender, driven }))
    }

    fn drive(&self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an upstream connection ended");
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, path: PathAndQuery) -> Result<PathAndQuery, http::Error> {
        if self.prefix.is_empty() {
            return Ok(path);
        }
        Ok(PathAndQuery::try_from(format!("{}{path}", self.prefix))?)
    }
}

impl Ready {
    /// Hands the request over. From here on only an answer tells what the peer did, unless the
    /// error says otherwise.
    ///
    /// # Errors
    /// Why there is no response head.
    pub(crate) async fn send(
        self,
        outgoing: Outgoing,
    ) -> Result<(Response<Incoming>, Lease), SendError> {
        let Self { upstream, sender } = self;
        let is_http2 = matches!(sender, Sender::Http2(..));
        // A path that was routed and a prefix that was parsed always make a URL.
        let request = upstream
            .request(outgoing, is_http2)
            .map_err(|_| SendError::NotSent)?;
        let (response, sender, driver) = match sender {
            Sender::Http1(mut http1) => {
                let response = http1.sender.try_send_request(request).await;
                let driver = http1.driven.driver();
                (response.map_err(judge)?, Sender::Http1(http1), Some(driver))
            }
            Sender::Http2(mut sender, count) => {
                let response = sender.try_send_request(request).await;
                (response.map_err(judge)?, Sender::Http2(sender, count), None)
            }
        };
        let lease = Lease {
            upstream,
            sender,
            driver,
        };
        Ok((response, lease))
    }
}

impl Upstream {
    /// HTTP/1.1 wants the path and a `Host`, HTTP/2 the whole URL.
    fn request(
        &self,
        outgoing: Outgoing,
        is_http2: bool,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let path = self.path(outgoing.path)?;
        let mut request = Request::new(Full::new(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.headers_mut() = outgoing.headers;
        *request.uri_mut() = if is_http2 {
            Uri::builder()
                .scheme(self.scheme.clone())
                .authority(self.authority.clone())
                .path_and_query(path)
                .build()?
        } else {
            request.headers_mut().insert(HOST, self.host.clone());
            Uri::from(path)
        };
        Ok(request)
    }
}

/// What a failed attempt proves about the peer.
fn judge<T>(mut error: TrySendError<T>) -> SendError {
    if error.take_message().is_some() {
        return SendError::NotSent;
    }
    let error = error.into_error();
    let declared = error
        .source()
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(is_declared_unprocessed);
    if declared {
        SendError::Unprocessed
    } else {
        tracing::warn!(%error, "the upstream gave no answer");
        SendError::Broken
    }
}

/// A GOAWAY reaches only the streams above its last id; those below go on.
fn is_declared_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (is_refused || error.is_go_away())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that wait for another's connection do not add up their times.
    #[tokio::test(start_paused = true)]
    async fn many_that_connect_to_a_silent_upstream_give_up_together() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = UpstreamSettings {
            base_url: format!("https://{}", silent.local_addr().unwrap())
                .parse()
                .unwrap(),
            allow_private: false,
            ca_file: None,
            http_proxy: None,
        };
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        let upstream = Upstream::new(&settings, Duration::from_secs(4), tasks).unwrap();
        let begun = Instant::now();
        let all = futures_util::future::join_all((0..8).map(|_| upstream.ready())).await;
        for one in all {
            assert!(matches!(one, Err(ConnectError::Timeout { .. })));
        }
        assert!(
            begun.elapsed() <= CONNECT_LIMIT * 2,
            "{:?}",
            begun.elapsed()
        );
    }
}
