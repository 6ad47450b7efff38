//! A stand-in for the Messages API on loopback: for the demo, and in-process for tests.
//!
//! It speaks JSON and events, counts tokens, keeps a prompt cache, plays scenarios
//! (`scenario.rs`), checks that the expected credential arrives, and keeps its own count of what
//! it served, with its own prices (`prices.rs`), to compare labproxy's bills with:
//! `GET /__standin/served` and `GET /__standin/requests`.
//!
//! Tests take it in with `#[path = "../examples/upstream/standin.rs"] mod standin;`.
#![allow(
    dead_code,
    reason = "each of the programs that take this file in uses a part of it"
)]

mod cache;
mod events;
mod prices;
mod record;
mod reply;
mod scenario;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use cache::{Cache, items, text_of};
use events::{Facts, Step};
use record::{Call, Record};
use reply::Reply;

pub(crate) use record::{Seen, Served};
pub(crate) use scenario::Scenario;

/// The largest body it reads, as at the provider.
const BODY_MAX: usize = 32 << 20;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How a stand-in behaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// The credential that must arrive, as `x-api-key` or `Authorization: Bearer`; any when `None`.
    pub(crate) expect_key: Option<String>,
    /// What is played when the prompt says nothing.
    pub(crate) scenario: Option<Scenario>,
    /// Between two pieces of text in a stream.
    pub(crate) pace: Duration,
    /// Where each body is written, for looking at.
    pub(crate) bodies: Option<std::path::PathBuf>,
}

/// A running stand-in; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Standin {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    options: Options,
    cache: Mutex<Cache>,
    record: Mutex<Record>,
    failures: Mutex<HashMap<blake3::Hash, u64>>,
}

/// A lock whose holder panicked is still good here: every change is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Standin {
    /// Starts serving on a loopback address; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is not loopback, or cannot be bound.
    pub(crate) async fn start(listen: SocketAddr, options: Options) -> io::Result<Self> {
        if !listen.ip().is_loopback() {
            let text = format!("{listen} is not a loopback address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            options,
            cache: Mutex::default(),
            record: Mutex::default(),
            failures: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// Where it listens, as `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it served so far, priced by its own table.
    pub(crate) fn served(&self) -> Served {
        lock(&self.state.record).served()
    }

    /// Every request it saw, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        lock(&self.state.record).requests().to_vec()
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            // Only a hint for speed.
            let _unset = socket.set_nodelay(true);
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            // A connection that breaks is the client's affair, or was asked for by the scenario.
            let _ended = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

/// Why a connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the scenario closes the connection")]
struct Closed;

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/__standin/served" {
        return Ok(json_response(
            StatusCode::OK,
            &json!(lock(&state.record).served()),
            0,
        ));
    }
    if path == "/__standin/requests" {
        let requests = json!({"requests": lock(&state.record).requests()});
        return Ok(json_response(StatusCode::OK, &requests, 0));
    }
    let body = match http_body_util::Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            return Ok(error(
                413,
                "request_too_large",
                "Request exceeds the maximum size",
                0,
            ));
        }
    };
    let serial = lock(&state.record).saw(&head, &body, state.options.expect_key.as_deref());
    write_body(&state, serial, &body);
    let result = match (&head.method, path.as_str()) {
        (&Method::HEAD, "/" | "/api/hello") => Ok(empty()),
        _ if !credential_fits(&state, &head.headers) => Ok(error(
            401,
            "authentication_error",
            "invalid x-api-key",
            serial,
        )),
        (&Method::GET, "/v1/models") => Ok(json_response(StatusCode::OK, &model_list(), serial)),
        (&Method::GET, other) if other.starts_with("/v1/models/") => Ok(one_model(other, serial)),
        (&Method::POST, "/v1/messages/count_tokens") => Ok(count(&head.headers, &body, serial)),
        (&Method::POST, "/v1/messages") => messages(&state, &head.headers, &body, serial).await,
        _ => Ok(error(404, "not_found_error", "Not Found", serial)),
    };
    if let Ok(response) = &result {
        lock(&state.record).answered(serial, response.status().as_u16());
    }
    result
}

