//! The agent's environment: built from ours by a table, never inherited blindly.
//!
//! Removed are credentials, provider switches, other base URLs, custom headers, socket variables
//! and everything of labproxy's own; `docs/sessions.md` shows the table to users. What carries the
//! bytes of the real credential under any name is removed too, and named.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::secret::Credential;

/// Variables that are removed, by exact name.
pub const REMOVED: &[&str] = &[
    // Claude Code: credentials, where to send them, other ways in.
    "CLAUDE_CODE_API_BASE_URL",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    "CLAUDE_CODE_API_KEY_HELPER_TTL_MS",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
    "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
    "CLAUDE_CODE_CUSTOM_OAUTH_URL",
    "CLAUDE_CODE_ENABLE_PROXY_AUTH_HELPER",
    "CLAUDE_CODE_HOST_HTTP_PROXY_PORT",
    "CLAUDE_CODE_HOST_SOCKS_PROXY_PORT",
    "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST",
    "CLAUDE_CODE_PROXY_RESOLVES_HOSTS",
    "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
    "CLAUDE_CODE_WEBSOCKET_AUTH_FILE_DESCRIPTOR",
    "CLAUDE_BRIDGE_BASE_URL",
    "CLAUDE_BRIDGE_OAUTH_TOKEN",
    "CLAUDE_CODE_REMOTE",
    // The same models behind other providers.
    "AWS_BEARER_TOKEN_BEDROCK",
    "BEDROCK_BASE_URL",
    "VERTEX_BASE_URL",
    "CLOUD_ML_REGION",
    // Other providers' keys and addresses: calls with them would not be metered.
    "OPENAI_API_KEY",
    "OPENAI_ADMIN_KEY",
    "OPENAI_API_BASE",
    "OPENAI_BASE_URL",
    "CODEX_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "AZURE_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "CODE_ASSIST_ENDPOINT",
    "COHERE_API_KEY",
    "DASHSCOPE_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENROUTER_API_KEY",
    "PERPLEXITY_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
    "ZAI_API_KEY",
    "LITELLM_API_KEY",
    "LITELLM_PROXY_API_KEY",
    "LITELLM_PROXY_API_BASE",
];

/// Beginnings of names that are removed.
pub const REMOVED_PREFIXES: &[&str] = &[
    "LABPROXY_",
    // Keys, tokens, base URLs, sockets, headers, federation, profiles; what only names a model or
    // raises a log level is in `KEPT`.
    "ANTHROPIC_",
    "CLAUDE_CODE_OAUTH_",
    "CLAUDE_CODE_USE_",
    "CLAUDE_CODE_SKIP_",
    "CLAUDE_CODE_GATEWAY_",
    "VERTEX_REGION_",
];

/// Names under a removed beginning that stay: they choose a model or a local behaviour, never
/// where a call goes or with which credential.
pub const KEPT: &[&str] = &[
    "ANTHROPIC_BETAS",
    "ANTHROPIC_LOG",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_USE_NATIVE_FILE_SEARCH",
    "CLAUDE_CODE_USE_POWERSHELL_TOOL",
    "CLAUDE_CODE_SKIP_PROMPT_HISTORY",
];

/// Beginnings under a removed beginning that stay, for the same reason.
pub const KEPT_PREFIXES: &[&str] = &["ANTHROPIC_DEFAULT_", "ANTHROPIC_CUSTOM_MODEL_OPTION"];

/// What keeps a CLI from talking elsewhere; set unless the user set it.
pub const QUIET: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
];

/// Variables that name a forward proxy; a client that honours one must not use it for loopback.
const FORWARD_PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Where our own listener is, in the syntax of `NO_PROXY`.
pub const LOOPBACK: &str = "127.0.0.1,localhost,::1";

/// How the agent is told where to go and what to show there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// Claude Code: `ANTHROPIC_AUTH_TOKEN`, and the same again through `--settings`.
    ClaudeCode,
    /// Anything else: `ANTHROPIC_API_KEY`.
    Other,
}

impl AgentKind {
    /// The variable that carries the placeholder.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::ClaudeCode => "ANTHROPIC_AUTH_TOKEN",
            Self::Other => "ANTHROPIC_API_KEY",
        }
    }
}

/// The built environment, and which variables were dropped because they hold the real credential.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentEnvironment {
    /// Every variable the agent gets.
    pub variables: BTreeMap<OsString, OsString>,
    /// Names of variables that held the credential's bytes and would otherwise have been passed.
    pub held_credential: Vec<OsString>,
}

