//! How single values are written, and what is refused.

use std::time::Duration;

use super::super::{CredentialChoice, CredentialReference, Key};
use super::User;
use crate::proxy::gate::WebSearchPolicy;
use crate::secret::CredentialKind;

/// The one problem of a user file with this text.
fn problem(text: &str) -> String {
    let problems = User::new().user_file(text).problems();
    assert_eq!(problems.len(), 1, "{text}: {problems:?}");
    problems[0].clone()
}

/// Times have a unit and a bound.
#[test]
fn times_are_read_with_their_unit() {
    for (text, time) in [
        ("0s", Duration::ZERO),
        ("500ms", Duration::from_millis(500)),
        ("2m", Duration::from_mins(2)),
        ("720h", Duration::from_hours(720)),
    ] {
        let user = User::new().variable("LABPROXY_SESSION_LEASE", text);
        assert_eq!(user.load().unwrap().session.lease.value, time, "{text}");
    }
    for bad in [
        "",
        "5",
        "s",
        "-1s",
        "1.5s",
        "1 s",
        "1d",
        "721h",
        "99999999999999999999h",
    ] {
        let user = User::new().variable("LABPROXY_SESSION_LEASE", bad);
        assert_eq!(user.problems().len(), 1, "{bad}");
    }
    assert!(
        problem("session.wait = 120")
            .contains("expected a string such as \"120s\", found a number")
    );
}

/// Money is a string; numbers are refused with the remedy.
#[test]
fn money_is_a_string() {
    assert!(problem("session.cap_usd = 5").contains("\"5\" instead of 5"));
    assert!(problem("session.cap_usd = 5e0").contains("\"5e0\" instead of 5e0"));
    assert!(problem("session.cap_usd = inf").contains("instead of inf"));
    assert!(problem("session.cap_usd = \"-1\"").contains("is not an amount in dollars"));
    assert!(problem("limits.daily_usd = true").contains("found true or false"));
}

/// Requests go over https, or over http to the literal address of this machine; a URL carries
/// nothing else, and what is refused is not repeated.
#[test]
fn upstreams_are_https_or_on_this_machine() {
    for good in [
        "https://api.anthropic.com",
        "https://gw.example:8443/anthropic",
        "http://127.0.0.1:8080",
        "http://127.9.9.9",
        "http://[::1]:8080",
        "http://localhost:8080",
        "http://LocalHost/prefix",
    ] {
        let user = User::new().variable("LABPROXY_UPSTREAM_ANTHROPIC_BASE_URL", good);
        assert!(user.load().is_ok(), "{good}: {:?}", user.problems());
    }
    for bad in [
        "",
        "api.anthropic.com",
        "/v1",
        "ftp://x.example",
        "http://api.anthropic.com",
        "http://localhost.evil.example",
        "http://foo.localhost:8080",
        "http://[localhost]:8080",
        "http://127.0.0.1.evil.example",
        "http://10.0.0.1",
        "http://0.0.0.0",
        "https://",
        "https://x.example:99999",
        "https://x.example:",
        "https://user:canary@x.example",
        "https://x.example?key=canary",
        "https://x.example#canary",
        "https://x.exa mple",
    ] {
        let user = User::new().variable("LABPROXY_UPSTREAM_ANTHROPIC_BASE_URL", bad);
        let problems = user.problems();
        assert_eq!(problems.len(), 1, "{bad}: {problems:?}");
        assert!(!problems[0].contains("canary"), "{problems:?}");
    }
}

/// A credential is named by exactly one source; a pasted key is refused and not repeated.
#[test]
fn a_credential_is_a_reference_with_one_source() {
    const KEY: Key = Key::UpstreamCredential;
    let table = |fields: &str| format!("{KEY} = {fields}");
    let user = User::new().user_file(&table("{ kind = \"oauth\", file = \"~/token\" }"));
    assert_eq!(
        user.load().unwrap().upstream.credential.value,
        CredentialChoice::Named(CredentialReference::File {
            kind: CredentialKind::Oauth,
            path: user.home().join("token"),
        })
    );
    let user = User::new().user_file(&table("{ command = [\"pass\", \"anthropic\"] }"));
    let command = user.load().unwrap().upstream.credential.value;
    assert!(
        matches!(command, CredentialChoice::Named(CredentialReference::Command { argv, .. }) if argv.len() == 2)
    );
    let user = User::new().variable(&KEY.variable(), "oauth:env:MY_TOKEN");
    let choice = user.load().unwrap().upstream.credential.value;
    assert!(matches!(
        choice,
        CredentialChoice::Named(CredentialReference::Env {
            kind: CredentialKind::Oauth,
            ..
        })
    ));

    for (bad, says) in [
        ("{ kind = \"api_key\" }", "found 0"),
        ("{ env = \"A\", file = \"b\" }", "found 2"),
        (
            "{ env = \"A\", knd = \"oauth\" }",
            "unknown key 'knd' (did you mean 'kind'?)",
        ),
        ("{ kind = \"token\", env = \"A\" }", "'token' is not one of"),
        (
            "{ env = \"sk-ant-canary\" }",
            "expected the name of a variable",
        ),
        ("{ command = [] }", "names no program"),
        ("{ command = \"pass\" }", "expected an array"),
        (
            "{ command = [\"pass\", 1] }",
            "expected a string, found a number",
        ),
        ("\"sk-ant-canary\"", "a secret is never written here"),
    ] {
        let problem = problem(&table(bad));
        assert!(problem.contains(says), "{bad}: {problem}");
        assert!(!problem.contains("canary"), "{problem}");
    }
    for bad in [
        "sk-ant-canary",
        "env:sk-ant-canary",
        "env:",
        "file:",
        "command:pass",
        "x:env:A",
    ] {
        let problems = User::new().variable(&KEY.variable(), bad).problems();
        assert!(!problems[0].contains("canary"), "{problems:?}");
    }
}

