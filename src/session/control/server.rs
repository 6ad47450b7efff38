//! The server of a control socket: who may ask, and what was asked.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::stream::{self, EventBody};
use super::{Call, Controlled, PROBE, Refusal, TopUpBody};
use crate::processes::ProcessStamp;
use crate::session::workspace::asked::Direction;

/// Callers at once: a person and a few scripts; more wait in the kernel's queue.
const CALLERS_MAX: usize = 16;
/// Those of them who watch: calls keep half of the places.
const SUBSCRIBERS_MAX: usize = 8;
/// How long subscribers may take to read the last event of a session that has ended.
const LAST_READ: Duration = Duration::from_secs(1);
/// A request holds one number.
const REQUEST_BYTES_MAX: usize = 4 * 1024;

/// An answer that is there, or one that goes on.
type AnswerBody = Either<Full<Bytes>, EventBody>;

/// The body of a call that has no options: what is no option yet is not passed over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoBody {}

/// The server of one session's control socket.
#[derive(Debug)]
pub struct ControlServer {
    refused_callers: Arc<AtomicU64>,
    tasks: TaskTracker,
    /// Cuts off those who only watch.
    cut: CancellationToken,
    accepting: tokio::task::AbortHandle,
    path: std::path::PathBuf,
}

/// What all connections have in common.
struct Shared<C> {
    controlled: Arc<C>,
    refused_callers: Arc<AtomicU64>,
    subscribers: Arc<Semaphore>,
    tasks: TaskTracker,
    cut: CancellationToken,
}

