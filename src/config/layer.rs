//! One layer of settings, and how one is laid over another.

use std::path::PathBuf;
use std::time::Duration;

use super::credential::{CredentialReference, Origin};
use super::key::Key;
use super::source::{Source, Sourced};
use super::value::{Fault, Place, Written};
use crate::cap::OnCap;
use crate::money::PicoUsd;
use crate::proxy::OnClientGone;
use crate::proxy::gate::WebSearchPolicy;

/// A setting that a layer may leave open.
pub type Setting<T> = Option<Sourced<T>>;

/// A credential's reference, and the origin that it may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCredential {
    /// Where the credential is.
    pub reference: CredentialReference,
    /// The origin in force where the credential was named; `None` until layers are folded.
    pub origin: Option<Origin>,
}

/// What one layer sets. Every field is named after its [`Key`].
#[derive(Clone, Debug, Default)]
#[allow(
    missing_docs,
    reason = "each field is documented by the Key of the same name"
)]
pub struct Layer {
    pub session_cap_usd: Setting<PicoUsd>,
    pub session_on_cap: Setting<OnCap>,
    pub session_lease: Setting<Duration>,
    pub session_wait: Setting<Duration>,
    pub session_on_client_gone: Setting<OnClientGone>,
    pub session_pass_env: Setting<Vec<String>>,
    pub limits_daily_usd: Setting<PicoUsd>,
    pub limits_max_connections: Setting<usize>,
    pub upstream_base_url: Setting<http::Uri>,
    pub upstream_credential: Setting<BoundCredential>,
    pub upstream_allow_private: Setting<bool>,
    pub upstream_proxy: Setting<http::Uri>,
    pub upstream_ca_file: Setting<PathBuf>,
    pub pricing_file: Setting<PathBuf>,
    pub pricing_allow_stale: Setting<bool>,
    pub gate_accept: Setting<Vec<String>>,
    pub gate_web_search: Setting<Option<WebSearchPolicy>>,
    pub gate_compaction: Setting<bool>,
    pub gate_remote_content: Setting<bool>,
    pub gate_known_usage: Setting<Vec<String>>,
    pub gate_strict_bound: Setting<bool>,
    pub agent_binary: Setting<Option<PathBuf>>,
}

impl Layer {
    /// Reads what was written for a setting and remembers it with its source.
    ///
    /// # Errors
    /// Everything that is wrong with what was written.
    pub fn set(
        &mut self,
        key: Key,
        written: Written<'_>,
        place: Place<'_>,
        source: Source,
    ) -> Result<(), Vec<Fault>> {
        /// Puts a value into its field.
        fn put<T>(field: &mut Setting<T>, value: T, source: Source) {
            *field = Some(Sourced::new(value, source));
        }
        match key {
            Key::SessionCapUsd => put(&mut self.session_cap_usd, written.usd()?, source),
            Key::SessionOnCap => put(&mut self.session_on_cap, written.on_cap()?, source),
            Key::SessionLease => put(&mut self.session_lease, written.duration()?, source),
            Key::SessionWait => put(&mut self.session_wait, written.duration()?, source),
            Key::SessionOnClientGone => {
                let field = &mut self.session_on_client_gone;
                put(field, written.on_client_gone()?, source);
            }
            Key::SessionPassEnv => put(&mut self.session_pass_env, written.names()?, source),
            Key::LimitsDailyUsd => put(&mut self.limits_daily_usd, written.usd()?, source),
            Key::LimitsMaxConnections => {
                let field = &mut self.limits_max_connections;
                put(field, written.connections()?, source);
            }
            Key::UpstreamBaseUrl => put(&mut self.upstream_base_url, written.upstream()?, source),
            Key::UpstreamCredential => {
                let bound = BoundCredential {
                    reference: written.credential(place)?,
                    origin: None,
                };
                put(&mut self.upstream_credential, bound, source);
            }
            Key::UpstreamAllowPrivate => {
                put(&mut self.upstream_allow_private, written.flag()?, source);
            }
            Key::UpstreamProxy => put(&mut self.upstream_proxy, written.http_proxy()?, source),
            Key::UpstreamCaFile => put(&mut self.upstream_ca_file, written.path(place)?, source),
            Key::PricingFile => put(&mut self.pricing_file, written.path(place)?, source),
            Key::PricingAllowStale => put(&mut self.pricing_allow_stale, written.flag()?, source),
            Key::GateAccept => put(&mut self.gate_accept, written.names()?, source),
            Key::GateWebSearch => put(&mut self.gate_web_search, written.web_search()?, source),
            Key::GateCompaction => put(&mut self.gate_compaction, written.flag()?, source),
            Key::GateRemoteContent => put(&mut self.gate_remote_content, written.flag()?, source),
            Key::GateKnownUsage => put(&mut self.gate_known_usage, written.names()?, source),
            Key::GateStrictBound => put(&mut self.gate_strict_bound, written.flag()?, source),
            Key::AgentBinary => put(&mut self.agent_binary, written.binary(place)?, source),
        }
        Ok(())
    }

