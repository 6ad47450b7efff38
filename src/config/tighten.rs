//! What a working directory's `labproxy.toml` may do: make things stricter, nothing else.
//!
//! TRUST: an agent may have written that file, and a pull may have brought it here. So it is judged
//! setting by setting against the layers below it; whatever does not tighten is refused by name.

use std::fmt::Display;

use super::Problem;
use super::host::{HostKey, HostName};
use super::key::Key;
use super::layer::{
    AgentLayer, AuditLayer, GateLayer, HostLayer, Layer, LimitsLayer, MirrorLayer, PricingLayer,
    SessionLayer, Setting, UpstreamLayer,
};
use super::source::Sourced;
use crate::cap::OnCap;
use crate::exclude_pattern::takes_back;
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
        mirror,
        agent,
        audit,
        tools,
        hosts,
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
    let mirror = tighten_mirror(&mut judge, mirror);
    let AgentLayer { binary } = agent;
    judge.forbid(Key::AgentBinary, binary);
    forbid_audit(&mut judge, audit);
    // A tool is a command, and one that runs with a copy of the agent's work.
    for (name, tool) in tools {
        judge.forbid(name.setting(), Some(tool));
    }
    for (name, host) in hosts {
        forbid_host(&mut judge, &name, host);
    }
    Layer {
        session,
        gate,
        mirror,
        ..Layer::default()
    }
}

/// More may be left out; nothing that others leave out is taken back in.
fn tighten_mirror(judge: &mut Judge<'_>, file: MirrorLayer) -> MirrorLayer {
    let MirrorLayer { mut exclude } = file;
    for patterns in &mut exclude {
        let source = patterns.source.clone();
        patterns.value.retain(|pattern| {
            let is_looser = takes_back(pattern);
            if is_looser {
                let key = Key::MirrorExclude;
                let remedy = judge.remedy;
                let what = format!(
                    "{key}: a working directory's file may only leave out more, and '{pattern}' \
                     takes back in; {remedy}"
                );
                judge.problems.push(Problem::new(source.clone(), what));
            }
            !is_looser
        });
    }
    MirrorLayer { exclude }
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

/// What is found in an agent's work is not for that work to say.
fn forbid_audit(judge: &mut Judge<'_>, file: AuditLayer) {
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
    } = file;
    judge.forbid(Key::AuditSymlinks, symlinks);
    judge.forbid(Key::AuditSpecial, special);
    judge.forbid(Key::AuditSetuid, setuid);
    judge.forbid(Key::AuditMaxEntries, max_entries);
    judge.forbid(Key::AuditMaxFileBytes, max_file_bytes);
    judge.forbid(Key::AuditMaxBytes, max_bytes);
    judge.forbid(Key::AuditDeny, deny);
    judge.forbid(Key::AuditTimeout, timeout);
    judge.forbid(Key::AuditRead, read);
    judge.forbid(Key::AuditMaxMemoryBytes, max_memory_bytes);
    judge.forbid(Key::AuditMaxCpu, max_cpu);
    judge.forbid(Key::AuditMaxWriteBytes, max_write_bytes);
    judge.forbid(Key::AuditMaxProcesses, max_processes);
    judge.forbid(Key::AuditMaxTmpBytes, max_tmp_bytes);
    judge.forbid(Key::AuditKeepAge, keep_age);
    judge.forbid(Key::AuditKeepBytes, keep_bytes);
}

/// A host decides where a credential's use goes and which program ssh starts on the way there.
fn forbid_host(judge: &mut Judge<'_>, name: &HostName, file: HostLayer) {
    let HostLayer {
        ssh,
        user,
        port,
        key_path,
        ssh_config,
        workdir,
        tcp_fallback,
        accept_new_host_key,
        sudo,
        gpu_ids,
        setup_commands,
    } = file;
    judge.forbid(HostKey::Ssh.of(name), ssh);
    judge.forbid(HostKey::User.of(name), user);
    judge.forbid(HostKey::Port.of(name), port);
    judge.forbid(HostKey::KeyPath.of(name), key_path);
    judge.forbid(HostKey::SshConfig.of(name), ssh_config);
    judge.forbid(HostKey::Workdir.of(name), workdir);
    judge.forbid(HostKey::TcpFallback.of(name), tcp_fallback);
    judge.forbid(HostKey::AcceptNewHostKey.of(name), accept_new_host_key);
    judge.forbid(HostKey::Sudo.of(name), sudo);
    judge.forbid(HostKey::GpuIds.of(name), gpu_ids);
    judge.forbid(HostKey::SetupCommands.of(name), setup_commands);
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
    fn forbid<T>(&mut self, key: impl Display, mine: Setting<T>) {
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