impl ControlServer {
    /// Binds `path` (in a 0700 directory) and answers until it is closed.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, controlled: Arc<impl Controlled>) -> io::Result<Self> {
        let listener = bind_private(path)?;
        let tasks = TaskTracker::new();
        let room = Arc::new(Semaphore::new(CALLERS_MAX));
        let shared = Arc::new(Shared {
            controlled,
            refused_callers: Arc::default(),
            subscribers: Arc::new(Semaphore::new(SUBSCRIBERS_MAX)),
            tasks: tasks.clone(),
            cut: CancellationToken::new(),
        });
        let (refused_callers, cut) = (Arc::clone(&shared.refused_callers), shared.cut.clone());
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
                    let shared = Arc::clone(&shared);
                    shared.tasks.clone().spawn(async move {
                        serve(stream, shared).await;
                        drop(permit);
                    });
                }
            })
            .abort_handle();
        Ok(Self {
            refused_callers,
            tasks,
            cut,
            accepting,
            path: path.to_owned(),
        })
    }

    /// Calls that came from a descendant of the session or from another user.
    pub fn refused_callers(&self) -> u64 {
        self.refused_callers.load(Ordering::Relaxed)
    }

    /// Takes no more calls, lets the running ones end within the probe time, removes the socket. Who
    /// watches must have read the last event within a second.
    pub async fn close(self) {
        self.accepting.abort();
        self.tasks.close();
        let all = tokio::time::timeout(LAST_READ, self.tasks.wait()).await;
        if all.is_err() {
            self.cut.cancel();
            let _all_answered = tokio::time::timeout(PROBE, self.tasks.wait()).await;
        }
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

async fn serve<C: Controlled>(stream: UnixStream, shared: Arc<Shared<C>>) {
    let allowed = check_peer(&stream);
    if let Err(refusal) = &allowed {
        shared.refused_callers.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(why = %refusal.message, "control call refused");
    }
    let cut = shared.cut.clone();
    let watches = Arc::new(AtomicBool::new(false));
    let is_watching = Arc::clone(&watches);
    let service = service_fn(move |request| {
        let (shared, watches) = (Arc::clone(&shared), Arc::clone(&watches));
        let allowed = allowed.clone();
        async move {
            let answer = match allowed {
                Ok(()) => answer(request, &shared, &watches).await,
                Err(refusal) => Err(refusal),
            };
            Ok::<_, Infallible>(answer.unwrap_or_else(|refusal| {
                let status = refusal.status;
                response(status, &refusal.into_value())
            }))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PROBE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = connection => if let Err(error) = served {
            tracing::debug!(%error, "control connection ended early");
        },
        () = cut_off(&cut, &is_watching) => {}
    }
}

/// Resolves when nobody waits any more for a connection that only watches.
async fn cut_off(cut: &CancellationToken, watches: &AtomicBool) {
    cut.cancelled().await;
    if !watches.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Refuses other users, and everything that descends from this process.
fn check_peer(stream: &UnixStream) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal::new(StatusCode::FORBIDDEN, message);
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

async fn answer<C: Controlled>(
    request: Request<Incoming>,
    shared: &Shared<C>,
    watches: &AtomicBool,
) -> Result<Response<AnswerBody>, Refusal> {
    if request.method() == Method::GET && request.uri().path() == "/v1/events" {
        watches.store(true, Ordering::Relaxed);
        return watch(shared).await;
    }
    let call = read_call(request).await?;
    let (status, value) = Arc::clone(&shared.controlled).call(call).await?;
    Ok(response(status, &value))
}

/// Tells what becomes of the session, until it ends or the caller leaves.
async fn watch<C: Controlled>(shared: &Shared<C>) -> Result<Response<AnswerBody>, Refusal> {
    let place = Arc::clone(&shared.subscribers).try_acquire_owned();
    let place = place.map_err(|_| {
        let text = format!("{SUBSCRIBERS_MAX} callers watch this session already");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let feed = Arc::clone(&shared.controlled).watch().await;
    let (body, telling) = stream::open(feed, shared.cut.clone());
    shared.tasks.spawn(async move {
        telling.await;
        drop(place);
    });
    let mut response = Response::new(Either::Right(body));
    let headers = response.headers_mut();
    let text = |text| http::HeaderValue::from_static(text);
    headers.insert(http::header::CONTENT_TYPE, text("text/event-stream"));
    headers.insert(http::header::CACHE_CONTROL, text("no-store"));
    Ok(response)
}

async fn read_call(request: Request<Incoming>) -> Result<Call, Refusal> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let call = match (&head.method, path) {
        (&Method::GET, "/v1/session") => Call::Session,
        (&Method::GET, "/v1/status") => Call::Status,
        (&Method::GET, "/v1/audits") => Call::Audits,
        (&Method::GET, path) => {
            let number = path.strip_prefix("/v1/audits/");
            let number = number.and_then(|number| number.parse().ok());
            return number
                .map(|number| Call::Audit { number })
                .ok_or_else(no_such_call);
        }
        (&Method::POST, "/v1/topup") => {
            let TopUpBody { pico_usd } = serde_json::from_slice(&read_body(body).await?)
                .map_err(|_| bad(StatusCode::BAD_REQUEST, "the body is {\"pico_usd\": N}"))?;
            return Ok(Call::TopUp { pico_usd });
        }
        (&Method::POST, "/v1/pull") => Call::Sync(Direction::Pull),
        (&Method::POST, "/v1/push") => Call::Sync(Direction::Push),
        (&Method::POST, "/v1/stop") => Call::Stop,
        _ => return Err(no_such_call()),
    };
    if let Call::Sync(_) = call {
        let body = read_body(body).await?;
        if !body.is_empty() {
            let NoBody {} = serde_json::from_slice(&body).map_err(|_| {
                bad(
                    StatusCode::BAD_REQUEST,
                    "this call has no options: send no body",
                )
            })?;
        }
    }
    Ok(call)
}

async fn read_body(body: Incoming) -> Result<Bytes, Refusal> {
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect();
    let body = tokio::time::timeout(PROBE, body)
        .await
        .map_err(|_| bad(StatusCode::REQUEST_TIMEOUT, "the body did not come"))?
        .map_err(|_| bad(StatusCode::BAD_REQUEST, "the body cannot be read"))?;
    Ok(body.to_bytes())
}

fn bad(status: StatusCode, message: &str) -> Refusal {
    Refusal::new(status, message)
}

fn no_such_call() -> Refusal {
    bad(StatusCode::NOT_FOUND, "there is no such call")
}

fn response(status: StatusCode, value: &serde_json::Value) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(value.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}
