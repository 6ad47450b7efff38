//! The control socket of a running session: HTTP and JSON over `control.sock`.
//!
//! Only this user may speak, and nobody who descends from the session: an agent may not raise its
//! own cap. labproxy is a child subreaper, so what an agent leaves behind still shows labproxy among
//! its ancestors.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `GET /v1/session` | | the receipt as it stands |
//! | `GET /v1/status` | | [`Status`] |
//! | `POST /v1/topup` | `{"pico_usd": N}` | [`Status`] |
//! | `POST /v1/stop` | | 202, [`Status`]; the socket goes away when the session has ended |

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::processes::ProcessStamp;
use crate::id::SessionId;

/// Version of the protocol, in every path.
const PATH_SESSION: &str = "/v1/session";
const PATH_STATUS: &str = "/v1/status";
const PATH_TOPUP: &str = "/v1/topup";
const PATH_STOP: &str = "/v1/stop";

/// Callers at once: a person and a few scripts; more wait in the kernel's queue.
const CALLERS_MAX: usize = 16;
/// A request holds one number.
const REQUEST_BYTES_MAX: usize = 4 * 1024;
/// A receipt lists every request of a session; a day's work stays far below.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How long a caller may take to say what it wants, and a session to answer: the probe time of
/// `design.md` 12.
const PROBE: Duration = Duration::from_secs(10);

/// The state of a session that brings its agent's work here: an end that takes its time.
pub const PULLING: &str = "pulling";

/// A session's state in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The session.
    pub session: SessionId,
    /// The owner's pid.
    pub pid: i32,
    /// `running`, `stopping`, or [`PULLING`].
    pub state: String,
    /// The cap.
    pub cap_pico_usd: u64,
    /// Charged so far.
    pub spent_pico_usd: u64,
    /// Held by requests in flight.
    pub held_pico_usd: u64,
    /// Requests that wait for room.
    pub waiting: usize,
    /// The agent's pid, while it runs.
    pub agent_pid: Option<i32>,
    /// How the link to the agent's host is; `None`: it works here.
    #[serde(default)]
    pub link: Option<HostLink>,
}

/// How the link of a session to its host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLink {
    /// There was none yet.
    Connecting,
    /// It works.
    Up,
    /// It is lost, and tried again.
    Lost,
}

impl HostLink {
    /// The word for people, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Lost => "lost",
        }
    }
}

/// An answer of a handler: the status and a JSON value, or a sentence.
pub type Answer = Result<(StatusCode, serde_json::Value), Refusal>;

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// What the caller is told.
    pub message: String,
}

/// What a running session can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The receipt as it stands.
    Session,
    /// The state in short.
    Status,
    /// Raise the cap.
    TopUp {
        /// By so many pico-dollars.
        pico_usd: u64,
    },
    /// End the session.
    Stop,
}

/// Who answers the calls.
pub trait Controlled: Send + Sync + 'static {
    /// Does what a permitted caller asks.
    fn call(self: Arc<Self>, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopUpBody {
    pico_usd: u64,
}

/// The server of one session's control socket.
#[derive(Debug)]
pub struct ControlServer {
    refused_callers: Arc<AtomicU64>,
    tasks: TaskTracker,
    accepting: tokio::task::AbortHandle,
    path: std::path::PathBuf,
}

impl ControlServer {
    /// Binds `path` (in a 0700 directory) and answers until it is closed.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, controlled: Arc<impl Controlled>) -> io::Result<Self> {
        let listener = bind_private(path)?;
        let refused_callers = Arc::new(AtomicU64::new(0));
        let tasks = TaskTracker::new();
        let room = Arc::new(Semaphore::new(CALLERS_MAX));
        let refused = Arc::clone(&refused_callers);
        let connections = tasks.clone();
        let accepting = tasks
            .spawn(async move {
                loop {
                    let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                        return;
                    };
                    let Ok((stream, _)) = listener.accept().await else {
                        // Out of descriptors, most likely: those in use must end first.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    };
                    let controlled = Arc::clone(&controlled);
                    let refused = Arc::clone(&refused);
                    connections.spawn(async move {
                        serve(stream, controlled, &refused).await;
                        drop(permit);
                    });
                }
            })
            .abort_handle();
        Ok(Self {
            refused_callers,
            tasks,
            accepting,
            path: path.to_owned(),
        })
    }

    /// Calls that came from a descendant of the session or from another user.
    pub fn refused_callers(&self) -> u64 {
        self.refused_callers.load(Ordering::Relaxed)
    }

    /// Takes no more calls, lets the running ones end within the probe time, removes the socket.
    pub async fn close(self) {
        self.accepting.abort();
        self.tasks.close();
        let _all_answered = tokio::time::timeout(PROBE, self.tasks.wait()).await;
        let _already_gone = std::fs::remove_file(&self.path);
    }
}

