//! What a working directory's `labproxy.toml` may do: make things stricter, nothing else.
//!
//! TRUST: an agent may have written that file, and a pull may have brought it here. So it is judged
//! setting by setting against the layers below it; whatever does not tighten is refused by name.

use super::Problem;
use super::key::Key;
use super::layer::{
    AgentLayer, GateLayer, Layer, LimitsLayer, PricingLayer, SessionLayer, Setting, UpstreamLayer,
};
use super::source::Sourced;
use crate::cap::OnCap;
use crate::proxy::gate::WebSearchPolicy;

/// Judges the settings of an untrusted file against the layers `below` it; `remedy` says where they
/// may stand instead.
///
/// Returns what may stay, and adds a problem for each setting that may not.
pub fn tighten(below: &Layer, file: Layer, remedy: &str, problems: &mut Vec<Problem>) -> Layer {
    let mut judge = Judge { remedy, problems };
    let Layer {
        session,
        limits,
        upstream,
        pricing,
        gate,
        agent,
    } = file;
    let session = tighten_session(&mut judge, &below.session, session);
    let LimitsLayer {
        daily_usd,
        max_connections,
    } = limits;
    judge.forbid(Key::LimitsDailyUsd, daily_usd);
    judge.forbid(Key::LimitsMaxConnections, max_connections);
    forbid_upstream(&mut judge, upstream);
    let PricingLayer { file, allow_stale } = pricing;
    judge.forbid(Key::PricingFile, file);
    judge.forbid(Key::PricingAllowStale, allow_stale);
    let gate = tighten_gate(&mut judge, &below.gate, gate);
    let AgentLayer { binary } = agent;
    judge.forbid(Key::AgentBinary, binary);
    Layer {
        session,
        gate,
        ..Layer::default()
    }
}

fn tighten_session(
    judge: &mut Judge<'_>,
    below: &SessionLayer,
    file: SessionLayer,
) -> SessionLayer {
    let SessionLayer {
        cap_usd,
        on_cap,
        lease,
        wait,
        on_client_gone,
        pass_env,
    } = file;
    judge.forbid(Key::SessionOnClientGone, on_client_gone);
    judge.forbid(Key::SessionPassEnv, pass_env);
    SessionLayer {
        cap_usd: judge.limit(Key::SessionCapUsd, cap_usd, below.cap_usd.as_ref(), at_most),
        on_cap: judge.limit(
            Key::SessionOnCap,
            on_cap,
            below.on_cap.as_ref(),
            |mine, theirs| strictness(*mine) >= strictness(*theirs),
        ),
        lease: judge.limit(Key::SessionLease, lease, below.lease.as_ref(), at_most),
        wait: judge.limit(Key::SessionWait, wait, below.wait.as_ref(), at_most),
        ..SessionLayer::default()
    }
}

fn forbid_upstream(judge: &mut Judge<'_>, file: UpstreamLayer) {
    let UpstreamLayer {
        base_url,
        credential,
        allow_private,
        proxy,
        ca_file,
    } = file;
    judge.forbid(Key::UpstreamBaseUrl, base_url);
    judge.forbid(Key::UpstreamCredential, credential);
    judge.forbid(Key::UpstreamAllowPrivate, allow_private);
    judge.forbid(Key::UpstreamProxy, proxy);
    judge.forbid(Key::UpstreamCaFile, ca_file);
}

fn tighten_gate(judge: &mut Judge<'_>, below: &GateLayer, file: GateLayer) -> GateLayer {
    let GateLayer {
        accept,
        web_search,
        compaction,
        remote_content,
        known_usage,
        strict_bound,
    } = file;
    // What is opened may be closed: of two flags the stricter one is `false`, which is the lesser,
    // and for `strict_bound` it is `true`.
    GateLayer {
        accept: judge.limit(
            Key::GateAccept,
            accept,
            below.accept.as_ref(),
            |mine, theirs| subset(mine, theirs),
        ),
        web_search: judge.limit(
            Key::GateWebSearch,
            web_search,
            below.web_search.as_ref(),
            |mine, theirs| searches_no_more(*mine, *theirs),
        ),
        compaction: judge.limit(
            Key::GateCompaction,
            compaction,
            below.compaction.as_ref(),
            at_most,
        ),
        remote_content: judge.limit(
            Key::GateRemoteContent,
            remote_content,
            below.remote_content.as_ref(),
            at_most,
        ),
        known_usage: judge.limit(
            Key::GateKnownUsage,
            known_usage,
            below.known_usage.as_ref(),
            |mine, theirs| subset(mine, theirs),
        ),
        strict_bound: judge.limit(
            Key::GateStrictBound,
            strict_bound,
            below.strict_bound.as_ref(),
            |mine, theirs| mine >= theirs,
        ),
    }
}

fn at_most<T: PartialOrd>(mine: &T, theirs: &T) -> bool {
    mine <= theirs
}

struct Judge<'a> {
    remedy: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl Judge<'_> {
    /// Refuses a setting that such a file never makes.
    fn forbid<T>(&mut self, key: Key, mine: Setting<T>) {
        if let Some(mine) = mine {
            let remedy = self.remedy;
            self.problems.push(Problem::new(
                mine.source,
                format!("{key}: a working directory's file does not set this; {remedy}"),
            ));
        }
    }

    /// Keeps a setting that is as strict as the one below it; without one below there is nothing
    /// to tighten.
    fn limit<T>(
        &mut self,
        key: Key,
        mine: Setting<T>,
        below: Option<&Sourced<T>>,
        as_strict: impl FnOnce(&T, &T) -> bool,
    ) -> Setting<T> {
        let mine = mine?;
        let why = match below {
            Some(theirs) if as_strict(&mine.value, &theirs.value) => return Some(mine),
            Some(theirs) => format!("it is looser than the one from {}", theirs.source),
            None => "there is none yet that it could lower".to_owned(),
        };
        let remedy = self.remedy;
        self.problems.push(Problem::new(
            mine.source,
            format!("{key}: a working directory's file may only tighten, and {why}; {remedy}"),
        ));
        None
    }
}

fn strictness(on_cap: OnCap) -> u8 {
    match on_cap {
        OnCap::Soft => 0,
        OnCap::Clamp => 1,
        OnCap::Refuse => 2,
    }
}

fn subset(mine: &[String], theirs: &[String]) -> bool {
    mine.iter().all(|name| theirs.contains(name))
}

/// A larger allowance per search is a larger hold, so it is the stricter one.
fn searches_no_more(mine: Option<WebSearchPolicy>, theirs: Option<WebSearchPolicy>) -> bool {
    match (mine, theirs) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(mine), Some(theirs)) => {
            mine.tokens_per_use >= theirs.tokens_per_use && mine.max_uses <= theirs.max_uses
        }
    }
}
