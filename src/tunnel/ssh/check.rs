//! What ssh makes of the configuration, asked before connecting and compared with a closed list.
//!
//! A keyword is one of ours with our value, one that a user may set, or one that must not be set.
//! A keyword that is in no list, of a newer ssh for example, must have the value that it has
//! without any configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::config::{self, OURS, Setting};
use super::control::Control;
use super::failure::{Awaited, LinkFailure, RefusedSetting};
use super::local::Local;
use super::said;
use crate::tunnel::host::HostSpec;

/// `Match exec` may ask a directory service.
const LIMIT: Duration = Duration::from_secs(10);

/// What a user may set for a link: how the host is found, reached and recognised, who asks and with
/// which key, and which algorithms are used. `ProxyCommand` runs with a built environment.
const FREE: [&str; 51] = [
    "addressfamily",
    "bindaddress",
    "bindinterface",
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizehostname",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "casignaturealgorithms",
    "certificatefile",
    "checkhostip",
    "ciphers",
    "compression",
    "controlpath",
    "enablesshkeysign",
    "fingerprinthash",
    "forwardx11timeout",
    "globalknownhostsfile",
    "gssapiauthentication",
    "gssapiclientidentity",
    "gssapikexalgorithms",
    "gssapikeyexchange",
    "gssapirenewalforcesrekey",
    "gssapiserveridentity",
    "gssapitrustdns",
    "hashknownhosts",
    "host",
    "hostbasedacceptedalgorithms",
    "hostbasedauthentication",
    "hostkeyalgorithms",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ignoreunknown",
    "ipqos",
    "kbdinteractiveauthentication",
    "kbdinteractivedevices",
    "kexalgorithms",
    "macs",
    "numberofpasswordprompts",
    "obscurekeystroketiming",
    "passwordauthentication",
    "port",
    "preferredauthentications",
    "proxycommand",
    "proxyjump",
    "proxyusefdpass",
    "pubkeyacceptedalgorithms",
    "pubkeyauthentication",
];
/// As above; two lists, because the longest that a reader follows is a screen.
const FREE_TOO: [&str; 20] = [
    "channeltimeout",
    "dynamicforward",
    "include",
    "localforward",
    "permitremoteopen",
    "pkcs11provider",
    "refuseconnection",
    "rekeylimit",
    "remoteforward",
    "requiredrsasize",
    "revokedhostkeys",
    "securitykeyprovider",
    "syslogfacility",
    "tag",
    "tcpkeepalive",
    "tunneldevice",
    "user",
    "userknownhostsfile",
    "verifyhostkeydns",
    "xauthlocation",
];
/// What must not be set: it would run a program of its own or carry our environment, and no value
/// of ours that comes first turns it off.
const NEVER: [&str; 2] = ["knownhostscommand", "sendenv"];

/// What `ssh -G` shows: keywords in lower case and their values, repeated ones joined.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shown(BTreeMap<String, Vec<String>>);

impl Shown {
    /// Reads it; what is no line with a keyword is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut shown = Self::default();
        for line in text.lines() {
            let (keyword, value) = line.split_once(' ').unwrap_or((line, ""));
            let values = shown.0.entry(keyword.to_ascii_lowercase()).or_default();
            values.push(value.to_owned());
        }
        shown
    }

    /// Whether a keyword is shown.
    pub(super) fn has(&self, keyword: &str) -> bool {
        self.0.contains_key(&keyword.to_ascii_lowercase())
    }
}

/// Writes the configuration for a host, asks ssh what it makes of it, and refuses what a link must not
/// do.
///
/// Which keywords this ssh knows is asked at the same time, in the hope that it knows all of ours: one
/// after the other costs every connection ten milliseconds. An older one, which does not, is asked again
/// without those that it lacks.
pub(super) async fn check(
    local: &Local,
    host: &HostSpec,
    control: &Control,
) -> Result<(), LinkFailure> {
    write(control, &config::text(host, None)?)?;
    let (plain, shown) = tokio::join!(
        without_configuration(local),
        with_configuration(local, host, control)
    );
    let plain = plain?;
    let shown = if config::knows_all(&plain) {
        shown?
    } else {
        write(control, &config::text(host, Some(&plain))?)?;
        with_configuration(local, host, control).await?
    };
    let settings = refused(&shown, &plain, host.accept_new);
    if settings.is_empty() {
        Ok(())
    } else {
        Err(LinkFailure::ConfigurationRefused { settings })
    }
}