/// A listening unix socket that only this user may connect to, in place of a dead one's file.
///
/// # Errors
/// When it cannot be made.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The directory is 0700, so nobody else reaches the socket between these two calls.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve<C: Controlled>(stream: UnixStream, controlled: Arc<C>, refused: &AtomicU64) {
    let allowed = check_peer(&stream);
    if let Err(refusal) = &allowed {
        refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(why = %refusal.message, "control call refused");
    }
    let service = service_fn(move |request| {
        let controlled = Arc::clone(&controlled);
        let allowed = allowed.clone();
        async move {
            let answer = match allowed {
                Ok(()) => answer(request, controlled).await,
                Err(refusal) => Err(refusal),
            };
            Ok::<_, Infallible>(response(answer))
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PROBE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "control connection ended early");
    }
}

/// Refuses other users, and everything that descends from this process.
fn check_peer(stream: &UnixStream) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal {
        status: StatusCode::FORBIDDEN,
        message,
    };
    let peer = stream
        .peer_cred()
        .map_err(|error| refuse(format!("the caller cannot be identified: {error}")))?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse(format!(
            "user {} does not own the session",
            peer.uid()
        )));
    }
    let Some(pid) = peer.pid() else {
        // No system that labproxy is tested on; the socket's mode still keeps others out.
        return Ok(());
    };
    let Some(caller) = ProcessStamp::of(pid) else {
        return Err(refuse(format!("process {pid} has ended or cannot be seen")));
    };
    if caller.ancestors().contains(&ProcessStamp::current()) {
        return Err(refuse(format!(
            "process {pid} runs inside the session; a session is not controlled from inside"
        )));
    }
    Ok(())
}

async fn answer<C: Controlled>(request: Request<Incoming>, controlled: Arc<C>) -> Answer {
    let call = read_call(request).await?;
    controlled.call(call).await
}

async fn read_call(request: Request<Incoming>) -> Result<Call, Refusal> {
    let (head, body) = request.into_parts();
    let bad = |status, message: &str| Refusal {
        status,
        message: message.to_owned(),
    };
    match (head.method, head.uri.path()) {
        (Method::GET, PATH_SESSION) => Ok(Call::Session),
        (Method::GET, PATH_STATUS) => Ok(Call::Status),
        (Method::POST, PATH_STOP) => Ok(Call::Stop),
        (Method::POST, PATH_TOPUP) => {
            let body = Limited::new(body, REQUEST_BYTES_MAX).collect();
            let body = tokio::time::timeout(PROBE, body)
                .await
                .map_err(|_| bad(StatusCode::REQUEST_TIMEOUT, "the body did not come"))?
                .map_err(|_| bad(StatusCode::BAD_REQUEST, "the body cannot be read"))?;
            let TopUpBody { pico_usd } = serde_json::from_slice(&body.to_bytes())
                .map_err(|_| bad(StatusCode::BAD_REQUEST, "the body is {\"pico_usd\": N}"))?;
            Ok(Call::TopUp { pico_usd })
        }
        _ => Err(bad(StatusCode::NOT_FOUND, "there is no such call")),
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let (status, value) = answer.unwrap_or_else(|refusal| {
        let value = serde_json::json!({ "error": refusal.message });
        (refusal.status, value)
    });
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// Why a running session did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("the session's control socket does not answer")]
    Unreachable(#[source] io::Error),
    /// It took too long.
    #[error("the session did not answer within {} s", PROBE.as_secs())]
    TimedOut,
    /// The conversation broke off.
    #[error("the session's answer cannot be read")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It refused, and says why.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// Why.
        message: String,
    },
}

/// Asks the session that listens at `socket`, and waits for its answer.
///
/// # Errors
/// When it cannot be reached, or refuses.
pub async fn ask(socket: &Path, call: &Call) -> Result<serde_json::Value, ControlError> {
    tokio::time::timeout(PROBE, ask_unbounded(socket, call))
        .await
        .map_err(|_| ControlError::TimedOut)?
}

async fn ask_unbounded(socket: &Path, call: &Call) -> Result<serde_json::Value, ControlError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(ControlError::Unreachable)?;
    let broken = |error: hyper::Error| ControlError::Broken(error.into());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let (method, path, body) = match call {
        Call::Session => (Method::GET, PATH_SESSION, String::new()),
        Call::Status => (Method::GET, PATH_STATUS, String::new()),
        Call::TopUp { pico_usd } => (
            Method::POST,
            PATH_TOPUP,
            serde_json::json!({ "pico_usd": pico_usd }).to_string(),
        ),
        Call::Stop => (Method::POST, PATH_STOP, String::new()),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "localhost")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| ControlError::Broken(error.into()))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(ControlError::Broken)?;
        Ok((status, body.to_bytes()))
    };
    let (status, body) = tokio::select! {
        done = exchange => done?,
        // It ends only after the exchange, or with an error that the exchange reports as well.
        () = async { let _ended = connection.await; std::future::pending().await } => {
            return Err(ControlError::TimedOut);
        }
    };
    let value: serde_json::Value =
        serde_json::from_slice(&body).map_err(|error| ControlError::Broken(error.into()))?;
    if status.is_success() {
        return Ok(value);
    }
    let message = value.get("error").and_then(|text| text.as_str());
    Err(ControlError::Refused {
        status,
        message: message.unwrap_or("the session refused").to_owned(),
    })
}
