//! The configuration as a list: each value, and where it came from; never a secret.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::credential::kind_name;
use super::host::{HostConfig, HostKey, HostName};
use super::key::Key;
use super::source::{Source, Sourced};
use super::{
    AgentConfig, AuditConfig, AuditTool, Config, CredentialChoice, CredentialReference, GateConfig,
    LimitsConfig, MirrorConfig, PricingConfig, SessionConfig, UpstreamConfig,
};
use crate::money::PicoUsd;

/// One setting as it is in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The setting's name in a file.
    pub key: Cow<'static, str>,
    /// Its value; money as a string of dollars, times as strings with their unit.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

/// Every setting in force, in the order of [`Key::ALL`], then those of each host. What layers add up
/// has an entry for each that adds something.
pub fn entries(config: &Config) -> Vec<Entry> {
    let Config {
        session,
        limits,
        upstream,
        pricing,
        gate,
        mirror,
        agent,
        audit,
        hosts,
    } = config;
    let mut list = Vec::new();
    add_session(&mut list, session);
    let LimitsConfig {
        daily_usd,
        max_connections,
    } = limits;
    add_option(&mut list, Key::LimitsDailyUsd, daily_usd.as_ref(), |usd| {
        dollars(*usd)
    });
    add(
        &mut list,
        Key::LimitsMaxConnections,
        max_connections,
        |count| json!(count),
    );
    add_upstream(&mut list, upstream);
    let PricingConfig { file, allow_stale } = pricing;
    add_option(&mut list, Key::PricingFile, file.as_ref(), |path| {
        json!(path)
    });
    add(&mut list, Key::PricingAllowStale, allow_stale, |flag| {
        json!(flag)
    });
    add_gate(&mut list, gate);
    add_mirror(&mut list, mirror);
    let AgentConfig { binary } = agent;
    add(&mut list, Key::AgentBinary, binary, |binary| {
        binary
            .as_ref()
            .map_or_else(|| json!("auto"), |path| json!(path))
    });
    add_audit(&mut list, audit);
    for (name, host) in hosts {
        add_host(&mut list, name, host);
    }
    list
}

fn add_host(list: &mut Vec<Entry>, name: &HostName, host: &HostConfig) {
    let HostConfig {
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
    } = host;
    let key = |key: HostKey| key.of(name);
    add(list, key(HostKey::Ssh), ssh, |text| json!(text));
    add_option(list, key(HostKey::User), user.as_ref(), |text| json!(text));
    add_option(list, key(HostKey::Port), port.as_ref(), |port| json!(port));
    let path = |path: &PathBuf| json!(path);
    add_option(list, key(HostKey::KeyPath), key_path.as_ref(), path);
    add_option(list, key(HostKey::SshConfig), ssh_config.as_ref(), path);
    add(list, key(HostKey::Workdir), workdir, |text| json!(text));
    let flag = |flag: &bool| json!(flag);
    add(list, key(HostKey::TcpFallback), tcp_fallback, flag);
    let accept = accept_new_host_key;
    add(list, key(HostKey::AcceptNewHostKey), accept, flag);
    add(list, key(HostKey::Sudo), sudo, flag);
    let names = |names: &Vec<String>| json!(names);
    add(list, key(HostKey::GpuIds), gpu_ids, names);
    add(list, key(HostKey::SetupCommands), setup_commands, names);
}

fn add_session(list: &mut Vec<Entry>, session: &SessionConfig) {
    let SessionConfig {
        cap_usd,
        on_cap,
        lease,
        wait,
        on_client_gone,
        pass_env,
    } = session;
    add_option(list, Key::SessionCapUsd, cap_usd.as_ref(), |usd| {
        dollars(*usd)
    });
    add(list, Key::SessionOnCap, on_cap, |on_cap| json!(on_cap));
    add(list, Key::SessionLease, lease, |lease| time(*lease));
    add(list, Key::SessionWait, wait, |wait| time(*wait));
    add(list, Key::SessionOnClientGone, on_client_gone, |gone| {
        json!(gone)
    });
    add(list, Key::SessionPassEnv, pass_env, |names| json!(names));
}

fn add_upstream(list: &mut Vec<Entry>, upstream: &UpstreamConfig) {
    let UpstreamConfig {
        base_url,
        credential,
        allow_private,
        proxy,
        ca_file,
    } = upstream;
    let url = |url: &http::Uri| json!(url.to_string().trim_end_matches('/'));
    add(list, Key::UpstreamBaseUrl, base_url, url);
    add(list, Key::UpstreamCredential, credential, reference);
    add(list, Key::UpstreamAllowPrivate, allow_private, |flag| {
        json!(flag)
    });
    add_option(list, Key::UpstreamProxy, proxy.as_ref(), url);
    add_option(list, Key::UpstreamCaFile, ca_file.as_ref(), |path| {
        json!(path)
    });
}

