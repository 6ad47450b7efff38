//! The stand-in upstream keeps its word: what it tells a client, what it serves and what it counts
//! are the same, so that comparing labproxy with it means something.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

#[path = "../examples/upstream/standin.rs"]
mod standin;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use standin::{Options, Scenario, Standin};

async fn start() -> Standin {
    let options = Options {
        expect_key: Some("sk-right".to_owned()),
        ..Options::default()
    };
    let address = "127.0.0.1:0".parse().unwrap();
    Standin::start(address, options).await.unwrap()
}

/// Posts a body with a key; returns the status and as much of the answer as came.
async fn post(standin: &Standin, path: &str, key: &str, body: &Value) -> (u16, String) {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("{}{path}", standin.url()))
        .header("anthropic-version", "2023-06-01")
        .header("x-api-key", key)
        .body(Full::from(body.to_string()))
        .unwrap();
    let response = client.request(request).await.unwrap();
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    (status, String::from_utf8(bytes).unwrap())
}

async fn ask(standin: &Standin, body: &Value) -> (u16, String) {
    post(standin, "/v1/messages", "sk-right", body).await
}

fn prompt(text: &str, stream: bool) -> Value {
    json!({
        "model": "claude-opus-5-5",
        "max_tokens": 1000,
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
    })
}

/// The data of every event of a stream.
fn events(stream: &str) -> Vec<Value> {
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// A whole answer and a stream of the same prompt say the same, and both are counted.
#[tokio::test]
async fn json_and_events_tell_the_same_usage() {
    let standin = start().await;
    let (status, whole) = ask(&standin, &prompt("Hello", false)).await;
    assert_eq!(status, 200);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let (_, stream) = ask(&standin, &prompt("Hello", true)).await;
    let stream = events(&stream);
    assert_eq!(stream[0]["type"], "message_start");
    assert_eq!(stream[0]["message"]["usage"]["output_tokens"], 1);
    let end = &stream[stream.len() - 2];
    assert_eq!(end["type"], "message_delta");
    assert_eq!(end["usage"], whole["usage"]);
    // {"type":"text","text":"Hello"} is 30 bytes, so 8 tokens; the answer has 44 bytes, so 11.
    assert_eq!(whole["usage"]["input_tokens"], 8);
    assert_eq!(whole["usage"]["output_tokens"], 11);
    // Each: 8 at $4 and 11 at $20 per million.
    let each = 8 * 4_000_000 + 11 * 20_000_000;
    assert_eq!(standin.served().pico_usd, 2 * each);
}

/// A marked prefix is written once and read the next time; the counts add up to `count_tokens`.
#[tokio::test]
async fn the_cache_writes_then_reads() {
    let standin = start().await;
    let system = json!([{"type": "text", "text": "x".repeat(8000),
        "cache_control": {"type": "ephemeral", "ttl": "1h"}}]);
    let mut body = prompt("Hello", false);
    body["system"] = system;
    let counted = post(&standin, "/v1/messages/count_tokens", "sk-right", &body).await;
    let counted: Value = serde_json::from_str(&counted.1).unwrap();
    ask(&standin, &body).await;
    ask(&standin, &body).await;
    let calls = standin.served().calls;
    let (first, second) = (calls[0].tokens, calls[1].tokens);
    assert_eq!((first.write_1h, first.write_5m, first.read), (2007, 0, 0));
    assert_eq!(
        (second.write_1h, second.write_5m, second.read),
        (0, 0, 2007)
    );
    assert_eq!(counted["input_tokens"], first.prompt());
    assert_eq!(second.prompt(), first.prompt());
}

/// A wrong key is refused and noted, and nothing is served.
#[tokio::test]
async fn a_wrong_key_is_refused() {
    let standin = start().await;
    let (status, _) = post(
        &standin,
        "/v1/messages",
        "sk-wrong",
        &prompt("Hello", false),
    )
    .await;
    assert_eq!(status, 401);
    assert_eq!(standin.served().answers, 0);
    let seen = standin.requests();
    assert_eq!((seen[0].credential, seen[0].status), ("other", 401));
    let shown = serde_json::to_string(&seen).unwrap();
    assert!(!shown.contains("sk-wrong"));
}

/// An answer longer than `max_tokens` is cut there, inside a tool call too.
#[tokio::test]
async fn a_long_answer_is_cut_at_max_tokens() {
    let standin = start().await;
    let mut body = prompt("[[scenario: write-file big.txt 5000]]", true);
    body["tools"] = json!([{"name": "Bash", "input_schema": {"type": "object"}}]);
    let (_, stream) = ask(&standin, &body).await;
    let stream = events(&stream);
    let end = &stream[stream.len() - 2];
    assert_eq!(end["delta"]["stop_reason"], "max_tokens");
    assert_eq!(end["usage"]["output_tokens"], 1000);
    let pieces = stream
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str());
    let input: String = pieces.collect();
    assert!(
        serde_json::from_str::<Value>(&input).is_err(),
        "half an input"
    );
}

/// Broken streams are broken in the way that was asked for, and counted as far as they came.
#[tokio::test]
async fn broken_streams_break_as_asked() {
    for (scenario, last) in [
        ("cut", "content_block_delta"),
        ("clean-end", "content_block_delta"),
        ("sse-error", "error"),
        ("plain", "message_stop"),
    ] {
        let standin = start().await;
        let text = format!("Hello [[scenario: {scenario}]]");
        let (status, stream) = ask(&standin, &prompt(&text, true)).await;
        assert_eq!(status, 200);
        let stream = events(&stream);
        assert_eq!(stream.last().unwrap()["type"], last, "{scenario}");
        let served = standin.served();
        let output = served.calls[0].tokens.output;
        assert_eq!(output < 11, scenario != "plain", "{scenario}: {output}");
    }
}

/// Errors have the provider's shape, and one that is to happen so many times happens so many times.
#[tokio::test]
async fn errors_have_the_providers_shape() {
    let standin = start().await;
    let body = prompt("[[scenario: error 529 1]]", false);
    let (status, text) = ask(&standin, &body).await;
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 529);
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "overloaded_error");
    assert_eq!(ask(&standin, &body).await.0, 200);
    assert_eq!(
        ask(&standin, &prompt("[[scenario: dance]]", false)).await.0,
        400
    );
    let mut unknown = prompt("Hello", false);
    unknown["model"] = json!("claude-dream-9");
    assert_eq!(ask(&standin, &unknown).await.0, 404);
}

/// A directive is found wherever a user wrote it; the last one counts.
#[test]
fn the_last_directive_counts() {
    let found = |texts: &[&str]| Scenario::find(texts.iter().copied()).unwrap();
    assert_eq!(found(&["no directive"]), None);
    assert_eq!(
        found(&["a [[scenario: long 12]] b", "c [[scenario: refusal]]", "d"]),
        Some(Scenario::Refusal)
    );
    let tool = found(&[r#"[[scenario: tool WebSearch {"query":"x y"}]]"#]);
    let expected = Scenario::Tool {
        name: "WebSearch".to_owned(),
        input: json!({"query": "x y"}),
    };
    assert_eq!(tool, Some(expected));
}
