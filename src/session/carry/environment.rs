//! Which variables go to the host: a closed list, where the local table (`session::environment`)
//! only removes. What is on the list and still names a credential, a URL or a socket stays here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::Refused;
use super::watch::Watch;
use crate::session::environment::{KEPT, KEPT_PREFIXES, QUIET, passes};

/// Beginnings of names that go to the host.
pub const LISTED_PREFIXES: &[&str] = &["CLAUDE_", "MCP_", "LC_"];
/// Names that go to the host.
pub const LISTED: &[&str] = &["TERM", "LANG", "COLORTERM", "NO_COLOR"];
/// Listed by their beginning, but they name a file, directory or process of this machine.
pub const HERE_ONLY: &[&str] = &[
    "CLAUDE_CODE_DEBUG_LOGS_DIR",
    "CLAUDE_CODE_GIT_BASH_PATH",
    "CLAUDE_CODE_PLUGIN_CACHE_DIR",
    "CLAUDE_CODE_SHELL",
    "CLAUDE_CODE_SHELL_PREFIX",
    "CLAUDE_CODE_TMPDIR",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_TMPDIR",
];
/// Words of a name that say that its value is a credential. `TOKENS` is a count.
const CREDENTIAL_WORDS: &[&str] = &[
    "APIKEY",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "CERT",
    "COOKIE",
    "CREDENTIAL",
    "CREDENTIALS",
    "HEADERS",
    "KEY",
    "KEYS",
    "OAUTH",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PAT",
    "SECRET",
    "SECRETS",
    "TOKEN",
];
/// Words of a name that say that its value leads somewhere: a URL, a socket, a descriptor.
const WAY_WORDS: &[&str] = &[
    "DESCRIPTOR",
    "ENDPOINT",
    "FD",
    "HOST",
    "PORT",
    "PROXY",
    "REDIRECT",
    "SOCK",
    "SOCKET",
    "URI",
    "URL",
];

/// Why a variable that was asked for by name stays here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Its name says that it is a credential.
    Credential,
    /// Its name says that it leads somewhere else.
    Way,
    /// The local table removes it, or it is labproxy's own.
    Removed,
}

impl Stays {
    /// What is told of it.
    pub fn why(self) -> &'static str {
        match self {
            Self::Credential => "its name says that it holds a credential",
            Self::Way => "its name says that it holds a URL, a socket or a port of this machine",
            Self::Removed => "it would lead past the proxy, or is labproxy's own",
        }
    }
}

/// Whether a variable that is asked for by name (`--env`, `session.pass_env`) may go to the host.
///
/// # Errors
/// Why it stays here.
pub fn may_be_asked_for(name: &str) -> Result<(), Stays> {
    let words = |listed: &[&str]| {
        let name = name.to_ascii_uppercase();
        name.split(|letter: char| !letter.is_ascii_alphanumeric())
            .any(|word| listed.contains(&word))
    };
    if !passes(OsStr::new(name), &[]) {
        Err(Stays::Removed)
    } else if words(CREDENTIAL_WORDS) {
        Err(Stays::Credential)
    } else if words(WAY_WORDS) {
        Err(Stays::Way)
    } else {
        Ok(())
    }
}

/// Whether a variable of this name goes to the host; `asked` are the names that the user gave.
pub fn goes(name: &OsStr, asked: &[String]) -> bool {
    // A name that is not UTF-8 stands on no list.
    let Some(name) = name.to_str() else {
        return false;
    };
    let listed = LISTED.contains(&name)
        || KEPT.contains(&name)
        || QUIET.iter().any(|(quiet, _)| *quiet == name)
        || [LISTED_PREFIXES, KEPT_PREFIXES]
            .concat()
            .iter()
            .any(|prefix| name.starts_with(prefix));
    let asked = asked.iter().any(|asked| asked == name);
    (asked || listed && !HERE_ONLY.contains(&name)) && may_be_asked_for(name).is_ok()
}