    /// This layer with `upper` laid over it.
    ///
    /// A credential is bound here to the origin in force in the layer that names it, so a layer
    /// that only changes the upstream does not get a lower layer's credential.
    #[must_use]
    pub fn under(self, upper: Self) -> Self {
        let Self {
            session_cap_usd,
            session_on_cap,
            session_lease,
            session_wait,
            session_on_client_gone,
            session_pass_env,
            limits_daily_usd,
            limits_max_connections,
            upstream_base_url,
            upstream_credential,
            upstream_allow_private,
            upstream_proxy,
            upstream_ca_file,
            pricing_file,
            pricing_allow_stale,
            gate_accept,
            gate_web_search,
            gate_compaction,
            gate_remote_content,
            gate_known_usage,
            gate_strict_bound,
            agent_binary,
        } = upper;
        let upstream_base_url = upstream_base_url.or(self.upstream_base_url);
        let origin = upstream_base_url.as_ref().map(|url| Origin::of(&url.value));
        let named = upstream_credential.map(|named| {
            let reference = named.value.reference;
            Sourced::new(BoundCredential { reference, origin }, named.source)
        });
        Self {
            session_cap_usd: session_cap_usd.or(self.session_cap_usd),
            session_on_cap: session_on_cap.or(self.session_on_cap),
            session_lease: session_lease.or(self.session_lease),
            session_wait: session_wait.or(self.session_wait),
            session_on_client_gone: session_on_client_gone.or(self.session_on_client_gone),
            session_pass_env: session_pass_env.or(self.session_pass_env),
            limits_daily_usd: limits_daily_usd.or(self.limits_daily_usd),
            limits_max_connections: limits_max_connections.or(self.limits_max_connections),
            upstream_base_url,
            upstream_credential: named.or(self.upstream_credential),
            upstream_allow_private: upstream_allow_private.or(self.upstream_allow_private),
            upstream_proxy: upstream_proxy.or(self.upstream_proxy),
            upstream_ca_file: upstream_ca_file.or(self.upstream_ca_file),
            pricing_file: pricing_file.or(self.pricing_file),
            pricing_allow_stale: pricing_allow_stale.or(self.pricing_allow_stale),
            gate_accept: gate_accept.or(self.gate_accept),
            gate_web_search: gate_web_search.or(self.gate_web_search),
            gate_compaction: gate_compaction.or(self.gate_compaction),
            gate_remote_content: gate_remote_content.or(self.gate_remote_content),
            gate_known_usage: gate_known_usage.or(self.gate_known_usage),
            gate_strict_bound: gate_strict_bound.or(self.gate_strict_bound),
            agent_binary: agent_binary.or(self.agent_binary),
        }
    }
}
