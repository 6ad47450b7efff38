//! The usage reader against what a stream can do: cuts anywhere, line endings, damage, size.

use labproxy::usage::{BodyKind, Observed, UsageReader};
use serde_json::{Value, json};

use crate::price::{answer_events, read, stream};

fn start() -> Value {
    json!({"input_tokens": 2_679, "output_tokens": 1, "cache_creation_input_tokens": 1_500,
        "cache_read_input_tokens": 40, "service_tier": "standard", "inference_geo": "us",
        "cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 1_000}})
}

fn deltas() -> [Value; 2] {
    [
        json!({"output_tokens": 300}),
        json!({"input_tokens": 10_682, "output_tokens": 510, "cache_creation_input_tokens": 1_700,
            "server_tool_use": {"web_search_requests": 1}}),
    ]
}

fn transcript() -> String {
    String::from_utf8(stream(&answer_events("claude-opus-5", &start(), &deltas()))).unwrap()
}

fn counts(observed: &Observed) -> (u64, u64, u64, u64, Option<(u64, u64)>, u64) {
    let usage = observed.usage.as_ref().unwrap();
    let top = usage.top;
    (
        top.input,
        top.output,
        top.created(),
        top.cache_read,
        top.split,
        usage.web_searches,
    )
}

/// Growth of the writes in a delta is that of server tools, which write for five minutes.
const EXPECTED: (u64, u64, u64, u64, Option<(u64, u64)>, u64) =
    (10_682, 510, 1_700, 40, Some((700, 1_000)), 1);

fn events(text: &str) -> Observed {
    read(BodyKind::EventStream, text.as_bytes())
}

#[test]
fn a_whole_stream_is_read() {
    let observed = events(&transcript());
    assert_eq!(counts(&observed), EXPECTED);
    assert_eq!(observed.served_model.as_deref(), Some("claude-opus-5"));
    assert_eq!(observed.stop_reason.as_deref(), Some("end_turn"));
    assert!(observed.started && observed.finished && observed.output_is_final);
    assert_eq!(observed.content_bytes, 13, "Hello, 世界 in UTF-8");
    assert!(!observed.damaged && !observed.hidden_thinking);
    let usage = observed.usage.unwrap();
    assert_eq!(usage.geo.as_deref(), Some("us"));
    assert_eq!(usage.raw["input_tokens"], 10_682);
    assert_eq!(
        usage.raw["cache_creation"]["ephemeral_1h_input_tokens"],
        1_000
    );
}

#[test]
fn s01_a_stream_cut_at_every_byte_gives_the_same_usage() {
    for text in [
        transcript(),
        transcript().replace('\n', "\r\n"),
        transcript().replace('\n', "\r"),
    ] {
        let whole = events(&text);
        assert_eq!(counts(&whole), EXPECTED);
        for cut in 0..=text.len() {
            let mut reader = UsageReader::new(BodyKind::EventStream);
            reader.push(&text.as_bytes()[..cut]);
            reader.push(&text.as_bytes()[cut..]);
            assert_eq!(reader.finish(), whole, "cut at {cut}");
        }
        for size in 1..=17 {
            let mut reader = UsageReader::new(BodyKind::EventStream);
            text.as_bytes()
                .chunks(size)
                .for_each(|chunk| reader.push(chunk));
            assert_eq!(reader.finish(), whole, "chunks of {size}");
        }
    }
}

#[test]
fn s01_a_document_cut_at_every_byte_gives_the_same_usage() {
    let body = json!({"id": "m", "content": [{"type": "text", "text": "a\\\"}]{é"}], "x": [1, {}],
        "model": "claude-opus-5", "type": "message", "usage": start(), "stop_reason": "end_turn"});
    let text = body.to_string();
    let whole = read(BodyKind::Json, text.as_bytes());
    assert!(whole.finished && !whole.damaged);
    assert_eq!(whole.usage.as_ref().unwrap().top.input, 2_679);
    for cut in 0..=text.len() {
        let mut reader = UsageReader::new(BodyKind::Json);
        reader.push(&text.as_bytes()[..cut]);
        assert!(!reader.observed().finished || cut == text.len());
        reader.push(&text.as_bytes()[cut..]);
        assert_eq!(reader.finish(), whole, "cut at {cut}");
    }
}

#[test]
fn s02_line_endings_spaces_and_comments_change_nothing() {
    let text = transcript();
    let plain = events(&text);
    for variant in [
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        text.replace(": ", ":"),
        text.replace("data: ", ": keep-alive\nretry: 5\nid: 7\ndata: "),
        format!("\u{feff}{text}"),
        format!("\n\n\n: hello\n\n{}", text.replace("\n\n", "\n\n\n\n")),
        text.replace("event: ", "event:"),
    ] {
        let observed = events(&variant);
        assert_eq!(counts(&observed), EXPECTED, "{variant}");
        assert!(observed.finished && !observed.damaged, "{variant}");
        assert_eq!(observed.content_bytes, plain.content_bytes);
    }
}

/// Events are known by the JSON `type`: without names, under wrong names, in any spacing.
#[test]
fn s02_the_json_type_decides_not_the_event_name() {
    let text = transcript();
    let lines = text.split_inclusive('\n');
    let unnamed: String = lines.filter(|line| !line.starts_with("event:")).collect();
    assert_eq!(counts(&events(&unnamed)), EXPECTED);
    let misnamed = transcript().replace("event: message_delta", "event: ping");
    assert_eq!(counts(&events(&misnamed)), EXPECTED);
    let untyped = transcript().replace("\"type\":\"message_delta\",", "");
    assert_eq!(counts(&events(&untyped)), EXPECTED);
}

#[test]
fn s02_data_over_several_lines_is_one_text() {
    let text = "event: message_delta\ndata: {\"type\":\"message_delta\",\ndata:\"usage\":\n\
                data: {\"output_tokens\":\ndata: 12}}\n\n";
    let observed = events(text);
    assert_eq!(observed.usage.unwrap().top.output, 12);
    assert!(!observed.damaged);
}

#[test]
fn s17_unknown_events_hide_nothing() {
    let odd = "event: brand_new\ndata: {\"type\":\"brand_new\",\"x\":[1,2]}\n\nevent: empty\n\n\
               data: [DONE]\n\n";
    let text = transcript().replace("event: ping\n", &format!("{odd}event: ping\n"));
    let observed = events(&text);
    assert_eq!(counts(&observed), EXPECTED);
    assert!(observed.finished);
}

#[test]
fn s18_pings_are_no_usage() {
    let pings = "event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(50);
    let observed = events(&format!("{pings}{}{pings}", transcript()));
    assert_eq!(counts(&observed), EXPECTED);
    assert!(!observed.damaged);
}

/// A byte that is not UTF-8, in any event, costs at most the text of that event.
#[test]
fn a_bad_byte_does_not_hide_usage_that_comes_later() {
    let text = transcript();
    let places = ["Hello", "\"ping\"", "brand", "end_turn"];
    for place in places.iter().filter(|place| text.contains(**place)) {
        let at = text.find(place).unwrap() + 2;
        let mut bytes = text.clone().into_bytes();
        bytes[at] = 0xff;
        let observed = read(BodyKind::EventStream, &bytes);
        assert_eq!(counts(&observed), EXPECTED, "{place}");
        assert!(observed.damaged && observed.finished, "{place}");
    }
}

#[test]
fn an_endless_line_does_not_hide_usage_that_comes_later() {
    for filler in ["x", "data: y\n", "\\u00e9"] {
        let endless = filler.repeat((3 << 20) / filler.len());
        let text = transcript().replace(
            "event: ping\n",
            &format!("data: {{\"a\":\"{endless}\n\nevent: ping\n"),
        );
        for size in [text.len(), 8_192] {
            let mut reader = UsageReader::new(BodyKind::EventStream);
            text.as_bytes()
                .chunks(size)
                .for_each(|chunk| reader.push(chunk));
            let observed = reader.finish();
            assert_eq!(counts(&observed), EXPECTED);
            assert!(observed.damaged && observed.finished);
        }
    }
}

#[test]
fn a_last_event_without_its_blank_line_is_read() {
    let text = transcript();
    for end in ["\n\n", "\n"] {
        let cut = text.strip_suffix(end).unwrap();
        let observed = events(cut);
        assert_eq!(counts(&observed), EXPECTED);
        assert!(observed.finished);
    }
}

#[test]
fn half_an_event_at_the_end_is_damage_not_usage() {
    let text = transcript();
    let cut = &text[..text.rfind("510").unwrap() + 2];
    let observed = events(cut);
    assert_eq!(observed.usage.unwrap().top.output, 300);
    assert!(observed.damaged && !observed.finished);
}

/// `eventsource-stream` itself panics on a byte order mark; none reaches it, wherever it stands.
#[test]
fn byte_order_marks_do_no_harm() {
    let text = transcript().replace("event:", "\u{feff}event:");
    let observed = events(&text);
    assert!(observed.started);
}

#[test]
fn content_is_counted_in_bytes_of_its_text() {
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 3, "delta": delta});
    let text = stream(&[
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}}),
        delta(json!({"type": "input_json_delta", "partial_json": "{\"a\": \"é\n\"}"})),
        delta(json!({"type": "thinking_delta", "thinking": "hm…"})),
        delta(json!({"type": "signature_delta", "signature": "EqQBCgIYAhIk"})),
        json!({"type": "content_block_start", "index": 0, "content_block":
            {"type": "web_search_tool_result", "tool_use_id": "x", "content": [{"title": "long"}]}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "redacted_thinking", "data": "abcd"}}),
        delta(json!({"type": "new_delta", "text": "12345", "more": {"a": ["678"]}})),
    ]);
    let observed = read(BodyKind::EventStream, &text);
    assert_eq!(observed.thinking_bytes, 5 + 4);
    assert_eq!(observed.content_bytes, 11 + 12 + 9 + 8);
    assert!(observed.hidden_thinking);
}

