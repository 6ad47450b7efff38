//! Which requests are let in, by method and raw target.

use http::{HeaderMap, HeaderValue, Method, Uri};
use labproxy::proxy::route::{Route, RouteRefusal};
use proptest::prelude::*;

fn of(method: &str, target: &str) -> Result<Route, RouteRefusal> {
    let method: Method = method.parse().unwrap();
    let target: Uri = target.parse().unwrap();
    Route::of(&method, &target, &HeaderMap::new())
}

/// The whole table: nothing else is served.
#[test]
fn x01_the_served_routes_are_these() {
    for (method, target, route) in [
        ("POST", "/v1/messages", Route::Messages),
        ("POST", "/v1/messages?beta=true", Route::Messages),
        ("POST", "/v1/messages/count_tokens", Route::CountTokens),
        ("GET", "/v1/models", Route::Models),
        (
            "GET",
            "/v1/models?limit=1000&after_id=a-b.c_d",
            Route::Models,
        ),
        (
            "GET",
            "/v1/models/claude-sonnet-4-5-20250929",
            Route::Model("claude-sonnet-4-5-20250929".to_owned()),
        ),
        ("HEAD", "/", Route::Hello),
        ("HEAD", "/api/hello", Route::Hello),
    ] {
        assert_eq!(of(method, target), Ok(route), "{method} {target}");
    }
}

/// A11: `count_tokens` with a query is the same route.
#[test]
fn a11_count_tokens_with_a_query_is_served() {
    let route = of("POST", "/v1/messages/count_tokens?beta=true");
    assert_eq!(route, Ok(Route::CountTokens));
}

/// X02: what another reader might normalise into a served path is malformed.
#[test]
fn x02_odd_targets_are_malformed() {
    for target in [
        "/v1/messages/../files",
        "/v1/./messages",
        "/v1/messages/..",
        "/v1/messages/%2e%2e/files",
        "/v1%2fmessages",
        "/v1/messages%00",
        "//v1/messages",
        "/v1//messages",
        "/v1/messages//",
        "/v1/messages;x=1",
        "/v1/messages,x",
        "/V1/messages",
        "/v1/Messages",
        "/v1/models/Claude-Sonnet-5",
        "/v1/models/../messages",
        "http://api.example.invalid/v1/messages",
        "https://api.anthropic.com/v1/messages?beta=true",
        "api.anthropic.com:443",
        "*",
    ] {
        for method in ["POST", "GET"] {
            let refusal = of(method, target).unwrap_err();
            let odd = matches!(refusal, RouteRefusal::OddTarget { .. });
            assert!(odd, "{method} {target}: {refusal}");
        }
    }
    for bytes in ["/v1\\messages", "/v1/messages\u{e9}"] {
        // Either the parser of targets or the route refuses it.
        if let Ok(target) = bytes.parse::<Uri>() {
            let result = Route::of(&Method::POST, &target, &HeaderMap::new());
            assert!(
                matches!(result, Err(RouteRefusal::OddTarget { .. })),
                "{bytes}"
            );
        }
    }
    let connect = of("CONNECT", "api.anthropic.com:443").unwrap_err();
    assert!(matches!(connect, RouteRefusal::OddTarget { .. }));
}

/// X01 and K03: other paths and other methods are not served, and say so.
#[test]
fn x01_k03_everything_else_is_not_served() {
    for (method, target) in [
        ("GET", "/v1/messages"),
        ("PUT", "/v1/messages"),
        ("DELETE", "/v1/models/claude-sonnet-5"),
        ("POST", "/v1/messages/"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/complete"),
        ("POST", "/v1/files"),
        ("GET", "/v1/organizations/usage_report/messages"),
        ("POST", "/v1/oauth/token"),
        ("POST", "/v1/agents"),
        ("GET", "/v1/models/"),
        ("GET", "/v1/models/a/b"),
        ("GET", "/"),
        ("GET", "/api/hello"),
        ("HEAD", "/v1/messages"),
        ("OPTIONS", "/v1/messages"),
        ("POST", "/v1/proxy/v1/messages"),
        ("POST", "/v1/v1/messages"),
        ("POST", "/sess/abc123/v1/messages"),
    ] {
        let refusal = of(method, target).unwrap_err();
        let not_served = matches!(refusal, RouteRefusal::NotServed { .. });
        assert!(not_served, "{method} {target}: {refusal}");
    }
}

/// A08: a key in the query is malformed, its value is not repeated, and nothing else passes there.
#[test]
fn a08_a_key_in_the_query_is_malformed() {
    for query in [
        "key=AIzaSecret",
        "beta=true&key=AIzaSecret",
        "api_key=AIzaSecret",
        "Beta=true",
        "beta=true&beta=false",
        "beta=%74rue",
        "beta=a+b",
        "beta=a/b",
        "b%65ta=true",
        "",
        "&",
        "beta=true&",
        "model=x",
    ] {
        let refusal = of("POST", &format!("/v1/messages?{query}")).unwrap_err();
        assert!(
            matches!(refusal, RouteRefusal::Query { .. }),
            "{query}: {refusal}"
        );
        assert!(!refusal.to_string().contains("AIzaSecret"), "{refusal}");
    }
}

/// A15: a WebSocket for responses gets the refusal that the client falls back from; other upgrades
/// are malformed.
#[test]
fn a15_upgrades_are_refused() {
    let mut headers = HeaderMap::new();
    headers.insert("upgrade", HeaderValue::from_static("websocket"));
    let of = |method: Method, target: &'static str| {
        Route::of(&method, &Uri::from_static(target), &headers)
    };
    assert_eq!(
        of(Method::GET, "/v1/responses"),
        Err(RouteRefusal::WebSocket)
    );
    assert_eq!(of(Method::POST, "/v1/messages"), Err(RouteRefusal::Upgrade));
    assert_eq!(of(Method::GET, "/v1/models"), Err(RouteRefusal::Upgrade));
}

proptest! {
    /// A target that is served is one of the exact paths, whatever was tried.
    #[test]
    fn x02_only_exact_paths_are_served(
        method in prop::sample::select(vec!["GET", "POST", "HEAD"]),
        parts in prop::collection::vec(prop::sample::select(vec![
            "/", "v1", "messages", "models", "count_tokens", "..", ".", "%2e", "%2f", ";", "//",
            "claude-opus-5-5", "api", "hello", "V1", "\\", "?", "beta=true", "&", "#", "@", ":80",
        ]), 0..8),
    ) {
        let target = parts.concat();
        let Ok(uri) = target.parse::<Uri>() else { return Ok(()) };
        if let Ok(route) = Route::of(&method.parse().unwrap(), &uri, &HeaderMap::new()) {
            let path = target.split(['?', '#']).next().unwrap();
            let expected = match route {
                Route::Messages => "/v1/messages".to_owned(),
                Route::CountTokens => "/v1/messages/count_tokens".to_owned(),
                Route::Models => "/v1/models".to_owned(),
                Route::Model(id) => format!("/v1/models/{id}"),
                Route::Hello if path == "/api/hello" => "/api/hello".to_owned(),
                Route::Hello => "/".to_owned(),
            };
            prop_assert_eq!(path, expected);
        }
    }
}