fn write_body(state: &State, serial: u64, body: &[u8]) {
    if let Some(directory) = &state.options.bodies
        && let Err(why) = std::fs::write(directory.join(format!("{serial:04}.json")), body)
    {
        tracing::warn!(%why, "a body could not be written");
    }
}

fn credential_fits(state: &State, headers: &HeaderMap) -> bool {
    let Some(expected) = &state.options.expect_key else {
        return true;
    };
    record::credential(headers).is_some_and(|shown| shown == expected.as_bytes())
}

/// What is wrong with a request, in the provider's words.
fn invalid(headers: &HeaderMap, request: &Value) -> Option<(u16, &'static str, String)> {
    let bad = |text: &str| Some((400, "invalid_request_error", text.to_owned()));
    if !headers.contains_key("anthropic-version") {
        return bad("anthropic-version: header is required");
    }
    let model = text_of(request.get("model"));
    if items(request.get("messages")).is_empty() {
        return bad("messages: Field required");
    }
    if prices::resolve(model).is_none() {
        return Some((404, "not_found_error", format!("model: {model}")));
    }
    None
}

fn count(headers: &HeaderMap, body: &[u8], serial: u64) -> Response<Body> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some((status, kind, text)) = invalid(headers, &request) {
        return error(status, kind, &text, serial);
    }
    let tokens = cache::prompt_tokens(&request);
    json_response(StatusCode::OK, &json!({"input_tokens": tokens}), serial)
}

async fn messages(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: &[u8],
    serial: u64,
) -> Result<Response<Body>, Closed> {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return Ok(error(
            400,
            "invalid_request_error",
            "The body is not JSON",
            serial,
        ));
    };
    if let Some((status, kind, text)) = invalid(headers, &request) {
        return Ok(error(status, kind, &text, serial));
    }
    if request.get("max_tokens").and_then(Value::as_u64).is_none() {
        let text = "max_tokens: Field required";
        return Ok(error(400, "invalid_request_error", text, serial));
    }
    let scenario = match Scenario::find(user_texts(&request)) {
        Ok(found) => found.or_else(|| state.options.scenario.clone()),
        Err(why) => {
            return Ok(error(
                400,
                "invalid_request_error",
                &why.to_string(),
                serial,
            ));
        }
    };
    let scenario = scenario.unwrap_or(Scenario::Plain);
    match &scenario {
        Scenario::Reset => return Err(Closed),
        Scenario::Html502 => return Ok(web_page()),
        Scenario::Error { status, times } if fails_again(state, body, *times) => {
            let text = "The stand-in was told to fail.";
            return Ok(error(*status, kind_of(*status), text, serial));
        }
        Scenario::Late(wait) => tokio::time::sleep(*wait).await,
        _ => {}
    }
    Ok(generate(state, &request, &scenario, serial))
}

/// Whether this body is to fail once more.
fn fails_again(state: &State, body: &[u8], times: u64) -> bool {
    let mut failures = lock(&state.failures);
    let so_far = failures.entry(blake3::hash(body)).or_insert(0);
    *so_far += 1;
    times == 0 || *so_far <= times
}