#[test]
fn t24_a_document_of_40_mib_with_usage_last_is_exact() {
    let mut reader = UsageReader::new(BodyKind::Json);
    reader.push(b"{\"type\":\"message\",\"model\":\"claude-opus-5\",\"content\":[{\"type\":\"text\",\"text\":\"");
    let mebibyte = "braces { [ \\\" \\\\ ] } and \\u00e9 .".repeat((1 << 20) / 32);
    for _ in 0..40 {
        reader.push(mebibyte.as_bytes());
    }
    reader.push(
        b"\"}],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":7,\"output_tokens\":9}}",
    );
    let observed = reader.finish();
    assert!(observed.finished && !observed.damaged);
    let top = observed.usage.unwrap().top;
    assert_eq!((top.input, top.output), (7, 9));
}

#[test]
fn t24_usage_that_shrinks_settles_at_its_largest_and_is_flagged() {
    let text = stream(&answer_events(
        "claude-opus-5",
        &json!({"input_tokens": 900, "output_tokens": 50}),
        &[json!({"input_tokens": 400, "output_tokens": 20})],
    ));
    let usage = read(BodyKind::EventStream, &text).usage.unwrap();
    assert_eq!((usage.top.input, usage.top.output), (900, 50));
    assert!(usage.fell);
}

