//! Configuration: five layers folded into one [`Config`] in which every value knows its source.
//!
//! Lowest first: built-in defaults, the user's file, `./labproxy.toml` (which may only tighten),
//! `LABPROXY_…` variables, flags. Every bad value of every layer is reported at once.

pub mod audit;
pub mod credential;
pub mod environment;
mod fields;
pub mod file;
pub mod host;
pub mod key;
pub mod layer;
pub mod load;
mod name;
pub mod paths;
pub mod problem;
mod reference;
pub mod resolve;
pub mod show;
pub mod source;
pub mod tighten;
pub mod tool;
pub mod trust;
mod url;
pub mod value;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::cap::{AccountSettings, OnCap};
use crate::money::PicoUsd;
use crate::proxy::gate::{GatePolicy, WebSearchPolicy};
use crate::proxy::{OnClientGone, ProxySettings, UpstreamSettings};

pub use audit::AuditConfig;
pub use credential::{CredentialChoice, CredentialReference};
pub use environment::Environment;
pub use host::{HostConfig, HostKey, HostName};
pub use key::Key;
pub use load::{Flag, Layers, load};
pub use paths::Paths;
pub use problem::Problem;
pub use source::{Source, Sourced};
pub use tool::{AuditTool, ToolName};

/// Everything that was configured, resolved, each value with where it came from.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[session]`.
    pub session: SessionConfig,
    /// `[limits]`.
    pub limits: LimitsConfig,
    /// `[upstream.anthropic]`.
    pub upstream: UpstreamConfig,
    /// `[pricing]`.
    pub pricing: PricingConfig,
    /// `[gate]`.
    pub gate: GateConfig,
    /// `[mirror]`.
    pub mirror: MirrorConfig,
    /// `[agent]`.
    pub agent: AgentConfig,
    /// `[audit]`.
    pub audit: AuditConfig,
    /// `[host.NAME]`, by name.
    pub hosts: BTreeMap<HostName, HostConfig>,
}

/// `[session]`: how a session spends and ends.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Most that a session may spend; without one no session starts.
    pub cap_usd: Option<Sourced<PicoUsd>>,
    /// What happens to a request that does not fit under the cap.
    pub on_cap: Sourced<OnCap>,
    /// How long a remote agent outlives a lost link.
    pub lease: Sourced<Duration>,
    /// How long a request waits for room.
    pub wait: Sourced<Duration>,
    /// What happens to a request whose client left.
    pub on_client_gone: Sourced<OnClientGone>,
    /// Names of variables that reach the agent although they would be removed.
    pub pass_env: Sourced<Vec<String>>,
}

/// `[limits]`: bounds over all sessions of the user.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// Most that all sessions of one day may spend.
    pub daily_usd: Option<Sourced<PicoUsd>>,
    /// Most connections that one proxy serves at once.
    pub max_connections: Sourced<usize>,
}

/// `[upstream.anthropic]`: where requests go, and with which credential.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Origin and optional path prefix.
    pub base_url: Sourced<http::Uri>,
    /// Where the credential comes from, judged against the origin it was configured for.
    pub credential: Sourced<CredentialChoice>,
    /// Whether names that resolve to private addresses may be used.
    pub allow_private: Sourced<bool>,
    /// An HTTP proxy to CONNECT through.
    pub proxy: Option<Sourced<http::Uri>>,
    /// More roots, as PEM.
    pub ca_file: Option<Sourced<PathBuf>>,
}

/// `[pricing]`: the price rows.
#[derive(Clone, Debug)]
pub struct PricingConfig {
    /// Rows of this file replace built-in ones of the same id.
    pub file: Option<Sourced<PathBuf>>,
    /// Whether rows that were checked long ago may be used.
    pub allow_stale: Sourced<bool>,
}

/// `[gate]`: what the operator opens.
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// Unlisted keys and types that are let through.
    pub accept: Sourced<Vec<String>>,
    /// How web search is opened, where it is.
    pub web_search: Sourced<Option<WebSearchPolicy>>,
    /// Whether compaction is open.
    pub compaction: Sourced<bool>,
    /// Whether images and documents by URL or file id are open.
    pub remote_content: Sourced<bool>,
    /// Usage counters declared harmless.
    pub known_usage: Sourced<Vec<String>>,
    /// Whether `count_tokens` may never lower a hold.
    pub strict_bound: Sourced<bool>,
}

/// `[mirror]`: what mirrors have in common.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// Patterns of what is left out, those of the lowest layer first: the layers add up.
    pub exclude: Vec<Sourced<Vec<String>>>,
}

impl MirrorConfig {
    /// All patterns, in their order.
    pub fn patterns(&self) -> Vec<String> {
        let all = self.exclude.iter().flat_map(|patterns| &patterns.value);
        all.cloned().collect()
    }
}

/// `[agent]`: the agent's program.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The program that AGENT stands for; `None` is `auto`: looked up on `PATH`.
    pub binary: Sourced<Option<PathBuf>>,
}

impl Config {
    /// The settings of a proxy.
    pub fn proxy_settings(&self) -> ProxySettings {
        ProxySettings {
            gate: self.gate.policy(),
            upstream: UpstreamSettings {
                base_url: self.upstream.base_url.value.clone(),
                allow_private: self.upstream.allow_private.value,
                ca_file: self
                    .upstream
                    .ca_file
                    .as_ref()
                    .map(|file| file.value.clone()),
                http_proxy: self.upstream.proxy.as_ref().map(|uri| uri.value.clone()),
            },
            on_client_gone: self.session.on_client_gone.value,
            max_connections: self.limits.max_connections.value,
        }
    }

    /// The settings of a session's account.
    pub fn account_settings(&self) -> AccountSettings {
        AccountSettings {
            on_cap: self.session.on_cap.value,
            wait: self.session.wait.value,
        }
    }
}

impl GateConfig {
    /// The gate's policy.
    pub fn policy(&self) -> GatePolicy {
        let Self {
            accept,
            web_search,
            compaction,
            remote_content,
            known_usage,
            strict_bound,
        } = self;
        GatePolicy {
            accept: accept.value.clone(),
            web_search: web_search.value,
            compaction: compaction.value,
            remote_content: remote_content.value,
            known_usage: known_usage.value.clone(),
            strict_bound: strict_bound.value,
        }
    }
}

#[cfg(test)]
mod tests;