fn generate(
    state: &Arc<State>,
    request: &Value,
    scenario: &Scenario,
    serial: u64,
) -> Response<Body> {
    let reply = Reply::compose(scenario, request, serial);
    let model = prices::resolve(text_of(request.get("model"))).unwrap_or_default();
    let mut tokens = lock(&state.cache).account(request, Instant::now());
    tokens.output = reply.tokens();
    let facts = Facts {
        id: format!("msg_standin{serial:08}"),
        model,
        tokens,
        us_only: text_of(request.get("inference_geo")) == "us",
        fast: text_of(request.get("speed")) == "fast",
    };
    let streamed = request.get("stream").and_then(Value::as_bool) == Some(true);
    let output = if streamed { 0 } else { tokens.output };
    let call = Call::new(&facts, output, reply.stop_reason, request_id(serial));
    let nth = lock(&state.record).began(call);
    if !streamed {
        return json_response(StatusCode::OK, &facts.json(&reply, scenario), serial);
    }
    let steps = events::stream(&facts, &reply, scenario, state.options.pace);
    let mut response = Response::new(played(Arc::clone(state), nth, steps));
    set(
        &mut response,
        CONTENT_TYPE,
        "text/event-stream; charset=utf-8",
    );
    with_request_id(response, serial)
}

/// A body that plays the plan and counts what it has generated.
fn played(state: Arc<State>, nth: usize, steps: Vec<Step>) -> Body {
    let steps = steps.into_iter();
    let frames = stream::unfold((state, steps), move |(state, mut steps)| async move {
        loop {
            match steps.next()? {
                Step::Wait(gap) => tokio::time::sleep(gap).await,
                Step::Send(bytes, output) => {
                    lock(&state.record).generated(nth, output);
                    return Some((Ok(Frame::data(bytes)), (state, steps)));
                }
                Step::Abort => {
                    let cut = io::Error::other("the scenario cuts the connection");
                    return Some((Err(cut), (state, steps)));
                }
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Every text that a user wrote in the conversation, in order.
fn user_texts(request: &Value) -> impl Iterator<Item = &str> {
    items(request.get("messages"))
        .iter()
        .filter(|message| text_of(message.get("role")) == "user")
        .filter_map(|message| message.get("content"))
        .flat_map(|content| {
            let whole = content.as_str();
            let parts = items(Some(content)).iter();
            whole
                .into_iter()
                .chain(parts.filter_map(|part| part.get("text").and_then(Value::as_str)))
        })
}

fn model_object(id: &str) -> Value {
    json!({"type": "model", "id": id, "display_name": id, "created_at": "2026-09-22T00:00:00Z"})
}

fn model_list() -> Value {
    let data: Vec<Value> = prices::models().map(model_object).collect();
    let id_of = |model: Option<&Value>| model.and_then(|model| model.get("id")).cloned();
    json!({
        "first_id": id_of(data.first()),
        "last_id": id_of(data.last()),
        "has_more": false,
        "data": data,
    })
}

fn one_model(path: &str, serial: u64) -> Response<Body> {
    let asked = path.strip_prefix("/v1/models/").unwrap_or_default();
    match prices::resolve(asked) {
        Some(model) => json_response(StatusCode::OK, &model_object(model), serial),
        None => error(404, "not_found_error", &format!("model: {asked}"), serial),
    }
}

/// The provider's word for a status.
fn kind_of(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn request_id(serial: u64) -> String {
    format!("req_standin{serial:08}")
}

fn error(status: u16, kind: &str, message: &str, serial: u64) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id(serial),
    });
    json_response(status, &body, serial)
}

fn json_response(status: StatusCode, body: &Value, serial: u64) -> Response<Body> {
    let mut response = Response::new(full(body.to_string()));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, "application/json");
    with_request_id(response, serial)
}

fn web_page() -> Response<Body> {
    let page = "<html><head><title>502 Bad Gateway</title></head><body></body></html>";
    let mut response = Response::new(full(page.to_owned()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    set(&mut response, CONTENT_TYPE, "text/html");
    response
}

fn empty() -> Response<Body> {
    Response::new(full(String::new()))
}

fn full(text: String) -> Body {
    let never = |never: Infallible| match never {};
    Full::new(Bytes::from(text)).map_err(never).boxed_unsync()
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
}

fn with_request_id(mut response: Response<Body>, serial: u64) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(&request_id(serial)) {
        response.headers_mut().insert("request-id", value);
    }
    response
}