#[test]
fn t24_a_repeated_start_counts_once_and_is_flagged() {
    let events = answer_events(
        "claude-opus-5",
        &json!({"input_tokens": 900, "output_tokens": 1}),
        &[json!({"output_tokens": 7})],
    );
    let twice: Vec<Value> = std::iter::once(events[0].clone()).chain(events).collect();
    let usage = read(BodyKind::EventStream, &stream(&twice)).usage.unwrap();
    assert_eq!((usage.top.input, usage.top.output), (900, 7));
    assert!(usage.fell);
}

#[test]
fn t24_a_key_that_stands_twice_counts_at_its_larger_value() {
    for usage in [
        "{\"input_tokens\":1000,\"output_tokens\":5,\"input_tokens\":1}",
        "{\"input_tokens\":1,\"output_tokens\":5,\"input_tokens\":1000}",
    ] {
        let body = format!("{{\"type\":\"message\",\"usage\":{usage}}}");
        let observed = read(BodyKind::Json, body.as_bytes());
        assert_eq!(observed.usage.unwrap().top.input, 1_000);
        let body =
            format!("{{\"usage\":{usage},\"usage\":{{\"output_tokens\":2}},\"type\":\"message\"}}");
        let observed = read(BodyKind::Json, body.as_bytes());
        let top = observed.usage.unwrap().top;
        assert_eq!((top.input, top.output), (1_000, 5));
    }
}

