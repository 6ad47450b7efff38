//! Threat 10 and case A05: what passes to the provider and back.

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use labproxy::pricing::WriteBound;
use labproxy::proxy::gate::GatePolicy;
use labproxy::proxy::headers::{ANTHROPIC_BETA, Forwarded, forward, give_back};
use labproxy::secret::CredentialKind::{self, ApiKey, Oauth};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{check, open, with};

fn map(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

fn send(pairs: &[(&str, &str)], kind: CredentialKind) -> Forwarded {
    forward(&map(pairs), kind, &GatePolicy::default()).unwrap()
}

fn betas(sent: &Forwarded) -> Vec<&str> {
    let values = sent.headers.get_all(ANTHROPIC_BETA);
    values.iter().map(|value| value.to_str().unwrap()).collect()
}

/// Credentials, what belongs to one connection and what `Connection` names never pass.
#[test]
fn t10_credentials_and_connection_headers_are_dropped() {
    let sent = send(
        &[
            ("x-api-key", "lp-1"),
            ("authorization", "Bearer lp-1"),
            ("x-goog-api-key", "k"),
            ("cookie", "a=b"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "keep-alive"),
            ("host", "evil.example"),
            ("x-forwarded-host", "evil.example"),
            ("forwarded", "host=evil.example"),
            ("connection", "keep-alive, X-App , anthropic-version"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "5"),
            ("content-encoding", "gzip"),
            ("accept-encoding", "gzip, br"),
            ("x-app", "cli"),
            ("anthropic-version", "2023-06-01"),
            ("x-stainless-lang", "js"),
            ("accept", "application/json"),
        ],
        ApiKey,
    );
    let expected = map(&[
        ("x-stainless-lang", "js"),
        ("accept", "application/json"),
        ("accept-encoding", "identity"),
    ]);
    assert_eq!(sent.headers, expected);
}

/// Headers that make somebody else pay are refused by name, not dropped in silence.
#[test]
fn t10_headers_that_change_the_payer_are_refused() {
    for name in [
        "anthropic-user-profile-id",
        "anthropic-workspace-id",
        "anthropic-organization-id",
    ] {
        let refusal = forward(&map(&[(name, "x")]), ApiKey, &GatePolicy::default()).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!(
                "header {name} is refused: it changes who is billed; no setting opens it, so leave \
                 it out"
            )
        );
    }
}

/// A05: unknown betas pass unchanged and in order, over repeated headers too; the hold of their
/// request goes to its dearest rung, which no count lowers, unless the operator knows the name.
#[test]
fn a05_unknown_betas_pass_in_order_at_the_dearest_hold() {
    let pairs = [
        (
            "anthropic-beta",
            "new-a-2027-01-01, effort-2025-11-24,new-b-2027-01-01",
        ),
        ("anthropic-beta", "new-c-2027-01-01"),
        (
            "anthropic-beta",
            "new-d-2027-01-01 ,new-e-2027-01-01,new-f-2027-01-01",
        ),
    ];
    let sent = send(&pairs, ApiKey);
    assert_eq!(betas(&sent), pairs.map(|(_, value)| value));
    assert_eq!(sent.betas.unknown.len(), 6);
    let intent = check(&with(json!({}))).unwrap();
    assert_eq!(intent.writes, WriteBound::None);
    let held = intent.clone().with_betas(&sent.betas);
    assert_eq!((held.prompt_bound, held.countable), (None, false));
    assert_eq!(held.writes, WriteBound::OneHour);
    assert!(held.one_hour_asked);
    assert_eq!(
        held.window_because.unwrap(),
        "unknown beta 'new-a-2027-01-01' (gate.accept = [\"new-a-2027-01-01\"] declares it \
         harmless)"
    );

    let accept = "abcdef"
        .chars()
        .map(|letter| format!("new-{letter}-2027-01-01"));
    let policy = GatePolicy {
        accept: accept.collect(),
        ..GatePolicy::default()
    };
    let sent = forward(&map(&pairs), ApiKey, &policy).unwrap();
    assert_eq!(betas(&sent), pairs.map(|(_, value)| value));
    let held = intent.clone().with_betas(&sent.betas);
    assert_eq!(held.prompt_bound, intent.prompt_bound);
    assert_eq!(held.writes, WriteBound::None);
}