fn write(control: &Control, text: &str) -> Result<(), LinkFailure> {
    std::fs::write(control.configuration(), text).map_err(|error| LinkFailure::Here {
        what: "the configuration of ssh cannot be written".to_owned(),
        why: error.to_string(),
    })
}

/// What this ssh shows without any configuration: which keywords it knows.
async fn without_configuration(local: &Local) -> Result<Shown, LinkFailure> {
    let arguments = ["-G", "-F", "/dev/null", "--", "localhost"];
    ask(local, arguments.map(OsString::from)).await
}

/// What it shows for a host with the configuration that was written.
async fn with_configuration(
    local: &Local,
    host: &HostSpec,
    control: &Control,
) -> Result<Shown, LinkFailure> {
    let (file, socket) = (control.configuration(), control.socket());
    let mut arguments = config::arguments(host, &file, &socket);
    arguments.extend(["-G".into(), "--".into(), host.destination.name().into()]);
    ask(local, arguments).await
}

async fn ask(
    local: &Local,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Shown, LinkFailure> {
    let output = local.run_ssh(arguments, LIMIT).await?;
    let Some(output) = output else {
        return Err(LinkFailure::TimedOut {
            what: Awaited::Configuration,
            after: LIMIT,
        });
    };
    if output.status != Some(0) {
        return Err(LinkFailure::ConfigurationUnread {
            said: said::last_lines(&output.stderr),
        });
    }
    Ok(Shown::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Every setting that a link must not have.
fn refused(shown: &Shown, plain: &Shown, accept_new: bool) -> Vec<RefusedSetting> {
    let mut refused = Vec::new();
    let mut refuse = |keyword: &str, value: &str| {
        refused.push(RefusedSetting {
            keyword: keyword.to_owned(),
            value: value.to_owned(),
        });
    };
    for Setting {
        keyword,
        shown: ours,
        ..
    } in OURS
    {
        let wanted = match (keyword, ours) {
            ("StrictHostKeyChecking", _) if accept_new => Some("accept-new"),
            (_, ours) => ours,
        };
        let keyword = keyword.to_ascii_lowercase();
        match (shown.0.get(&keyword), wanted) {
            (Some(values), Some(wanted)) if values.iter().all(|value| value == wanted) => {}
            (Some(values), _) => values.iter().for_each(|value| refuse(&keyword, value)),
            // One that this ssh shows when nothing is set must be there.
            (None, Some(_)) if plain.0.contains_key(&keyword) => refuse(&keyword, ""),
            (None, _) => {}
        }
    }
    let ours = |keyword: &str| {
        OURS.iter()
            .any(|setting| setting.keyword.eq_ignore_ascii_case(keyword))
    };
    for (keyword, values) in &shown.0 {
        let free = FREE.contains(&keyword.as_str()) || FREE_TOO.contains(&keyword.as_str());
        let default = !NEVER.contains(&keyword.as_str()) && plain.0.get(keyword) == Some(values);
        if !ours(keyword) && !free && !default {
            for value in values {
                refuse(keyword, value);
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "forwardagent no\nwarnweakcrypto yes\nbatchmode no\n";

    fn refusals(shown: &str) -> Vec<String> {
        refused(&Shown::parse(shown), &Shown::parse(PLAIN), false)
            .into_iter()
            .map(|setting| format!("{} {}", setting.keyword, setting.value))
            .collect()
    }

    #[test]
    fn only_what_is_listed_may_be_set() {
        let fine = "host h\nuser u\nproxycommand nc %h %p\nforwardagent no\nbatchmode yes\n\
                    identityfile a\nidentityfile b\nwarnweakcrypto yes\n";
        assert!(refusals(fine).is_empty());
        assert_eq!(
            refusals("forwardagent yes\nbatchmode yes\n"),
            ["forwardagent yes"]
        );
        assert_eq!(refusals("batchmode yes\n"), ["forwardagent "]);
        let fine = "forwardagent no\nbatchmode yes\n";
        for never in [
            "sendenv ANTHROPIC_*",
            "knownhostscommand /bin/sh -c x",
            "remotecommand touch x",
            "localcommand touch x",
            "setenv KEY=canary",
            "sessiontype none",
            "tunnel point-to-point",
            "warnweakcrypto no",
            "somethingnew yes",
        ] {
            assert_eq!(refusals(&format!("{fine}{never}\n")), [never]);
        }
    }
}
