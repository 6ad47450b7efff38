//! A proxy with everything it stands on, in front of a scripted upstream.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use labproxy::cap::{Account, AccountSettings, OnCap};
use labproxy::clock::ManualClock;
use labproxy::id::SessionId;
use labproxy::ledger::{Entry, Ledger, LedgerOptions, Reader};
use labproxy::money::PicoUsd;
use labproxy::pricing::PriceBook;
use labproxy::proxy::credential::{CredentialSource, CredentialStore};
use labproxy::proxy::gate::GatePolicy;
use labproxy::proxy::{OnClientGone, Proxy, ProxyParts, ProxySettings, Times, UpstreamSettings};
use labproxy::secret::{Credential, CredentialKind, Placeholder};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::upstream::within;

/// A recognisable real key.
pub const CANARY: &str = "sk-ant-api03-canary-0123456789abcdefghijklmnopqrstuvwxyz";
/// Priced at 1 dollar for a million input tokens and 5 for output.
pub const MODEL: &str = "claude-haiku-4-5";

/// What a test wants to be different.
pub struct Setup {
    pub cap: u64,
    pub on_cap: OnCap,
    pub gate: GatePolicy,
    pub on_client_gone: OnClientGone,
    pub times: Times,
    pub credential: Option<CredentialSource>,
    pub ca_file: Option<PathBuf>,
    pub allow_private: bool,
    pub http_proxy: Option<String>,
    pub max_connections: usize,
    pub now: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cap: dollars(5),
            on_cap: OnCap::Clamp,
            gate: GatePolicy::default(),
            on_client_gone: OnClientGone::Drain,
            times: Times::default(),
            credential: None,
            ca_file: None,
            allow_private: false,
            http_proxy: None,
            max_connections: 256,
            now: "2026-12-01T12:00:00Z",
        }
    }
}

pub const fn dollars(count: u64) -> u64 {
    count * 1_000_000_000_000
}

pub fn key(text: &str) -> CredentialSource {
    let bytes = text.as_bytes().to_vec().into();
    CredentialSource::Given(Credential::new(CredentialKind::ApiKey, bytes).unwrap())
}

pub struct Rig {
    pub directory: tempfile::TempDir,
    pub clock: Arc<ManualClock>,
    pub session: SessionId,
    pub account: Arc<Account>,
    pub proxy: Arc<Proxy>,
    pub placeholder: String,
    pub address: SocketAddr,
    pub socket: PathBuf,
}

impl Rig {
    pub async fn new(url: &str) -> Self {
        Self::with(url, Setup::default()).await
    }

    pub async fn timed(url: &str, times: Times) -> Self {
        let setup = Setup {
            times,
            ..Setup::default()
        };
        Self::with(url, setup).await
    }

    pub async fn with(url: &str, setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(setup.now.parse().unwrap()));
        let ledger = Ledger::open(LedgerOptions {
            path: directory.path().join("ledger.sqlite"),
            anchor: directory.path().join("high-water"),
            daily_ceiling: None,
            clock: clock.clone(),
        })
        .unwrap();
        let session = SessionId::random().unwrap();
        let book = Arc::new(PriceBook::builtin().unwrap());
        let cap = PicoUsd::from_pico(setup.cap);
        let opened = Entry::Opened {
            cap,
            on_cap: setup.on_cap,
            pricing_digest: book.digest().0.clone(),
            argv0: None,
            host: None,
            version: "0".to_owned(),
            resumed: false,
        };
        ledger.append(&session, vec![opened]).await.unwrap();
        let account = Account::new(
            session.clone(),
            ledger.clone(),
            cap,
            PicoUsd::ZERO,
            AccountSettings {
                on_cap: setup.on_cap,
                wait: Duration::from_mins(2),
            },
            clock.clone(),
        );
        let source = setup.credential.unwrap_or_else(|| key(CANARY));
        let credential = CredentialStore::open(source, clock.clone()).await.unwrap();
        let placeholder = Placeholder::random().unwrap();
        let shown = placeholder.expose().to_owned();
        let proxy = Proxy::with_times(
            ProxyParts {
                session: session.clone(),
                book,
                account: account.clone(),
                ledger,
                clock: clock.clone(),
            },
            ProxySettings {
                gate: setup.gate,
                upstream: UpstreamSettings {
                    base_url: url.parse().unwrap(),
                    allow_private: setup.allow_private,
                    ca_file: setup.ca_file,
                    http_proxy: setup.http_proxy.map(|url| url.parse().unwrap()),
                },
                on_client_gone: setup.on_client_gone,
                max_connections: setup.max_connections,
            },
            credential,
            placeholder,
            setup.times,
        )
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        proxy.serve_tcp(listener);
        let socket = directory.path().join("proxy.sock");
        proxy.serve_unix(UnixListener::bind(&socket).unwrap());
        Self {
            directory,
            clock,
            session,
            account,
            proxy,
            placeholder: shown,
            address,
            socket,
        }
    }

    /// A connection to the proxy.
    pub async fn client(&self) -> Client {
        let socket = TcpStream::connect(self.address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        Client {
            sender,
            connection: tokio::spawn(async move {
                let _ended = connection.await;
            }),
            placeholder: self.placeholder.clone(),
        }
    }

    /// One message on a connection of its own, read to its end.
    pub async fn post(&self, body: impl Into<Bytes>) -> Reply {
        self.client().await.post(body).await
    }

    /// Every entry, once nothing is in flight.
    pub async fn entries(&self) -> Vec<Entry> {
        within(self.account.idle()).await;
        let reader = Reader::open(&self.directory.path().join("ledger.sqlite")).unwrap();
        let entries = reader.session(&self.session).unwrap();
        entries.into_iter().map(|recorded| recorded.entry).collect()
    }

    /// The entries that end requests: settled, kept, released or refused.
    pub async fn ends(&self) -> Vec<Entry> {
        let mut entries = self.entries().await;
        entries.retain(|entry| {
            matches!(
                entry,
                Entry::Settled { .. }
                    | Entry::Kept { .. }
                    | Entry::Released { .. }
                    | Entry::Refused { .. }
            )
        });
        entries
    }

    /// The one entry that ends the one request.
    pub async fn end(&self) -> Entry {
        let mut ends = self.ends().await;
        assert_eq!(ends.len(), 1, "{ends:#?}");
        ends.remove(0)
    }

    /// What is spent, once nothing is in flight.
    pub async fn spent(&self) -> u64 {
        within(self.account.idle()).await;
        let balance = self.account.balance();
        assert_eq!(balance.held, PicoUsd::ZERO);
        balance.settled.pico()
    }
}

