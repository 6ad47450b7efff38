//! Changes of a body before it is sent: the clamp, injected `max_uses`, the `count_tokens` body.

use bytes::Bytes;
use labproxy::proxy::gate::{GatePolicy, Intent, apply, check_messages, count_body};
use serde_json::{Value, json};

use crate::support::{captures, check, open};

fn judged(body: &str) -> (Bytes, Intent) {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let intent = check_messages(&body, &open()).unwrap();
    (body, intent)
}

/// A clamp changes the digits of the real `max_tokens` and no other byte, wherever the same text
/// stands elsewhere.
#[test]
fn s05_a_clamp_changes_one_number() {
    let body = r#"{ "messages" : [{"role":"user","content":"\"max_tokens\":128000"},
        {"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n",
        "input":{"max_tokens":128000}}]}], "max_tok\u0065ns" : 128000 ,"model":"m"}"#;
    let (bytes, intent) = judged(body);
    let sent = apply(&bytes, &intent, 16_000);
    let expected = body.replace(r#"ns" : 128000 "#, r#"ns" : 16000 "#);
    assert_eq!(sent, expected.as_bytes());
    assert_eq!(apply(&bytes, &intent, 128_000), bytes);
}

/// E02 and E07: web search without `max_uses` gets the operator's number, in the tool at top level
/// and in one inside a message, beside a clamp.
#[test]
fn e02_e07_max_uses_is_injected_where_it_is_missing() {
    let body = concat!(
        r#"{"tools":[{"type":"web_search_20250305","name":"web_search"},"#,
        r#"{"type":"web_search_20260209","name":"b","max_uses":null},"#,
        r#"{"type":"web_search_20260318","name":"c","max_uses":2}],"#,
        r#""max_tokens":9000,"model":"m","messages":[{"role":"user","content":[{"#,
        r#""type":"tool_addition","tool":{"type":"tool_definition","definition":"#,
        r#"{"name":"d","type":"web_search_20250305" } }}]}]}"#,
    );
    let expected = concat!(
        r#"{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},"#,
        r#"{"type":"web_search_20260209","name":"b","max_uses":5},"#,
        r#"{"type":"web_search_20260318","name":"c","max_uses":2}],"#,
        r#""max_tokens":8000,"model":"m","messages":[{"role":"user","content":[{"#,
        r#""type":"tool_addition","tool":{"type":"tool_definition","definition":"#,
        r#"{"name":"d","type":"web_search_20250305" ,"max_uses":5} }}]}]}"#,
    );
    let (bytes, intent) = judged(body);
    assert_eq!(intent.web_searches, 17);
    assert_eq!(intent.web_search_tokens, 17 * 40_000);
    assert!(!intent.countable);
    let sent = apply(&bytes, &intent, 8_000);
    assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);
    assert_eq!(
        apply(&bytes, &intent, 9_000),
        expected.replace("8000", "9000").as_bytes()
    );
}

/// The body of a `count_tokens` call has that endpoint's keys, each as the client wrote it.
#[test]
fn the_count_body_is_made_of_the_original_values() {
    let body = r#"{"max_tokens":5,"stream":true,"tools":[ ],"model":"m","metadata":{"user_id":"u"},
        "thinking":{"type":"adaptive"},"system":"s\u0041","messages":[{"role":"user","content":"x"}],
        "tool_choice":{"type":"auto"},"output_config":{"effort":"low"},"temperature":1.0,
        "cache_control":{"type":"ephemeral"},"stop_sequences":["a"],"speed":"standard",
        "context_management":{"edits":[]},"service_tier":"auto"}"#;
    let intent = check_messages(body.as_bytes(), &GatePolicy::default()).unwrap();
    let counted = count_body(body.as_bytes(), &intent);
    assert_eq!(
        std::str::from_utf8(&counted).unwrap(),
        concat!(
            r#"{"tools":[ ],"model":"m","thinking":{"type":"adaptive"},"system":"s\u0041","#,
            r#""messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"auto"},"#,
            r#""output_config":{"effort":"low"}}"#,
        )
    );
    for capture in captures() {
        let Some(body) = capture.body else { continue };
        let Ok(intent) = check(&body) else { continue };
        let counted = count_body(body.to_string().as_bytes(), &intent);
        let counted: Value = serde_json::from_slice(&counted).unwrap();
        let keys = [
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "thinking",
            "output_config",
        ];
        let expected: serde_json::Map<_, _> = keys
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone())))
            .collect();
        assert_eq!(counted, json!(expected), "{}", capture.file);
    }
}
