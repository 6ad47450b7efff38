//! The folded layers as one [`Config`]: every value there, the credential judged.

use super::credential::{CredentialChoice, Origin};
use super::key::Key;
use super::layer::{
    AgentLayer, BoundCredential, GateLayer, Layer, LimitsLayer, PricingLayer, SessionLayer,
    Setting, UpstreamLayer,
};
use super::source::{Source, Sourced};
use super::{
    AgentConfig, Config, GateConfig, LimitsConfig, PricingConfig, Problem, SessionConfig,
    UpstreamConfig,
};

/// Makes the configuration of the folded layers; `None` when a value is missing, which is then
/// among the problems.
pub fn resolve(folded: Layer, problems: &mut Vec<Problem>) -> Option<Config> {
    let mut need = Need { problems };
    let Layer {
        session,
        limits,
        upstream,
        pricing,
        gate,
        agent,
    } = folded;
    let LimitsLayer {
        daily_usd,
        max_connections,
    } = limits;
    let PricingLayer { file, allow_stale } = pricing;
    let AgentLayer { binary } = agent;
    Some(Config {
        session: need.session(session)?,
        limits: LimitsConfig {
            daily_usd,
            max_connections: need.set(Key::LimitsMaxConnections, max_connections)?,
        },
        upstream: need.upstream(upstream)?,
        pricing: PricingConfig {
            file,
            allow_stale: need.set(Key::PricingAllowStale, allow_stale)?,
        },
        gate: need.gate(gate)?,
        agent: AgentConfig {
            binary: need.set(Key::AgentBinary, binary)?,
        },
    })
}

/// Collects what is missing.
struct Need<'a> {
    problems: &'a mut Vec<Problem>,
}

impl Need<'_> {
    /// A setting that the built-in defaults always make.
    fn set<T>(&mut self, key: Key, setting: Setting<T>) -> Setting<T> {
        if setting.is_none() {
            let missing = format!("{key}: there is no value");
            self.problems.push(Problem::new(Source::Default, missing));
        }
        setting
    }

    fn session(&mut self, folded: SessionLayer) -> Option<SessionConfig> {
        let SessionLayer {
            cap_usd,
            on_cap,
            lease,
            wait,
            on_client_gone,
            pass_env,
        } = folded;
        Some(SessionConfig {
            cap_usd,
            on_cap: self.set(Key::SessionOnCap, on_cap)?,
            lease: self.set(Key::SessionLease, lease)?,
            wait: self.set(Key::SessionWait, wait)?,
            on_client_gone: self.set(Key::SessionOnClientGone, on_client_gone)?,
            pass_env: self.set(Key::SessionPassEnv, pass_env)?,
        })
    }

    fn upstream(&mut self, folded: UpstreamLayer) -> Option<UpstreamConfig> {
        let UpstreamLayer {
            base_url,
            credential,
            allow_private,
            proxy,
            ca_file,
        } = folded;
        let base_url = self.set(Key::UpstreamBaseUrl, base_url)?;
        let credential = self.set(Key::UpstreamCredential, credential)?;
        Some(UpstreamConfig {
            credential: choose(credential, &base_url.value),
            base_url,
            allow_private: self.set(Key::UpstreamAllowPrivate, allow_private)?,
            proxy,
            ca_file,
        })
    }

    fn gate(&mut self, folded: GateLayer) -> Option<GateConfig> {
        let GateLayer {
            accept,
            web_search,
            compaction,
            remote_content,
            known_usage,
            strict_bound,
        } = folded;
        Some(GateConfig {
            accept: self.set(Key::GateAccept, accept)?,
            web_search: self.set(Key::GateWebSearch, web_search)?,
            compaction: self.set(Key::GateCompaction, compaction)?,
            remote_content: self.set(Key::GateRemoteContent, remote_content)?,
            known_usage: self.set(Key::GateKnownUsage, known_usage)?,
            strict_bound: self.set(Key::GateStrictBound, strict_bound)?,
        })
    }
}

/// The credential for an upstream: the one that was named for its origin, else a worthless one.
fn choose(named: Sourced<BoundCredential>, upstream: &http::Uri) -> Sourced<CredentialChoice> {
    let origin = Origin::of(upstream);
    let choice = if named.value.origin.as_ref() == Some(&origin) {
        CredentialChoice::Named(named.value.reference)
    } else {
        CredentialChoice::Dummy {
            origin: origin.to_string(),
        }
    };
    Sourced::new(choice, named.source)
}
