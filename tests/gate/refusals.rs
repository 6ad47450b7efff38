//! How refusals look to a client: status, type, text, retry headers.

use std::str::FromStr;

use http::StatusCode;
use labproxy::cap::Denied;
use labproxy::id::{RequestId, SessionId};
use labproxy::money::PicoUsd;
use labproxy::pricing::Unpriced;
use labproxy::proxy::body::BodyError;
use labproxy::proxy::gate::GateRefusal;
use labproxy::proxy::refusal::{Refusal, UpstreamTrouble};
use labproxy::proxy::route::RouteRefusal;
use labproxy::usage::CloseReason;
use serde_json::Value;

fn ids() -> (RequestId, SessionId) {
    (
        RequestId::from_str("req_aaaaaaaaaaaaaaaaaaaaaaaaaa").unwrap(),
        SessionId::from_str("ses_bbbbbbbbbbbbbbbbbbbbbbbbbb").unwrap(),
    )
}

fn cap() -> Denied {
    Denied::Cap {
        cap: PicoUsd::from_pico(2_000_000_000_000),
        settled: PicoUsd::from_pico(1_930_000_000_000),
        held: PicoUsd::from_pico(53_800_000_000),
        needs: PicoUsd::from_pico(310_000_000_000),
    }
}

fn not_served() -> RouteRefusal {
    RouteRefusal::NotServed {
        method: "POST".to_owned(),
        path: "/v1/complete".to_owned(),
    }
}

/// The refusals of gate and cap, each with its status, its type and whether the client is told to
/// give up.
fn judged() -> Vec<(Refusal, u16, &'static str, bool)> {
    let long = "x".repeat(1_000);
    let feature = GateRefusal::Feature {
        what: long.clone(),
        why: "why".to_owned(),
        remedy: "remedy".to_owned(),
    };
    let closed = |reason| Refusal::Denied(Denied::Closed(reason));
    let (invalid, billing, api) = ("invalid_request_error", "billing_error", "api_error");
    vec![
        (
            GateRefusal::Malformed(long.clone()).into(),
            400,
            invalid,
            true,
        ),
        (GateRefusal::Fast.into(), 400, invalid, true),
        (feature.into(), 402, billing, true),
        (
            Unpriced::UnknownModel("gpt-9".to_owned()).into(),
            402,
            billing,
            true,
        ),
        (cap().into(), 402, billing, true),
        (
            Refusal::denied(cap(), Some("a document")),
            402,
            billing,
            true,
        ),
        (Denied::CutAgain { last: 16_000 }.into(), 402, billing, true),
        (
            Denied::Daily {
                ceiling: PicoUsd::MAX,
                spent: PicoUsd::MAX,
            }
            .into(),
            402,
            billing,
            true,
        ),
        (
            closed(CloseReason::Overrun(long.clone())),
            402,
            billing,
            true,
        ),
        (
            closed(CloseReason::UnpricedServedModel(long.clone())),
            402,
            billing,
            true,
        ),
        (
            closed(CloseReason::UnknownCounter(long.clone())),
            402,
            billing,
            true,
        ),
        (closed(CloseReason::ServedFast), 402, billing, true),
        (closed(CloseReason::Ending), 402, billing, true),
        (
            closed(CloseReason::LedgerFailed(long.clone())),
            503,
            api,
            false,
        ),
        (Denied::ClientGone.into(), 503, api, true),
    ]
}

/// The refusals of requests that the gate has not seen, and of the upstream.
fn others() -> Vec<(Refusal, u16, &'static str, bool)> {
    let upstream = Refusal::Upstream;
    let (invalid, api) = ("invalid_request_error", "api_error");
    let long = "x".repeat(1_000);
    vec![
        (
            RouteRefusal::OddTarget { what: "is odd" }.into(),
            400,
            invalid,
            true,
        ),
        (RouteRefusal::Upgrade.into(), 400, invalid, true),
        (
            RouteRefusal::Query {
                name: "key".to_owned(),
            }
            .into(),
            400,
            invalid,
            true,
        ),
        (RouteRefusal::WebSocket.into(), 426, invalid, true),
        (not_served().into(), 403, "permission_error", true),
        (BodyError::UnknownCoding(long).into(), 415, invalid, true),
        (BodyError::SeveralCodings.into(), 415, invalid, true),
        (
            BodyError::TooLarge { limit: 33_554_432 }.into(),
            413,
            "request_too_large",
            true,
        ),
        (BodyError::Malformed("gzip").into(), 400, invalid, true),
        (BodyError::Trailing("gzip").into(), 400, invalid, true),
        (Refusal::Incomplete, 400, invalid, true),
        (Refusal::Unauthenticated, 401, "authentication_error", true),
        (Refusal::Busy, 503, api, false),
        (Refusal::CountsBusy, 429, "rate_limit_error", false),
        (Refusal::Ending, 503, api, false),
        (
            upstream(UpstreamTrouble::Unreachable("connect".to_owned())),
            502,
            api,
            false,
        ),
        (upstream(UpstreamTrouble::Broken), 502, api, false),
        (
            upstream(UpstreamTrouble::TimedOut),
            504,
            "timeout_error",
            false,
        ),
        (upstream(UpstreamTrouble::Redirect(307)), 502, api, true),
        (upstream(UpstreamTrouble::Leak), 502, api, true),
        (upstream(UpstreamTrouble::NoCredential), 503, api, false),
    ]
}