/// Inside a table each fault has its own line.
#[test]
fn faults_inside_a_table_have_their_own_lines() {
    let user = User::new()
        .user_file("[upstream.anthropic.credential]\nkind = \"x\"\nenv = 1\nextra = 2\n");
    let problems = user.problems();
    let lines: Vec<&str> = problems
        .iter()
        .map(|problem| problem.split(':').nth(1).unwrap())
        .collect();
    assert_eq!(lines, ["2", "3", "4"], "{problems:?}");
}

/// Web search opens only with a bound on what a search may add.
#[test]
fn web_search_opens_with_a_bound() {
    let policy = |user: User| user.load().unwrap().gate.web_search.value;
    let opened = Some(WebSearchPolicy {
        tokens_per_use: 40_000,
        max_uses: 5,
    });
    assert_eq!(
        policy(User::new().user_file("gate.web_search = { tokens_per_use = 40_000 }")),
        opened
    );
    let text = User::new().variable(
        "LABPROXY_GATE_WEB_SEARCH",
        "tokens_per_use=40000,max_uses=5",
    );
    assert_eq!(policy(text), opened);
    let closed = User::new().variable("LABPROXY_GATE_WEB_SEARCH", "false");
    assert_eq!(policy(closed), None);
    assert!(problem("gate.web_search = true").contains("has to be bounded"));
    assert!(problem("gate.web_search = {}").contains("tokens_per_use is missing"));
    let zero = "gate.web_search = { tokens_per_use = 0 }";
    assert!(problem(zero).contains("from 1 to"));
}

/// Lists are arrays in a file and separated by commas in text; the agent's program is `auto` or a
/// path.
#[test]
fn lists_and_programs_are_read() {
    let user = User::new()
        .variable("LABPROXY_GATE_ACCEPT", "a, b")
        .variable("LABPROXY_SESSION_PASS_ENV", "")
        .variable("LABPROXY_AGENT_BINARY", "bin/claude");
    let config = user.load().unwrap();
    assert_eq!(config.gate.accept.value, ["a", "b"]);
    assert!(config.session.pass_env.value.is_empty());
    assert_eq!(
        config.agent.binary.value,
        Some(user.work().join("bin/claude"))
    );
    assert!(problem("gate.accept = \"a\"").contains("expected an array"));
    assert!(problem("mirror.exclude = \"a\"").contains("expected an array"));
    assert!(problem("gate.accept = [\"\"]").contains("an empty name means nothing"));
    assert!(problem("limits.max_connections = 0").contains("from 1 to 65536"));
    assert!(problem("session = 1").contains("session: expected a table [session]"));
}

/// Each pattern that is none is told with its own line; those that are stand beside the lower layers'.
#[test]
fn t14_patterns_of_mirrors_add_up_and_are_judged_one_by_one() {
    let problems = User::new()
        .user_file("[mirror]\nexclude = [\n  \"*.log\",\n  \"a[b\",\n  \"x\\\\\",\n]\n")
        .problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, (line, pattern)) in problems.iter().zip([(4, "a[b"), (5, "x\\")]) {
        let start =
            format!("~/.config/labproxy/config.toml:{line}: mirror.exclude: '{pattern}' is");
        assert!(problem.starts_with(&start), "{problem}");
    }
    let user = User::new()
        .user_file("mirror.exclude = [\"*.log\", \"!keep.log\"]")
        .working_file("[mirror]\nexclude = [\"data/\"]")
        .variable("LABPROXY_MIRROR_EXCLUDE", "!data/, *.tmp");
    let config = user.load().unwrap();
    let all = ["*.log", "!keep.log", "data/", "!data/", "*.tmp"];
    assert_eq!(config.mirror.patterns(), all);
    let entries = crate::config::show::entries(&config);
    let shown: Vec<_> = entries
        .into_iter()
        .filter(|entry| entry.key == "mirror.exclude")
        .map(|entry| (entry.value, entry.source.to_string()))
        .collect();
    let path = user.paths().user_config().display().to_string();
    assert_eq!(
        shown,
        [
            (
                serde_json::json!(["*.log", "!keep.log"]),
                format!("{path}:1")
            ),
            (serde_json::json!(["data/"]), "labproxy.toml:2".to_owned()),
            (
                serde_json::json!(["!data/", "*.tmp"]),
                "LABPROXY_MIRROR_EXCLUDE".to_owned()
            ),
        ]
    );
}