fn add_gate(list: &mut Vec<Entry>, gate: &GateConfig) {
    let GateConfig {
        accept,
        web_search,
        compaction,
        remote_content,
        known_usage,
        strict_bound,
    } = gate;
    add(list, Key::GateAccept, accept, |names| json!(names));
    add(
        list,
        Key::GateWebSearch,
        web_search,
        |policy| match policy {
            Some(policy) => json!({
                "tokens_per_use": policy.tokens_per_use,
                "max_uses": policy.max_uses,
            }),
            None => json!(false),
        },
    );
    add(list, Key::GateCompaction, compaction, |flag| json!(flag));
    add(list, Key::GateRemoteContent, remote_content, |flag| {
        json!(flag)
    });
    add(list, Key::GateKnownUsage, known_usage, |names| json!(names));
    add(list, Key::GateStrictBound, strict_bound, |flag| json!(flag));
}

fn add_audit(list: &mut Vec<Entry>, audit: &AuditConfig) {
    let AuditConfig {
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
        tools,
    } = audit;
    add(list, Key::AuditSymlinks, symlinks, |rule| json!(rule));
    add(list, Key::AuditSpecial, special, |rule| json!(rule));
    add(list, Key::AuditSetuid, setuid, |rule| json!(rule));
    add(list, Key::AuditMaxEntries, max_entries, |count| {
        json!(count)
    });
    let bytes = |bytes: &u64| json!(bytes);
    add(list, Key::AuditMaxFileBytes, max_file_bytes, bytes);
    add(list, Key::AuditMaxBytes, max_bytes, bytes);
    add(list, Key::AuditDeny, deny, |names| json!(names));
    add(list, Key::AuditTimeout, timeout, |limit| time(*limit));
    add(list, Key::AuditRead, read, |paths| json!(paths));
    let most = max_memory_bytes.as_ref();
    add_option(list, Key::AuditMaxMemoryBytes, most, bytes);
    let most = max_cpu.as_ref();
    add_option(list, Key::AuditMaxCpu, most, |limit| time(*limit));
    add(list, Key::AuditMaxWriteBytes, max_write_bytes, bytes);
    add(list, Key::AuditMaxProcesses, max_processes, bytes);
    let most = max_tmp_bytes.as_ref();
    add_option(list, Key::AuditMaxTmpBytes, most, bytes);
    add(list, Key::AuditKeepAge, keep_age, |age| time(*age));
    add(list, Key::AuditKeepBytes, keep_bytes, bytes);
    for (name, tool) in tools {
        add(list, name.setting(), tool, show_tool);
    }
}

/// A tool as a file has it.
pub fn show_tool(tool: &AuditTool) -> Value {
    let AuditTool {
        command,
        pull,
        push,
        timeout,
        network,
    } = tool;
    json!({
        "command": command,
        "pull": pull,
        "push": push,
        "timeout": timeout.map(time),
        "network": network,
    })
}

/// An entry for each layer that adds something.
fn add_mirror(list: &mut Vec<Entry>, mirror: &MirrorConfig) {
    let MirrorConfig { exclude } = mirror;
    let key = Key::MirrorExclude;
    let show = |patterns: &Vec<String>| json!(patterns);
    if exclude.is_empty() {
        add(list, key, &Sourced::new(Vec::new(), Source::Default), show);
    }
    for patterns in exclude {
        add(list, key, patterns, show);
    }
}

fn add<T>(
    list: &mut Vec<Entry>,
    key: impl Into<Cow<'static, str>>,
    setting: &Sourced<T>,
    value: impl FnOnce(&T) -> Value,
) {
    list.push(Entry {
        key: key.into(),
        value: value(&setting.value),
        source: setting.source.clone(),
    });
}

/// A setting without a default is `null`.
fn add_option<T>(
    list: &mut Vec<Entry>,
    key: impl Into<Cow<'static, str>>,
    setting: Option<&Sourced<T>>,
    value: impl FnOnce(&T) -> Value,
) {
    match setting {
        Some(setting) => add(list, key, setting, value),
        None => list.push(Entry {
            key: key.into(),
            value: Value::Null,
            source: Source::Default,
        }),
    }
}

fn dollars(usd: PicoUsd) -> Value {
    json!(usd.to_string().trim_start_matches('$'))
}

fn time(time: Duration) -> Value {
    if time.subsec_millis() == 0 {
        json!(format!("{}s", time.as_secs()))
    } else {
        json!(format!("{}ms", time.as_millis()))
    }
}

/// The reference to the credential. A command's arguments are left out: some people put secrets
/// there.
fn reference(choice: &CredentialChoice) -> Value {
    match choice {
        CredentialChoice::Named(CredentialReference::Env { kind, name }) => {
            json!({ "kind": kind_name(*kind), "env": name })
        }
        CredentialChoice::Named(CredentialReference::File { kind, path }) => {
            json!({ "kind": kind_name(*kind), "file": path })
        }
        CredentialChoice::Named(CredentialReference::Command { kind, argv }) => json!({
            "kind": kind_name(*kind),
            "command": argv.first(),
            "arguments": argv.len().saturating_sub(1),
        }),
        CredentialChoice::Dummy { origin } => json!({ "dummy_for": origin }),
    }
}
