//! What a working directory's `labproxy.toml` may do: make things stricter, nothing else.
//!
//! TRUST: an agent may have written that file, and a pull may have brought it here. So it is judged
//! setting by setting against the layers below it; whatever does not tighten is refused by name.

use super::Problem;
use super::key::Key;
use super::layer::{Layer, Setting};
use crate::cap::OnCap;
use crate::proxy::gate::WebSearchPolicy;

/// Judges the settings of an untrusted file against the layers `below` it; `remedy` says where they
/// may stand instead.
///
/// Returns what may stay, and adds a problem for each setting that may not.
pub fn tighten(below: &Layer, file: Layer, remedy: &str, problems: &mut Vec<Problem>) -> Layer {
    let mut judge = Judge { remedy, problems };
    let Layer {
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
    } = file;
    judge.forbid(Key::SessionOnClientGone, session_on_client_gone);
    judge.forbid(Key::SessionPassEnv, session_pass_env);
    judge.forbid(Key::LimitsDailyUsd, limits_daily_usd);
    judge.forbid(Key::LimitsMaxConnections, limits_max_connections);
    judge.forbid(Key::UpstreamBaseUrl, upstream_base_url);
    judge.forbid(Key::UpstreamCredential, upstream_credential);
    judge.forbid(Key::UpstreamAllowPrivate, upstream_allow_private);
    judge.forbid(Key::UpstreamProxy, upstream_proxy);
    judge.forbid(Key::UpstreamCaFile, upstream_ca_file);
    judge.forbid(Key::PricingFile, pricing_file);
    judge.forbid(Key::PricingAllowStale, pricing_allow_stale);
    judge.forbid(Key::AgentBinary, agent_binary);
    let mut kept = Layer {
        session_cap_usd: judge.limit(
            Key::SessionCapUsd,
            session_cap_usd,
            &below.session_cap_usd,
            |mine, theirs| mine <= theirs,
        ),
        session_on_cap: judge.limit(
            Key::SessionOnCap,
            session_on_cap,
            &below.session_on_cap,
            |mine, theirs| strictness(*mine) >= strictness(*theirs),
        ),
        session_lease: judge.limit(
            Key::SessionLease,
            session_lease,
            &below.session_lease,
            |mine, theirs| mine <= theirs,
        ),
        session_wait: judge.limit(
            Key::SessionWait,
            session_wait,
            &below.session_wait,
            |mine, theirs| mine <= theirs,
        ),
        ..Layer::default()
    };
    kept.gate_accept = judge.limit(Key::GateAccept, gate_accept, &below.gate_accept, subset);
    kept.gate_web_search = judge.limit(
        Key::GateWebSearch,
        gate_web_search,
        &below.gate_web_search,
        |mine, theirs| searches_no_more(*mine, *theirs),
    );
    kept.gate_compaction = judge.limit(
        Key::GateCompaction,
        gate_compaction,
        &below.gate_compaction,
        |mine, theirs| mine <= theirs,
    );
    kept.gate_remote_content = judge.limit(
        Key::GateRemoteContent,
        gate_remote_content,
        &below.gate_remote_content,
        |mine, theirs| mine <= theirs,
    );
    kept.gate_known_usage = judge.limit(
        Key::GateKnownUsage,
        gate_known_usage,
        &below.gate_known_usage,
        subset,
    );
    kept.gate_strict_bound = judge.limit(
        Key::GateStrictBound,
        gate_strict_bound,
        &below.gate_strict_bound,
        |mine, theirs| mine >= theirs,
    );
    kept
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
        below: &Setting<T>,
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

fn subset(mine: &Vec<String>, theirs: &Vec<String>) -> bool {
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