/// E15: a beta that changes the price or the payer is refused, with the setting that lets it
/// through; then its request is held at the dearest rung.
#[test]
fn e15_betas_that_change_the_price_are_refused() {
    for name in [
        "advisor-tool-2026-03-01",
        "server-side-fallback-2026-07-01",
        "fallback-credit-2026-06-01",
        "user-profiles-billing-2026-10-01",
        "code-execution-2025-05-22",
        "skills-2025-10-02",
        "mcp-client-2025-11-20",
        "message-threads-2026-08-12",
        "managed-agents-2026-04-01",
    ] {
        let headers = map(&[("anthropic-beta", &format!("effort-2025-11-24, {name}"))]);
        let refusal = forward(&headers, ApiKey, &GatePolicy::default()).unwrap_err();
        let text = refusal.to_string();
        assert!(
            text.starts_with(&format!("beta {name} is refused: ")),
            "{text}"
        );
        assert!(text.contains(&format!("accept = [\"{name}\"]")), "{text}");
        let policy = GatePolicy {
            accept: vec![name.to_owned()],
            ..GatePolicy::default()
        };
        let sent = forward(&headers, ApiKey, &policy).unwrap();
        assert_eq!(sent.betas.unknown, [name]);
    }
    let compact = map(&[("anthropic-beta", "compact-2026-01-12")]);
    let refusal = forward(&compact, ApiKey, &GatePolicy::default()).unwrap_err();
    assert!(refusal.to_string().contains("compaction = true"));
    let sent = forward(&compact, ApiKey, &open()).unwrap();
    assert_eq!(sent.betas.unknown, Vec::<String>::new());
}

/// Threat 22: a beta about caches makes one-hour writes possible, whatever the body says.
#[test]
fn t22_cache_betas_hold_one_hour_writes() {
    for name in [
        "extended-cache-ttl-2025-04-11",
        "prompt-caching-scope-2026-01-05",
        "prompt-caching-evict-2026-05-12",
        "cache-keepalive-2026-09-03",
    ] {
        let sent = send(&[("anthropic-beta", name)], ApiKey);
        assert_eq!(betas(&sent), [name]);
        let intent = check(&with(json!({}))).unwrap();
        let bound = intent.prompt_bound;
        let intent = intent.with_betas(&sent.betas);
        assert_eq!(intent.writes, WriteBound::OneHour);
        assert!(intent.one_hour_asked);
        assert_eq!(intent.prompt_bound, bound);
    }
}

/// The OAuth beta goes with an OAuth token and only with it.
#[test]
fn t10_the_oauth_beta_follows_the_credential() {
    let client = [
        ("anthropic-beta", "oauth-2025-04-20,effort-2025-11-24"),
        ("anthropic-beta", "oauth-2025-04-20"),
        ("anthropic-beta", "claude-code-20250219, oauth-2025-04-20"),
        ("anthropic-beta", "oidc-federation-2026-04-01"),
    ];
    let rest = ["effort-2025-11-24", "claude-code-20250219"];
    assert_eq!(betas(&send(&client, ApiKey)), rest);
    let with_token = [
        "effort-2025-11-24",
        "claude-code-20250219",
        "oauth-2025-04-20",
    ];
    assert_eq!(betas(&send(&client, Oauth)), with_token);
    assert_eq!(betas(&send(&[], Oauth)), ["oauth-2025-04-20"]);
    assert_eq!(betas(&send(&[], ApiKey)), Vec::<&str>::new());
}

/// Threat 18: of an answer's headers only the listed ones pass back.
#[test]
fn t18_response_headers_are_an_allow_list() {
    let back = give_back(map(&[
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
        ("content-length", "12"),
        ("request-id", "req_1"),
        ("anthropic-ratelimit-tokens-remaining", "5"),
        ("anthropic-organization-id", "o"),
        ("retry-after", "2"),
        ("retry-after-ms", "2000"),
        ("x-should-retry", "true"),
        ("date", "Sun, 29 Nov 2026 00:00:00 GMT"),
        ("location", "https://evil.example/"),
        ("set-cookie", "a=b"),
        ("connection", "close, retry-after-ms"),
        ("www-authenticate", "Bearer realm=\"sk-ant-real\""),
        ("x-debug-authorization", "Bearer sk-ant-real"),
        ("alt-svc", "h3"),
        ("server", "nginx"),
    ]));
    let mut names: Vec<_> = back.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = [
        "anthropic-organization-id",
        "anthropic-ratelimit-tokens-remaining",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "request-id",
        "retry-after",
        "x-should-retry",
    ];
    assert_eq!(names, expected);

    let chunked = give_back(map(&[
        ("content-length", "12"),
        ("transfer-encoding", "chunked"),
        ("request-id", "req_1"),
    ]));
    let names: Vec<_> = chunked.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["request-id"], "a chunked answer has no length");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// 200 random headers never reach the provider.
    #[test]
    fn t10_random_headers_never_pass(name in "[a-z][a-z0-9-]{0,30}", value in "[ -~]{0,40}") {
        let listed = [
            "accept", "accept-language", "content-type", "user-agent", "sec-fetch-mode", "x-app",
            "x-session-id",
        ];
        prop_assume!(!listed.contains(&name.as_str()) && !name.starts_with("x-stainless-"));
        prop_assume!(!name.starts_with("anthropic-") && !name.starts_with("x-claude-code-"));
        let sent = send(&[(&name, value.trim())], ApiKey);
        prop_assert_eq!(sent.headers.len(), 1);
        prop_assert_eq!(&sent.headers[ACCEPT_ENCODING], "identity");
    }
}
