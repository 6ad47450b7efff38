//! Short ways to price a usage object through JSON and through a stream, on a fixed day.

use std::sync::LazyLock;

use jiff::Timestamp;
use labproxy::pricing::{Bill, ChargeTerms, PriceBook, bill};
use labproxy::usage::{BodyKind, Observed, UsageReader};
use serde_json::{Value, json};

/// The day on which the facts were gathered.
pub(crate) fn today() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

/// The built-in prices, loaded once.
pub(crate) fn book() -> &'static PriceBook {
    static BOOK: LazyLock<PriceBook> = LazyLock::new(|| PriceBook::builtin().unwrap());
    &BOOK
}

pub(crate) fn read(kind: BodyKind, body: &[u8]) -> Observed {
    let mut reader = UsageReader::new(kind);
    reader.push(body);
    reader.finish()
}

/// A whole JSON answer.
pub(crate) fn message(model: &str, stop_reason: &str, usage: &Value) -> Vec<u8> {
    let body = json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": model,
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": stop_reason, "stop_sequence": null, "usage": usage,
    });
    serde_json::to_vec(&body).unwrap()
}

/// Events with their names, each ended by a blank line.
pub(crate) fn stream(events: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap();
        bytes.extend(format!("event: {name}\ndata: {event}\n\n").into_bytes());
    }
    bytes
}

/// The events of an answer whose usage stands in `message_start` and in each delta.
pub(crate) fn answer_events(model: &str, start: &Value, deltas: &[Value]) -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_01", "type": "message",
            "role": "assistant", "model": model, "content": [], "stop_reason": null,
            "usage": start}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "Hello, 世界"}}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    for usage in deltas {
        events.push(json!({"type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage}));
    }
    events.push(json!({"type": "message_stop"}));
    events
}

pub(crate) fn bill_of(observed: &Observed, requested: &str, at: Timestamp) -> Bill {
    let terms = ChargeTerms {
        requested_model: requested,
        served_model: observed.served_model.as_deref(),
        at,
        one_hour_asked: false,
        refused: observed.stop_reason.as_deref() == Some("refusal"),
        known_usage: &[],
    };
    bill(book(), observed.usage.as_ref().unwrap(), &terms)
}

/// What a JSON answer with this usage costs, in pico-dollars, today.
pub(crate) fn cost(model: &str, usage: &Value) -> u64 {
    stopped_cost(model, "end_turn", usage)
}

pub(crate) fn stopped_cost(model: &str, stop_reason: &str, usage: &Value) -> u64 {
    let observed = read(BodyKind::Json, &message(model, stop_reason, usage));
    bill_of(&observed, model, today()).total.pico()
}

/// What a streamed answer costs.
pub(crate) fn stream_cost(model: &str, start: &Value, deltas: &[Value]) -> u64 {
    let body = stream(&answer_events(model, start, deltas));
    let observed = read(BodyKind::EventStream, &body);
    bill_of(&observed, model, today()).total.pico()
}

/// Dollars such as `"0.053800"` as pico-dollars.
pub(crate) fn usd(text: &str) -> u64 {
    text.parse::<labproxy::money::PicoUsd>().unwrap().pico()
}