fn all() -> impl Iterator<Item = (Refusal, u16, &'static str, bool)> {
    judged().into_iter().chain(others())
}

/// Each refusal is in the provider's error shape, begins with the program's name, fits on a screen,
/// never carries `Retry-After`, and is final exactly where trying again cannot help. Case K24.
#[test]
fn k24_refusals_are_final_and_readable() {
    let (request, session) = ids();
    for (refusal, status, kind, last) in all() {
        let response = refusal.respond(&request, &session);
        assert_eq!(
            response.status(),
            StatusCode::from_u16(status).unwrap(),
            "{refusal:?}"
        );
        assert_eq!(refusal.status(), response.status());
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["request-id"], request.as_str());
        let stop = headers
            .get("x-should-retry")
            .map(|value| value.to_str().unwrap());
        assert_eq!(stop, last.then_some("false"), "{refusal:?}");
        assert!(!headers.contains_key("retry-after"));

        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "error");
        assert_eq!(body["request_id"], request.as_str());
        assert_eq!(body["error"]["type"], kind, "{refusal:?}");
        let text = body["error"]["message"].as_str().unwrap();
        assert!(text.len() <= 300 && text.is_ascii(), "{text}");
        let begins = match &refusal {
            Refusal::Gate(GateRefusal::Fast) => "Fast mode is not enabled",
            _ => "labproxy: ",
        };
        assert!(text.starts_with(begins), "{text}");
    }
}

/// Strings by which the CLI recognises other errors stand in none of them.
#[test]
fn refusals_hold_none_of_the_strings_that_the_cli_matches() {
    let (request, session) = ids();
    for (refusal, ..) in all() {
        let response = refusal.respond(&request, &session);
        let body = std::str::from_utf8(response.body()).unwrap();
        for matched in [
            "overloaded_error",
            "prompt is too long",
            "exceed context limit",
            "usage credits are required",
            "credit balance is too low",
            "usage limits",
        ] {
            assert!(!body.contains(matched), "{body}");
        }
        let fast = matches!(refusal, Refusal::Gate(GateRefusal::Fast));
        assert_eq!(body.contains("Fast mode is not enabled"), fast, "{body}");
    }
}

/// The cap's refusal gives the numbers and the command that helps.
#[test]
fn the_cap_refusal_gives_the_numbers_and_the_remedy() {
    let (_, session) = ids();
    assert_eq!(
        Refusal::Denied(cap()).text(&session),
        "labproxy: session cap $2.00 reached: spent $1.93, in flight $0.0538, this request may cost \
         $0.31; `labproxy session topup ses_bbbbbbbbbbbbbbbbbbbbbbbbbb USD` raises the cap"
    );
    let because = "unknown beta 'x' (gate.accept = [\"x\"] declares it harmless)";
    assert_eq!(
        Refusal::denied(cap(), Some(because)).text(&session),
        "labproxy: cap $2.00 reached: spent $1.93, in flight $0.0538, this request needs $0.31, a \
         whole context window because of unknown beta 'x' (gate.accept = [\"x\"] declares it \
         harmless)"
    );
    assert_eq!(
        Refusal::Route(not_served()).text(&session),
        "labproxy: POST /v1/complete is not served; only POST /v1/messages, POST \
         /v1/messages/count_tokens, GET /v1/models and GET /v1/models/ID are"
    );
}

/// Control characters of a hostile name never reach the client's terminal.
#[test]
fn t37_refusals_are_printable() {
    let (_, session) = ids();
    let hostile = Unpriced::UnknownModel("m\u{1b}]0;x\u{7}\u{202e}\u{9b}".to_owned());
    let text = Refusal::Unpriced(hostile).text(&session);
    assert!(
        text.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
        "{text}"
    );
}