/// What an environment is built from.
pub struct EnvironmentParts<'a> {
    /// How the agent is addressed.
    pub kind: AgentKind,
    /// `http://127.0.0.1:PORT`.
    pub base_url: &'a str,
    /// The placeholder's text.
    pub placeholder: &'a str,
    /// Names that the user passes although the table removes them (`session.pass_env`).
    pub pass_env: &'a [String],
    /// The real credential, to find it where it must not be.
    pub credential: Option<&'a Credential>,
    /// The variable that it was read from, which is dropped without a word.
    pub credential_variable: Option<&'a str>,
}

/// Builds the agent's environment from `inherited`.
pub fn build(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    parts: &EnvironmentParts<'_>,
) -> AgentEnvironment {
    let mut built = AgentEnvironment::default();
    for (name, value) in inherited {
        let is_source = parts
            .credential_variable
            .is_some_and(|source| name == source);
        if is_source || !passes(&name, parts.pass_env) {
            continue;
        }
        let holds_credential = parts.credential.is_some_and(|credential| {
            contains(value.as_bytes(), credential.expose())
                || contains(name.as_bytes(), credential.expose())
        });
        if holds_credential {
            built.held_credential.push(name);
        } else {
            built.variables.insert(name, value);
        }
    }
    let set = &mut built.variables;
    for (name, value) in QUIET {
        set.entry((*name).into()).or_insert_with(|| (*value).into());
    }
    if FORWARD_PROXIES.iter().any(|name| {
        set.get(OsStr::new(name))
            .is_some_and(|value| !value.is_empty())
    }) {
        // Clients differ in which spelling they read first, so both say the same.
        for (name, other) in [("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")] {
            let old = set
                .get(OsStr::new(name))
                .or_else(|| set.get(OsStr::new(other)));
            if !old.is_some_and(|old| contains(old.as_bytes(), LOOPBACK.as_bytes())) {
                let joined = without_proxy(old.map(OsString::as_os_str));
                set.insert(name.into(), joined);
            } else if let Some(old) = old.cloned() {
                set.insert(name.into(), old);
            }
        }
    }
    set.insert("ANTHROPIC_BASE_URL".into(), parts.base_url.into());
    set.insert(parts.kind.key_variable().into(), parts.placeholder.into());
    built
}

/// `NO_PROXY` with loopback in it.
fn without_proxy(old: Option<&OsStr>) -> OsString {
    let mut joined = OsString::from(LOOPBACK);
    if let Some(old) = old.filter(|old| !old.is_empty()) {
        joined.push(",");
        joined.push(old);
    }
    joined
}

/// Whether a variable of this name goes on to the agent.
pub fn passes(name: &OsStr, pass_env: &[String]) -> bool {
    // A name that is not UTF-8 matches no entry of the table.
    let Some(name) = name.to_str() else {
        return true;
    };
    // Our own settings and what points the agent at this proxy are never the user's to pass.
    let ours = name.starts_with("LABPROXY_") || name.starts_with("ANTHROPIC_");
    if !ours && pass_env.iter().any(|passed| passed == name) {
        return true;
    }
    let kept = KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let removed = REMOVED.contains(&name)
        || REMOVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    kept || !removed
}

