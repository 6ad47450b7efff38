//! The folded layers as one [`Config`]: every value there, the credential judged.

use std::collections::BTreeMap;

use super::credential::{CredentialChoice, Origin};
use super::host;
use super::key::Key;
use super::layer::{
    AgentLayer, AuditLayer, BoundCredential, GateLayer, Layer, LimitsLayer, MirrorLayer,
    PricingLayer, SessionLayer, Setting, UpstreamLayer,
};
use super::source::{Source, Sourced};
use super::{
    AgentConfig, AuditConfig, AuditTool, Config, GateConfig, LimitsConfig, MirrorConfig,
    PricingConfig, Problem, SessionConfig, ToolName, UpstreamConfig,
};

/// Makes the configuration of the folded layers; `None` when a value is missing, which is then
/// among the problems.
pub fn resolve(folded: Layer, problems: &mut Vec<Problem>) -> Option<Config> {
    let Layer {
        session,
        limits,
        upstream,
        pricing,
        gate,
        mirror,
        agent,
        audit,
        tools,
        hosts,
    } = folded;
    let LimitsLayer {
        daily_usd,
        max_connections,
    } = limits;
    let PricingLayer { file, allow_stale } = pricing;
    let MirrorLayer { exclude } = mirror;
    let AgentLayer { binary } = agent;
    let hosts = host::resolve(hosts, problems);
    let mut need = Need { problems };
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
        mirror: MirrorConfig { exclude },
        agent: AgentConfig {
            binary: need.set(Key::AgentBinary, binary)?,
        },
        audit: need.audit(audit, tools)?,
        hosts,
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
            self.missing(key);
        }
        setting
    }

    fn missing(&mut self, key: Key) {
        let missing = format!("{key}: there is no value");
        self.problems.push(Problem::new(Source::Default, missing));
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

    fn audit(
        &mut self,
        folded: AuditLayer,
        tools: BTreeMap<ToolName, Sourced<AuditTool>>,
    ) -> Option<AuditConfig> {
        let AuditLayer {
            symlinks,
            special,
            setuid,
            max_entries,
            max_file_bytes,
            max_bytes,
            deny,
            timeout,
            read,
            max_memory_bytes,
            max_cpu,
            max_write_bytes,
            max_processes,
            max_tmp_bytes,
            keep_age,
            keep_bytes,
        } = folded;
        Some(AuditConfig {
            symlinks: self.set(Key::AuditSymlinks, symlinks)?,
            special: self.set(Key::AuditSpecial, special)?,
            setuid: self.set(Key::AuditSetuid, setuid)?,
            max_entries: self.set(Key::AuditMaxEntries, max_entries)?,
            max_file_bytes: self.set(Key::AuditMaxFileBytes, max_file_bytes)?,
            max_bytes: self.set(Key::AuditMaxBytes, max_bytes)?,
            deny: self.set(Key::AuditDeny, deny)?,
            timeout: self.set(Key::AuditTimeout, timeout)?,
            read: self.set(Key::AuditRead, read)?,
            max_memory_bytes,
            max_cpu,
            max_write_bytes: self.set(Key::AuditMaxWriteBytes, max_write_bytes)?,
            max_processes: self.set(Key::AuditMaxProcesses, max_processes)?,
            max_tmp_bytes,
            keep_age: self.set(Key::AuditKeepAge, keep_age)?,
            keep_bytes: self.set(Key::AuditKeepBytes, keep_bytes)?,
            tools,
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
