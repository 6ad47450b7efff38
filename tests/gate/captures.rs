//! What real clients send by default passes, unchanged.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST};
use labproxy::proxy::gate::{GatePolicy, GateRefusal, apply, check_count_tokens, check_messages};
use labproxy::proxy::headers::forward;
use labproxy::proxy::route::{Route, RouteRefusal};
use labproxy::secret::CredentialKind;

use crate::support::{Capture, captures};

/// Why a captured request does not pass.
fn refusal(capture: &Capture) -> Option<String> {
    let route = match Route::of(&capture.method, &capture.target, &capture.headers) {
        Ok(route) => route,
        Err(RouteRefusal::OddTarget { what }) => return Some(what.to_owned()),
        Err(refusal) => return Some(refusal.to_string()),
    };
    let policy = GatePolicy::default();
    if let Err(refusal) = forward(&capture.headers, CredentialKind::ApiKey, &policy) {
        return Some(refusal.to_string());
    }
    let body = capture.body.as_ref().map(ToString::to_string);
    let result = match (route, body) {
        (Route::Messages, Some(body)) => check_messages(body.as_bytes(), &policy).map(drop),
        (Route::CountTokens, Some(body)) => check_count_tokens(body.as_bytes(), &policy),
        (Route::Models | Route::Model(_) | Route::Hello, None) => Ok(()),
        (route, body) => panic!("{route:?} with {body:?}"),
    };
    match result {
        Ok(()) => None,
        Err(GateRefusal::Feature { what, .. }) => Some(what),
        Err(other) => Some(other.to_string()),
    }
}

/// Of all captured requests exactly five are refused, each for the reason that the design names.
#[test]
fn t07_captured_requests_pass_but_for_the_named_ones() {
    let refused: Vec<(String, String)> = captures()
        .iter()
        .filter_map(|capture| Some((capture.file.clone(), refusal(capture)?)))
        .collect();
    let expected = [
        (
            "claude-alltools.toolws.02.json",
            "web_search_20250305 at tools[0]",
        ),
        ("claude-fast.normal.01.json", "fast mode"),
        (
            "claude-httpproxy.normal.01.json",
            "is a whole URL; set no HTTP proxy for this address",
        ),
        (
            "claude-prefix.normal.01.json",
            "POST /sess/abc123/v1/messages is not served",
        ),
        (
            "claude-v1.normal.01.json",
            "POST /v1/v1/messages is not served",
        ),
    ]
    .map(|(file, why)| (file.to_owned(), why.to_owned()));
    assert_eq!(refused, expected);
}

/// The rebuilt bodies are about as large as the real ones, so that the test above tests those.
#[test]
fn rebuilt_bodies_have_the_stated_size() {
    for capture in captures() {
        let Some(body) = &capture.body else { continue };
        let size = body.to_string().len();
        let gap = size.abs_diff(capture.body_bytes);
        assert!(
            gap <= capture.body_bytes / 8,
            "{}: {size} bytes, {} in the original",
            capture.file,
            capture.body_bytes
        );
    }
}

/// A body that passes and is not clamped is sent as the very bytes that were read.
#[test]
fn t21_bodies_that_pass_stay_the_same_bytes() {
    for capture in captures() {
        let (Some(body), "/v1/messages") = (&capture.body, capture.target.path()) else {
            continue;
        };
        let body = Bytes::from(body.to_string());
        if let Ok(intent) = check_messages(&body, &GatePolicy::default()) {
            let sent = apply(&body, &intent, intent.max_tokens);
            assert_eq!(sent.as_ptr(), body.as_ptr(), "{}", capture.file);
            assert_eq!(sent, body, "{}", capture.file);
        }
    }
}

/// Every captured header arrives with its value, but for credentials, what belongs to the
/// connection, and the accepted encodings.
#[test]
fn t10_captured_headers_arrive_unchanged() {
    let own = |name: &str| {
        [
            AUTHORIZATION.as_str(),
            "x-api-key",
            HOST.as_str(),
            CONNECTION.as_str(),
            "proxy-connection",
            CONTENT_LENGTH.as_str(),
            ACCEPT_ENCODING.as_str(),
        ]
        .contains(&name)
    };
    for capture in captures() {
        let policy = GatePolicy::default();
        let sent = forward(&capture.headers, CredentialKind::ApiKey, &policy).unwrap();
        let expected: Vec<_> = capture
            .headers
            .iter()
            .filter(|(name, _)| !own(name.as_str()))
            .collect();
        let arrived: Vec<_> = sent
            .headers
            .iter()
            .filter(|(name, _)| *name != ACCEPT_ENCODING)
            .collect();
        assert_eq!(arrived.len(), expected.len(), "{}", capture.file);
        for (name, value) in expected {
            assert_eq!(
                sent.headers.get(name),
                Some(value),
                "{} {name}",
                capture.file
            );
        }
        assert_eq!(sent.headers[ACCEPT_ENCODING], "identity");
        assert_eq!(sent.betas.unknown, Vec::<String>::new(), "{}", capture.file);
    }
}