pub struct Client {
    pub sender: http1::SendRequest<Full<Bytes>>,
    pub connection: tokio::task::JoinHandle<()>,
    placeholder: String,
}

impl Client {
    /// A request with the placeholder.
    pub fn request(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "labproxy")
            .header("x-api-key", &self.placeholder)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap()
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.sender.ready().await.unwrap();
        within(self.sender.send_request(request)).await.unwrap()
    }

    pub async fn message(&mut self, body: impl Into<Bytes>) -> Response<Incoming> {
        let request = self.request(Method::POST, "/v1/messages", body);
        self.send(request).await
    }

    pub async fn post(&mut self, body: impl Into<Bytes>) -> Reply {
        Reply::read(self.message(body).await).await
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        let request = self.request(Method::GET, path, Bytes::new());
        Reply::read(self.send(request).await).await
    }

    /// Closes the connection at once.
    pub fn leave(self) {
        self.connection.abort();
    }
}

/// A response that was read as far as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body came to its own end.
    pub whole: bool,
}

impl Reply {
    pub async fn read(response: Response<Incoming>) -> Self {
        let (parts, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        let mut whole = true;
        while let Some(frame) = within(incoming.frame()).await {
            let Ok(frame) = frame else {
                whole = false;
                break;
            };
            body.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        Self {
            status: parts.status,
            headers: parts.headers,
            body: body.into(),
            whole,
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The error's type and message.
    pub fn error(&self) -> (String, String) {
        let value = self.json();
        assert_eq!(value["type"], "error", "{value}");
        let text = |name: &str| value["error"][name].as_str().unwrap().to_owned();
        (text("type"), text("message"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A body that asks for `max_tokens`, with events or without.
pub fn ask(max_tokens: u64, stream: bool) -> String {
    json!({
        "model": MODEL,
        "max_tokens": max_tokens,
        "stream": stream,
        "messages": [{ "role": "user", "content": "hi" }],
    })
    .to_string()
}

/// An answer that used `input` and `output` tokens.
pub fn answer(input: u64, output: u64) -> String {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
        "content": [{ "type": "text", "text": "hello" }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": input, "output_tokens": output },
    })
    .to_string()
}

/// What [`answer`] costs.
pub const fn price(input: u64, output: u64) -> u64 {
    input * 1_000_000 + output * 5_000_000
}

/// The events of a stream, in order.
pub fn events(input: u64, output: u64) -> Vec<String> {
    let event = |value: Value| {
        format!(
            "event: {}\ndata: {value}\n\n",
            value["type"].as_str().unwrap()
        )
    };
    vec![
        event(json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": input, "output_tokens": 1 },
        }})),
        event(json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "text", "text": "" } })),
        event(json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "text_delta", "text": "hello" } })),
        event(json!({ "type": "content_block_stop", "index": 0 })),
        event(json!({ "type": "message_delta",
            "delta": { "stop_reason": "end_turn", "stop_sequence": null },
            "usage": { "output_tokens": output } })),
        event(json!({ "type": "message_stop" })),
    ]
}

/// An error in the provider's shape.
pub fn error(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message },
        "request_id": "req_upstream1" })
    .to_string()
}