/// The variables of `inherited` that go to the host.
///
/// # Errors
/// When one of them holds the credential: it is named, its value is not.
pub fn carried(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    asked: &[String],
    watch: &Watch,
) -> Result<BTreeMap<OsString, OsString>, Refused> {
    let mut carried = BTreeMap::new();
    for (name, value) in inherited {
        if !goes(&name, asked) {
            continue;
        }
        if watch.finds(value.as_bytes()) {
            return Err(Refused::Variable { name });
        }
        carried.insert(name, value);
    }
    for (name, value) in QUIET {
        carried
            .entry((*name).into())
            .or_insert_with(|| (*value).into());
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::secret::{Credential, CredentialKind};

    /// What an SDK hands its CLI, by name: what goes, and what stays.
    #[test]
    fn t05_a_closed_list_goes_to_the_host() {
        let asked = ["HF_HOME".to_owned(), "HF_TOKEN".to_owned()];
        for name in [
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_AGENT_SDK_VERSION",
            "CLAUDE_CODE_SDK_READS_SESSION_STATE",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "MCP_TIMEOUT",
            "TERM",
            "LANG",
            "LC_ALL",
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "DISABLE_TELEMETRY",
            "HF_HOME",
        ] {
            assert!(goes(OsStr::new(name), &asked), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "PWD",
            "USER",
            "CLAUDECODE",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_UNIX_SOCKET",
            "ANTHROPIC_CUSTOM_HEADERS",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_API_BASE_URL",
            "CLAUDE_CODE_SSE_PORT",
            "CLAUDE_SOME_NEW_API_KEY",
            "CLAUDE_CODE_EXTRA_HEADERS",
            "CLAUDE_CONFIG_DIR",
            "CLAUDE_CODE_TMPDIR",
            "MCP_CLIENT_SECRET",
            "MCP_SERVER_URL",
            "MCP_auth_cookie",
            "LABPROXY_SESSION_CAP_USD",
            "HTTPS_PROXY",
            "HF_TOKEN",
        ] {
            assert!(!goes(OsStr::new(name), &asked), "{name}");
        }
        assert!(!goes(OsStr::from_bytes(b"CLAUDE_\xff"), &asked));
    }

    /// `docs/remote.md` names everything in the lists, so that it stays true.
    #[test]
    fn users_are_told_what_goes() {
        let text = include_str!("../../../docs/remote.md");
        for name in LISTED.iter().chain(HERE_ONLY) {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
        for prefix in LISTED_PREFIXES {
            assert!(text.contains(&format!("`{prefix}…`")), "{prefix}");
        }
    }

    /// Asked for by name, a credential, a way out and labproxy's own still stay, each with its reason.
    #[test]
    fn t05_asking_does_not_send_a_credential() {
        for (name, expected) in [
            ("HF_TOKEN", Err(Stays::Credential)),
            ("WANDB_API_KEY", Err(Stays::Credential)),
            ("http_proxy", Err(Stays::Way)),
            ("DATABASE_URL", Err(Stays::Way)),
            ("LABPROXY_X", Err(Stays::Removed)),
            ("ANTHROPIC_BASE_URL", Err(Stays::Removed)),
            ("OPENAI_API_KEY", Err(Stays::Removed)),
            ("CUDA_VISIBLE_DEVICES", Ok(())),
        ] {
            assert_eq!(may_be_asked_for(name), expected, "{name}");
        }
    }

    /// A listed variable that holds the credential is refused by name; one that stays here anyway is
    /// nobody's business.
    #[test]
    fn t05_a_value_with_the_credential_is_refused_by_name() {
        let bytes = Zeroizing::new(b"sk-canary-0123456789".to_vec());
        let watch = Watch::of(&Credential::new(CredentialKind::ApiKey, bytes).unwrap());
        let variables = |name: &str| {
            [
                (
                    OsString::from(name),
                    OsString::from("a sk-canary-0123456789 b"),
                ),
                (OsString::from("LANG"), OsString::from("C.UTF-8")),
            ]
        };
        let refused = carried(variables("CLAUDE_CODE_NOTE"), &[], &watch).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("CLAUDE_CODE_NOTE") && !text.contains("canary"),
            "{text}"
        );
        let passed = carried(variables("MY_KEY"), &[], &watch).unwrap();
        assert_eq!(passed.get(OsStr::new("LANG")).unwrap(), "C.UTF-8");
        assert_eq!(passed.get(OsStr::new("DISABLE_TELEMETRY")).unwrap(), "1");
        assert_eq!(passed.len(), 1 + QUIET.len());
    }
}
