//! The metering proxy: swaps the placeholder for the real credential, lets priceable calls through,
//! prices every response.

mod address;
mod apart;
mod auth;
pub mod body;
mod charge;
mod connect;
mod count;
mod counted;
pub mod credential;
mod decode;
mod doorbell;
mod drain;
mod driven;
mod exchange;
mod free;
pub mod gate;
pub mod headers;
mod leak;
mod messages;
mod meter;
mod peers;
mod read;
pub mod refusal;
mod relay;
mod resent;
pub mod route;
mod serve;
mod server;
mod skew;
mod stream;
mod tasks;
mod upstream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cap::Account;
use crate::clock::SharedClock;
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::pricing::PriceBook;
use crate::secret::Placeholder;

use tokio_util::sync::CancellationToken;

use count::Counts;
use counted::Counted;
use credential::CredentialStore;
use gate::GatePolicy;
use peers::{Order, Peers};
use read::BodyBudget;
use resent::Resent;
use server::Listener;
use skew::Skew;
use tasks::Tasks;
use upstream::Upstream;

/// What happens to a request whose client left after it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnClientGone {
    /// Read on for at most 60 s to learn the usage.
    #[default]
    Drain,
    /// Close the upstream connection and keep the hold.
    Cancel,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Origin and optional path prefix, such as `https://api.anthropic.com`; `http` only to loopback.
    pub base_url: http::Uri,
    /// Whether names that resolve to private, link-local or loopback addresses may be used.
    pub allow_private: bool,
    /// More roots, as PEM.
    pub ca_file: Option<PathBuf>,
    /// An HTTP proxy to CONNECT through.
    pub http_proxy: Option<http::Uri>,
}

/// Settings of one proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// What an operator opened.
    pub gate: GatePolicy,
    /// Where requests go.
    pub upstream: UpstreamSettings,
    /// What happens when a client leaves.
    pub on_client_gone: OnClientGone,
    /// Most connections at once.
    pub max_connections: usize,
}

/// How long a proxy waits for an upstream, and keeps its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// For an answer's head. A non-streaming answer is generated whole before its head comes, and
    /// the SDKs wait 600 s for it; a minute more lets the client give up first.
    pub head: Duration,
    /// For the next bytes of a body. The API pings its streams well within it, and clients give up
    /// on a silent stream after 300 s themselves.
    pub silence: Duration,
    /// For the rest of an answer whose client has left; `design.md` 12.
    pub drain: Duration,
    /// How long an idle HTTP/1.1 connection may be used again: shorter than the 5 s after which
    /// common gateways (Node, uvicorn) close theirs, so that no request races a close.
    pub pool_idle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: Duration::from_mins(11),
            silence: Duration::from_mins(5),
            drain: Duration::from_mins(1),
            pool_idle: Duration::from_secs(4),
        }
    }
}

/// What a proxy has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `POST /v1/messages`, refused ones too.
    pub messages: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Calls that cost nothing: `count_tokens`, models.
    pub free: u64,
    /// Times the upstream refused the real credential.
    pub credential_refused: u64,
    /// Calls with a wrong or no placeholder.
    pub unauthenticated: u64,
}

/// Why a proxy cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ProxySetupError {
    /// The upstream's URL, its proxy's URL or TLS itself cannot be used.
    #[error("{what}")]
    Upstream {
        /// Why.
        what: String,
    },
    /// The CA file cannot be used.
    #[error("{path}: {what}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

/// Everything a proxy works with.
#[derive(Debug)]
pub struct ProxyParts {
    /// The session it meters.
    pub session: SessionId,
    /// Prices, fixed for the session.
    pub book: Arc<PriceBook>,
    /// The session's money.
    pub account: Arc<Account>,
    /// Where refusals are recorded.
    pub ledger: Ledger,
    /// The clock.
    pub clock: SharedClock,
}

/// How long the last tasks may take to end once every request has; they only close connections.
const LAST_TASKS: Duration = Duration::from_secs(5);

/// A running proxy.
pub struct Proxy {
    parts: ProxyParts,
    settings: ProxySettings,
    credentials: CredentialStore,
    placeholder: Placeholder,
    upstream: Arc<Upstream>,
    tasks: Tasks,
    peers: Peers,
    bodies: BodyBudget,
    counts: Counts,
    counted: Counted,
    skew: Skew,
    resent: Resent,
    /// No more connections or requests.
    closing: CancellationToken,
    /// Whatever is still in flight is given up.
    kill: CancellationToken,
    times: Times,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("session", &self.parts.session)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// The credential that requests get now, to find it where it must not be.
    pub fn credential(&self) -> Arc<crate::secret::Credential> {
        self.credentials.current()
    }

    /// Makes a proxy for one launch: one credential, one placeholder. Its tasks run on the runtime
    /// that this is called in.
    ///
    /// # Errors
    /// When the upstream's URL cannot be used, or its roots cannot be loaded.
    pub fn new(
        parts: ProxyParts,
        settings: ProxySettings,
        credential: CredentialStore,
        placeholder: Placeholder,
    ) -> Result<Arc<Self>, ProxySetupError> {
        Self::with_times(parts, settings, credential, placeholder, Times::default())
    }

    /// The same with other limits of time than the defaults.
    ///
    /// # Errors
    /// When the upstream's URL cannot be used, or its roots cannot be loaded.
    pub fn with_times(
        parts: ProxyParts,
        settings: ProxySettings,
        credential: CredentialStore,
        placeholder: Placeholder,
        times: Times,
    ) -> Result<Arc<Self>, ProxySetupError> {
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        Ok(Arc::new(Self {
            upstream: Upstream::new(&settings.upstream, times.pool_idle, tasks.clone())?,
            peers: Peers::new(settings.max_connections),
            bodies: BodyBudget::new(),
            counts: Counts::new(),
            counted: Counted::default(),
            skew: Skew::new(),
            closing: CancellationToken::new(),
            kill: CancellationToken::new(),
            resent: Resent::default(),
            credentials: credential,
            placeholder,
            tasks,
            parts,
            settings,
            times,
        }))
    }

    /// Serves connections of a loopback listener until shutdown.
    pub fn serve_tcp(self: &Arc<Self>, listener: tokio::net::TcpListener) {
        self.listen(Listener::Tcp(listener));
    }

    /// Serves connections of a unix socket until shutdown.
    pub fn serve_unix(self: &Arc<Self>, listener: tokio::net::UnixListener) {
        self.listen(Listener::Unix(listener));
    }

    fn listen(self: &Arc<Self>, listener: Listener) {
        let _started = self.tasks.spawn(server::listen(self.clone(), listener));
    }

    /// The link that carries the clients' connections is lost: those whose answers are on their way
    /// are about to break, and their requests are marked.
    pub fn link_lost(&self) {
        self.resent.link_lost();
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counted.now()
    }

    /// Takes no more connections or requests, gives in-flight requests `grace` to end, then closes
    /// them, which keeps their holds; returns when all of them are settled in the ledger.
    pub async fn shutdown(&self, grace: Duration) {
        self.closing.cancel();
        self.peers.tell_all(Order::Finish);
        let in_time = tokio::time::timeout(grace, self.parts.account.idle()).await;
        if in_time.is_err() {
            tracing::info!("requests that are still in flight are given up");
        }
        self.kill.cancel();
        self.peers.tell_all(Order::End);
        self.upstream.close();
        self.tasks.join(LAST_TASKS).await;
        self.parts.account.idle().await;
    }
}
