//! One layer of settings, and how one is laid over another.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::audit::{LinkRule, OddRule};
use super::credential::{CredentialReference, Origin};
use super::host::{HostKey, HostName};
use super::key::Key;
use super::source::{Source, Sourced};
use super::tool::{AuditTool, ToolName};
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

/// What one layer sets, section by section. Every field is named after its [`Key`].
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// `[session]`.
    pub session: SessionLayer,
    /// `[limits]`.
    pub limits: LimitsLayer,
    /// `[upstream.anthropic]`.
    pub upstream: UpstreamLayer,
    /// `[pricing]`.
    pub pricing: PricingLayer,
    /// `[gate]`.
    pub gate: GateLayer,
    /// `[mirror]`.
    pub mirror: MirrorLayer,
    /// `[agent]`.
    pub agent: AgentLayer,
    /// `[audit]`.
    pub audit: AuditLayer,
    /// `[audit.tool.NAME]`, by name.
    pub tools: BTreeMap<ToolName, Sourced<AuditTool>>,
    /// `[host.NAME]`, by name.
    pub hosts: BTreeMap<HostName, HostLayer>,
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "each field is documented by the Key of the same name")]
        pub struct $name {
            $(pub $field: Setting<$type>,)*
        }

        impl $name {
            /// This section with `upper` laid over it; no field can be forgotten.
            fn under(self, upper: Self) -> Self {
                let Self { $($field,)* } = upper;
                Self { $($field: $field.or(self.$field),)* }
            }
        }
    };
}

section!(
    /// `[session]` of one layer.
    SessionLayer {
        cap_usd: PicoUsd,
        on_cap: OnCap,
        lease: Duration,
        wait: Duration,
        on_client_gone: OnClientGone,
        pass_env: Vec<String>,
    }
);
section!(
    /// `[limits]` of one layer.
    LimitsLayer {
        daily_usd: PicoUsd,
        max_connections: usize,
    }
);
section!(
    /// `[upstream.anthropic]` of one layer.
    UpstreamLayer {
        base_url: http::Uri,
        credential: BoundCredential,
        allow_private: bool,
        proxy: http::Uri,
        ca_file: PathBuf,
    }
);
section!(
    /// `[pricing]` of one layer.
    PricingLayer {
        file: PathBuf,
        allow_stale: bool,
    }
);
section!(
    /// `[gate]` of one layer.
    GateLayer {
        accept: Vec<String>,
        web_search: Option<WebSearchPolicy>,
        compaction: bool,
        remote_content: bool,
        known_usage: Vec<String>,
        strict_bound: bool,
    }
);
section!(
    /// `[agent]` of one layer.
    AgentLayer {
        binary: Option<PathBuf>,
    }
);
section!(
    /// `[audit]` of one layer.
    AuditLayer {
        symlinks: LinkRule,
        special: OddRule,
        setuid: OddRule,
        max_entries: u64,
        max_file_bytes: u64,
        max_bytes: u64,
        deny: Vec<String>,
        timeout: Duration,
        read: Vec<PathBuf>,
        max_memory_bytes: u64,
        max_cpu: Duration,
        max_write_bytes: u64,
        max_processes: u64,
        max_tmp_bytes: u64,
        keep_age: Duration,
        keep_bytes: u64,
    }
);
section!(
    /// `[host.NAME]` of one layer; every field is named after its [`HostKey`].
    HostLayer {
        ssh: String,
        user: String,
        port: u16,
        key_path: PathBuf,
        ssh_config: PathBuf,
        workdir: String,
        tcp_fallback: bool,
        accept_new_host_key: bool,
        sudo: bool,
        gpu_ids: Vec<String>,
        setup_commands: Vec<String>,
    }
);

/// `[mirror]` of one layer, or of several: unlike every other setting, what a higher layer says is
/// added to what the lower ones say.
#[derive(Clone, Debug, Default)]
pub struct MirrorLayer {
    /// Patterns of what is left out, those of the lowest layer first.
    pub exclude: Vec<Sourced<Vec<String>>>,
}

impl MirrorLayer {
    fn add(&mut self, patterns: Vec<String>, source: Source) {
        self.exclude.push(Sourced::new(patterns, source));
    }

    /// This section and then what `upper` adds.
    fn under(mut self, upper: Self) -> Self {
        let Self { mut exclude } = upper;
        self.exclude.append(&mut exclude);
        self
    }
}

