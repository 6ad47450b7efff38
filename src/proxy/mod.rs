//! The metering proxy: swaps the placeholder for the real credential, lets priceable calls through,
//! prices every response.

mod address;
mod auth;
pub mod body;
mod connect;
pub mod credential;
mod decode;
pub mod gate;
pub mod headers;
mod leak;
pub mod refusal;
pub mod route;
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

use credential::CredentialStore;
use gate::GatePolicy;

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

/// What a proxy has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `POST /v1/messages`, refused ones too.
    pub messages: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Calls that cost nothing: count_tokens, models.
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

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    parts: ProxyParts,
    settings: ProxySettings,
}

impl Proxy {
    /// Makes a proxy for one launch: one credential, one placeholder.
    ///
    /// # Errors
    /// When the upstream's roots cannot be loaded.
    pub fn new(
        parts: ProxyParts,
        settings: ProxySettings,
        credential: CredentialStore,
        placeholder: Placeholder,
    ) -> Result<Arc<Self>, ProxySetupError> {
        drop((credential, placeholder));
        Ok(Arc::new(Self { parts, settings }))
    }

    /// Serves connections of a loopback listener until shutdown.
    pub fn serve_tcp(self: &Arc<Self>, listener: tokio::net::TcpListener) {
        let _ = (&self.parts, &self.settings, listener);
        todo!()
    }

    /// Serves connections of a unix socket until shutdown.
    pub fn serve_unix(self: &Arc<Self>, listener: tokio::net::UnixListener) {
        let _ = listener;
        todo!()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        todo!()
    }

    /// Takes no more connections or requests, gives in-flight requests `grace` to end, then closes
    /// them, which keeps their holds; returns when all of them are settled in the ledger.
    pub async fn shutdown(&self, grace: Duration) {
        let _ = grace;
        todo!()
    }
}