/// Whether `needle` stands somewhere in `haystack`.
pub(super) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && memchr::memmem::find(haystack, needle).is_some()
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::secret::CredentialKind;

    fn built(
        kind: AgentKind,
        variables: &[(&str, &str)],
        pass_env: &[&str],
        credential: Option<&Credential>,
    ) -> AgentEnvironment {
        let pass_env: Vec<String> = pass_env.iter().map(|name| (*name).to_owned()).collect();
        build(
            variables
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
            &EnvironmentParts {
                kind,
                base_url: "http://127.0.0.1:4000",
                placeholder: "lp-1",
                pass_env: &pass_env,
                credential,
                credential_variable: Some("KEY_SOURCE"),
            },
        )
    }

    fn get<'a>(environment: &'a AgentEnvironment, name: &str) -> Option<&'a str> {
        environment
            .variables
            .get(OsStr::new(name))
            .and_then(|value| value.to_str())
    }

    /// Credentials, provider switches, redirects and our own settings do not reach the agent; the
    /// choice of a model and the rest of the user's environment do.
    #[test]
    fn the_table_removes_what_leads_past_the_proxy() {
        let gone = [
            "ANTHROPIC_CUSTOM_HEADERS",
            "ANTHROPIC_UNIX_SOCKET",
            "ANTHROPIC_BEDROCK_BASE_URL",
            "ANTHROPIC_VERTEX_PROJECT_ID",
            "ANTHROPIC_FOUNDRY_API_KEY",
            "ANTHROPIC_IDENTITY_TOKEN_FILE",
            "ANTHROPIC_SOMETHING_NEW",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_GATEWAY",
            "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
            "AWS_BEARER_TOKEN_BEDROCK",
            "OPENAI_API_KEY",
            "LABPROXY_SESSION_CAP_USD",
        ];
        let stays = [
            "PATH",
            "HOME",
            "TERM",
            "NODE_OPTIONS",
            "AWS_ACCESS_KEY_ID",
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
            "CLAUDE_CONFIG_DIR",
        ];
        let all: Vec<_> = gone.iter().chain(&stays).map(|name| (*name, "x")).collect();
        let environment = built(AgentKind::Other, &all, &[], None);
        for name in gone {
            assert_eq!(get(&environment, name), None, "{name}");
        }
        for name in stays {
            assert_eq!(get(&environment, name), Some("x"), "{name}");
        }
    }

    /// `docs/sessions.md` names everything in the table, so that it stays true.
    #[test]
    fn users_are_told_what_is_removed() {
        let text = include_str!("../../docs/sessions.md");
        let prefixes = REMOVED_PREFIXES.iter().chain(KEPT_PREFIXES);
        for name in REMOVED.iter().chain(KEPT) {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
        for prefix in prefixes {
            assert!(text.contains(&format!("`{prefix}…`")), "{prefix}");
        }
        for (name, _) in QUIET {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }

    /// Of the four variables that may carry a key, exactly one is left, and it is the placeholder.
    #[test]
    fn a04_no_auth_variable_holds_a_real_secret() {
        let four = [
            ("ANTHROPIC_API_KEY", "real"),
            ("ANTHROPIC_AUTH_TOKEN", "real"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "real"),
            ("ANTHROPIC_BASE_URL", "https://elsewhere.example"),
        ];
        for kind in [AgentKind::ClaudeCode, AgentKind::Other] {
            let environment = built(kind, &four, &["ANTHROPIC_API_KEY"], None);
            assert!(environment.variables.values().all(|value| value != "real"));
            assert_eq!(get(&environment, kind.key_variable()), Some("lp-1"));
            assert_eq!(
                get(&environment, "ANTHROPIC_BASE_URL"),
                Some("http://127.0.0.1:4000")
            );
            assert_eq!(
                get(&environment, "ANTHROPIC_API_KEY").is_some(),
                kind == AgentKind::Other
            );
        }
    }

    /// A variable of any name that holds the credential is dropped and named, also when the user
    /// passes it.
    #[test]
    fn x07_a_variable_that_holds_the_credential_is_dropped_by_value() {
        let credential = Credential::new(
            CredentialKind::ApiKey,
            Zeroizing::new(b"sk-canary-1".to_vec()),
        )
        .unwrap();
        let environment = built(
            AgentKind::Other,
            &[
                ("MY_HEADERS", "x-api-key: sk-canary-1\n"),
                ("OPENAI_API_KEY", "sk-canary-1"),
                ("FINE", "sk-canary-"),
                ("KEY_SOURCE", "sk-canary-1"),
            ],
            &["OPENAI_API_KEY"],
            Some(&credential),
        );
        assert_eq!(
            environment.held_credential,
            ["MY_HEADERS", "OPENAI_API_KEY"]
        );
        assert_eq!(get(&environment, "MY_HEADERS"), None);
        assert_eq!(get(&environment, "KEY_SOURCE"), None);
        assert_eq!(get(&environment, "FINE"), Some("sk-canary-"));
    }

    /// The user's own choice about traffic stands, and what he passes by name is passed.
    #[test]
    fn what_the_user_set_stays() {
        let environment = built(
            AgentKind::ClaudeCode,
            &[
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "0"),
                ("OPENAI_API_KEY", "other"),
                ("LABPROXY_X", "1"),
            ],
            &["OPENAI_API_KEY", "LABPROXY_X"],
            None,
        );
        assert_eq!(
            get(&environment, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"),
            Some("0")
        );
        assert_eq!(get(&environment, "DISABLE_AUTOUPDATER"), Some("1"));
        assert_eq!(get(&environment, "OPENAI_API_KEY"), Some("other"));
        assert_eq!(get(&environment, "LABPROXY_X"), None);
    }

    /// A forward proxy is not asked for loopback, and nothing is said about proxies without one.
    #[test]
    fn a_forward_proxy_does_not_get_the_agents_calls() {
        let with = built(
            AgentKind::Other,
            &[("HTTP_PROXY", "http://p:3128"), ("NO_PROXY", ".lab")],
            &[],
            None,
        );
        assert_eq!(get(&with, "NO_PROXY"), Some("127.0.0.1,localhost,::1,.lab"));
        assert_eq!(get(&with, "no_proxy"), Some("127.0.0.1,localhost,::1,.lab"));
        let without = built(AgentKind::Other, &[("NO_PROXY", ".lab")], &[], None);
        assert_eq!(get(&without, "NO_PROXY"), Some(".lab"));
    }
}
