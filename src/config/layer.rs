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
    /// `[agent]`.
    pub agent: AgentLayer,
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
            agent,
        } = self;
        match key {
            Key::SessionCapUsd => put(&mut session.cap_usd, written.usd()?, source),
            Key::SessionOnCap => put(&mut session.on_cap, written.on_cap()?, source),
            Key::SessionLease => put(&mut session.lease, written.duration()?, source),
            Key::SessionWait => put(&mut session.wait, written.duration()?, source),
            Key::SessionOnClientGone => {
                put(
                    &mut session.on_client_gone,
                    written.on_client_gone()?,
                    source,
                );
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
            Key::AgentBinary => put(&mut agent.binary, written.binary(place)?, source),
        }
        Ok(())
    }

    /// This layer with `upper` laid over it.
    #[must_use]
    pub fn under(self, upper: Self) -> Self {
        let Self {
            session,
            limits,
            upstream,
            pricing,
            gate,
            agent,
        } = upper;
        Self {
            session: self.session.under(session),
            limits: self.limits.under(limits),
            upstream: self.upstream.bound_under(upstream),
            pricing: self.pricing.under(pricing),
            gate: self.gate.under(gate),
            agent: self.agent.under(agent),
        }
    }
}