#[test]
fn t24_details_are_ignored_and_unknown_counters_named() {
    let usage = json!({"input_tokens": 1, "output_tokens": 1,
        "output_tokens_details": {"thinking_tokens": 1, "audio_tokens": 44},
        "input_tokens_details": {"x": 5}, "tokens_of_tomorrow": 3, "zero": 0, "none": null,
        "text": "9", "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 2,
            "code_execution_requests": 4}, "nested": {"deep": [{"count": 0.5}]},
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0,
            "ephemeral_1d_input_tokens": 8}, "fallback_credit": {"tokens": 7}});
    let body = json!({"type": "message", "usage": usage}).to_string();
    let usage = read(BodyKind::Json, body.as_bytes()).usage.unwrap();
    let mut unknown = usage.unknown;
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "cache_creation.ephemeral_1d_input_tokens",
            "nested.deep.count",
            "server_tool_use.code_execution_requests",
            "tokens_of_tomorrow",
        ]
    );
    assert!(usage.unreadable.is_empty());
}

#[test]
fn known_counters_that_are_no_counts_are_named() {
    for value in [
        "-1",
        "1.5",
        "\"7\"",
        "true",
        "18446744073709551616",
        "[]",
        "{}",
    ] {
        let body = format!(
            "{{\"type\":\"message\",\"usage\":{{\"input_tokens\":{value},\"output_tokens\":1}}}}"
        );
        let usage = read(BodyKind::Json, body.as_bytes()).usage.unwrap();
        assert_eq!(usage.unreadable, ["input_tokens"], "{value}");
    }
}

#[test]
fn documents_that_are_not_whole_are_not_finished() {
    let whole = "{\"type\":\"message\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}";
    for bad in [
        &whole[..whole.len() - 1],
        &format!("{whole}x"),
        &format!("[{whole}]"),
        "",
        "<html>502</html>",
        "{\"type\":\"message\",}",
        "{\"type\" \"message\"}",
        "null",
    ] {
        let observed = read(BodyKind::Json, bad.as_bytes());
        assert!(!observed.finished && observed.damaged, "{bad}");
    }
    assert!(read(BodyKind::Json, format!(" {whole}\r\n").as_bytes()).finished);
}

#[test]
fn an_error_document_is_known_by_its_shape() {
    let error = json!({"type": "error", "request_id": "req_1",
        "error": {"type": "rate_limit_error", "message": "slow {down}"}});
    let observed = read(BodyKind::Json, error.to_string().as_bytes());
    assert!(observed.provider_error && !observed.started);
    assert_eq!(observed.error_type.as_deref(), Some("rate_limit_error"));
    for other in [
        json!({"error": {"type": "x"}}),
        json!({"type": "error"}),
        json!({"type": "error", "error": "text"}),
        json!({"type": "error", "error": {"message": "m"}}),
        json!({"message": "Not Found"}),
    ] {
        assert!(
            !read(BodyKind::Json, other.to_string().as_bytes()).provider_error,
            "{other}"
        );
    }
}
