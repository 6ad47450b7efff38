//! The closed list of settings: what can be configured, and under which names.

use std::fmt;

macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident = $name:literal,)*) => {
        /// One setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key {
            $($(#[$doc])* $key,)*
        }

        impl Key {
            /// Every setting, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$key,)*];

            /// The name in a file, such as `session.cap_usd`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }
    };
}

keys! {
    /// Most that a session may spend.
    SessionCapUsd = "session.cap_usd",
    /// What happens to a request that does not fit under the cap.
    SessionOnCap = "session.on_cap",
    /// How long a remote agent outlives a lost link.
    SessionLease = "session.lease",
    /// How long a request waits for room.
    SessionWait = "session.wait",
    /// What happens to a request whose client left.
    SessionOnClientGone = "session.on_client_gone",
    /// Variables that reach the agent although they would be removed.
    SessionPassEnv = "session.pass_env",
    /// Most that all sessions of one day may spend.
    LimitsDailyUsd = "limits.daily_usd",
    /// Most connections of one proxy at once.
    LimitsMaxConnections = "limits.max_connections",
    /// Where requests go.
    UpstreamBaseUrl = "upstream.anthropic.base_url",
    /// Where the credential comes from.
    UpstreamCredential = "upstream.anthropic.credential",
    /// Whether names that resolve to private addresses may be used.
    UpstreamAllowPrivate = "upstream.anthropic.allow_private",
    /// An HTTP proxy to CONNECT through.
    UpstreamProxy = "upstream.anthropic.proxy",
    /// More roots, as PEM.
    UpstreamCaFile = "upstream.anthropic.ca_file",
    /// Rows of this file replace built-in ones of the same id.
    PricingFile = "pricing.file",
    /// Whether rows that were checked long ago may be used.
    PricingAllowStale = "pricing.allow_stale",
    /// Unlisted keys and types that are let through.
    GateAccept = "gate.accept",
    /// How web search is opened.
    GateWebSearch = "gate.web_search",
    /// Whether compaction is open.
    GateCompaction = "gate.compaction",
    /// Whether images and documents by URL or file id are open.
    GateRemoteContent = "gate.remote_content",
    /// Usage counters declared harmless.
    GateKnownUsage = "gate.known_usage",
    /// Whether `count_tokens` may never lower a hold.
    GateStrictBound = "gate.strict_bound",
    /// What a mirror leaves out.
    MirrorExclude = "mirror.exclude",
    /// The program that the agent's name stands for.
    AgentBinary = "agent.binary",
    /// Which symlinks an audited tree may hold.
    AuditSymlinks = "audit.symlinks",
    /// Whether pipes, sockets and devices are findings.
    AuditSpecial = "audit.special",
    /// Whether setuid and setgid files are findings.
    AuditSetuid = "audit.setuid",
    /// Most entries of an audited tree.
    AuditMaxEntries = "audit.max_entries",
    /// Longest file of an audited tree.
    AuditMaxFileBytes = "audit.max_file_bytes",
    /// All files of an audited tree together.
    AuditMaxBytes = "audit.max_bytes",
    /// Paths that an audited tree must not hold.
    AuditDeny = "audit.deny",
    /// How long a tool may run.
    AuditTimeout = "audit.timeout",
    /// What of this machine a sandboxed tool may read too.
    AuditRead = "audit.read",
    /// Memory of each process of a tool.
    AuditMaxMemoryBytes = "audit.max_memory_bytes",
    /// Processor time of each process of a tool.
    AuditMaxCpu = "audit.max_cpu",
    /// Longest file that a tool may write.
    AuditMaxWriteBytes = "audit.max_write_bytes",
    /// Processes of a tool at once.
    AuditMaxProcesses = "audit.max_processes",
    /// What a tool may keep in its own directories.
    AuditMaxTmpBytes = "audit.max_tmp_bytes",
    /// How long older generations are kept.
    AuditKeepAge = "audit.keep_age",
    /// Up to how many bytes older generations are kept.
    AuditKeepBytes = "audit.keep_bytes",
}

/// What every variable of labproxy starts with.
pub const VARIABLE_PREFIX: &str = "LABPROXY_";

impl Key {
    /// The setting of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// The variable that sets it, such as `LABPROXY_SESSION_CAP_USD`.
    pub fn variable(self) -> String {
        let name = self.name().replace('.', "_").to_ascii_uppercase();
        format!("{VARIABLE_PREFIX}{name}")
    }

    /// The setting that a variable sets.
    pub fn of_variable(variable: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|key| key.variable() == variable)
    }
}

impl From<Key> for std::borrow::Cow<'static, str> {
    fn from(key: Key) -> Self {
        Self::Borrowed(key.name())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How like two names must be for one to be offered for the other, from 0 to 1; below this the
/// offers are noise (`session.cap` and `gate.accept` reach 0.6).
const LIKE_ENOUGH: f64 = 0.75;

/// Those of `known` that somebody who wrote `wrong` may have meant, best first, at most three.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(score, _)| *score >= LIKE_ENOUGH)
        .collect();
    // What was only begun comes before what is spelt alike.
    let begun = |name: &str| name.starts_with(wrong);
    scored.sort_by(|one, other| {
        let by_score = other.0.total_cmp(&one.0);
        begun(other.1).cmp(&begun(one.1)).then(by_score)
    });
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// ` (did you mean 'a' or 'b'?)`, or nothing.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = nearest(wrong, known)
        .into_iter()
        .map(|name| format!("'{name}'"))
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" (did you mean {}?)", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name and each variable leads back to its own setting.
    #[test]
    fn names_and_variables_are_unambiguous() {
        for key in Key::ALL {
            assert_eq!(Key::of_name(key.name()), Some(*key));
            assert_eq!(Key::of_variable(&key.variable()), Some(*key));
        }
        assert_eq!(Key::SessionOnCap.variable(), "LABPROXY_SESSION_ON_CAP");
    }

    /// A slip of the finger is recognised, an unrelated word is not.
    #[test]
    fn a_wrong_name_gets_a_did_you_mean() {
        let known = ["cap_usd", "on_cap", "wait"];
        assert_eq!(nearest("cap_us", known), ["cap_usd"]);
        assert_eq!(did_you_mean("wiat", known), " (did you mean 'wait'?)");
        assert_eq!(did_you_mean("zebra", known), "");
    }
}