impl UpstreamLayer {
    /// This section with `upper` laid over it, in which `upper`'s credential is bound to the origin
    /// in force there: a layer that only changes the upstream does not get a lower one's credential.
    fn bound_under(self, mut upper: Self) -> Self {
        let url = upper.base_url.as_ref().or(self.base_url.as_ref());
        let origin = url.map(|url| Origin::of(&url.value));
        if let Some(named) = &mut upper.credential {
            named.value.origin = origin;
        }
        self.under(upper)
    }
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
        let Self {
            session,
            limits,
            upstream,
            pricing,
            gate,
            mirror,
            agent,
            audit,
            tools: _,
            hosts: _,
        } = self;
        match key {
            Key::SessionCapUsd => put(&mut session.cap_usd, written.usd()?, source),
            Key::SessionOnCap => put(&mut session.on_cap, written.on_cap()?, source),
            Key::SessionLease => put(&mut session.lease, written.duration()?, source),
            Key::SessionWait => put(&mut session.wait, written.duration()?, source),
            Key::SessionOnClientGone => {
                let gone = written.on_client_gone()?;
                put(&mut session.on_client_gone, gone, source);
            }
            Key::SessionPassEnv => put(&mut session.pass_env, written.names()?, source),
            Key::LimitsDailyUsd => put(&mut limits.daily_usd, written.usd()?, source),
            Key::LimitsMaxConnections => {
                put(&mut limits.max_connections, written.connections()?, source);
            }
            Key::UpstreamBaseUrl => put(&mut upstream.base_url, written.upstream()?, source),
            Key::UpstreamCredential => {
                let bound = BoundCredential {
                    reference: written.credential(place)?,
                    origin: None,
                };
                put(&mut upstream.credential, bound, source);
            }
            Key::UpstreamAllowPrivate => put(&mut upstream.allow_private, written.flag()?, source),
            Key::UpstreamProxy => put(&mut upstream.proxy, written.http_proxy()?, source),
            Key::UpstreamCaFile => put(&mut upstream.ca_file, written.path(place)?, source),
            Key::PricingFile => put(&mut pricing.file, written.path(place)?, source),
            Key::PricingAllowStale => put(&mut pricing.allow_stale, written.flag()?, source),
            Key::GateAccept => put(&mut gate.accept, written.names()?, source),
            Key::GateWebSearch => put(&mut gate.web_search, written.web_search()?, source),
            Key::GateCompaction => put(&mut gate.compaction, written.flag()?, source),
            Key::GateRemoteContent => put(&mut gate.remote_content, written.flag()?, source),
            Key::GateKnownUsage => put(&mut gate.known_usage, written.names()?, source),
            Key::GateStrictBound => put(&mut gate.strict_bound, written.flag()?, source),
            Key::MirrorExclude => mirror.add(written.patterns()?, source),
            Key::AgentBinary => put(&mut agent.binary, written.binary(place)?, source),
            Key::AuditSymlinks => put(&mut audit.symlinks, written.link_rule()?, source),
            Key::AuditSpecial => put(&mut audit.special, written.odd_rule()?, source),
            Key::AuditSetuid => put(&mut audit.setuid, written.odd_rule()?, source),
            Key::AuditMaxEntries => put(&mut audit.max_entries, written.size()?, source),
            Key::AuditMaxFileBytes => put(&mut audit.max_file_bytes, written.size()?, source),
            Key::AuditMaxBytes => put(&mut audit.max_bytes, written.size()?, source),
            Key::AuditDeny => put(&mut audit.deny, written.names()?, source),
            Key::AuditTimeout => put(&mut audit.timeout, written.duration()?, source),
            Key::AuditRead => put(&mut audit.read, written.paths(place)?, source),
            Key::AuditMaxMemoryBytes => put(&mut audit.max_memory_bytes, written.size()?, source),
            Key::AuditMaxCpu => put(&mut audit.max_cpu, written.duration()?, source),
            Key::AuditMaxWriteBytes => put(&mut audit.max_write_bytes, written.size()?, source),
            Key::AuditMaxProcesses => put(&mut audit.max_processes, written.size()?, source),
            Key::AuditMaxTmpBytes => put(&mut audit.max_tmp_bytes, written.size()?, source),
            Key::AuditKeepAge => put(&mut audit.keep_age, written.duration()?, source),
            Key::AuditKeepBytes => put(&mut audit.keep_bytes, written.size()?, source),
        }
        Ok(())
    }

    /// Reads what was written for a setting of a host, which is made when it was not there.
    ///
    /// # Errors
    /// Everything that is wrong with what was written.
    pub fn set_host(
        &mut self,
        (host, key): (&HostName, HostKey),
        written: Written<'_>,
        place: Place<'_>,
        source: Source,
    ) -> Result<(), Vec<Fault>> {
        let host = self.hosts.entry(host.clone()).or_default();
        written.put_into(host, key, place, source)
    }

    /// This layer with `upper` laid over it.
    #[must_use]
    pub fn under(mut self, upper: Self) -> Self {
        let Self {
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
        } = upper;
        self.tools.extend(tools);
        for (name, host) in hosts {
            let lower = self.hosts.remove(&name).unwrap_or_default();
            self.hosts.insert(name, lower.under(host));
        }
        Self {
            session: self.session.under(session),
            limits: self.limits.under(limits),
            upstream: self.upstream.bound_under(upstream),
            pricing: self.pricing.under(pricing),
            gate: self.gate.under(gate),
            mirror: self.mirror.under(mirror),
            agent: self.agent.under(agent),
            audit: self.audit.under(audit),
            tools: self.tools,
            hosts: self.hosts,
        }
    }
}
