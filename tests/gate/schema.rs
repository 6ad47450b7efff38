//! The closed schema: what each feature is refused with, and what opens it.

use labproxy::proxy::gate::{GatePolicy, GateRefusal, check_messages};
use serde_json::{Value, json};

use crate::support::{blocks, check, check_open, malformed, open, refused, small, with};

/// What a refusal says, whole.
fn sentence(body: &Value) -> String {
    check(body).unwrap_err().to_string()
}

/// Every shape that is billed in a way the body does not bound is refused, and the text names it
/// and what would open it. Cases E01, E03, E04, E09, E10 and threat 7.
#[test]
fn t07_e01_e04_e09_e10_billed_features_are_refused_by_name() {
    let cases = [
        (json!({ "fallbacks": "default" }), "fallbacks"),
        (
            json!({ "fallbacks": [{ "model": "claude-opus-4-8" }] }),
            "fallbacks",
        ),
        (
            json!({ "fallback_credit_token": "t" }),
            "fallback_credit_token",
        ),
        (json!({ "container": "c" }), "container"),
        (json!({ "container": { "skills": [] } }), "container"),
        (json!({ "mcp_servers": [] }), "mcp_servers"),
        (json!({ "thread": { "type": "create" } }), "thread"),
        (
            json!({ "billing_policy": { "type": "billing_policy" } }),
            "billing_policy",
        ),
        (json!({ "user_profile_id": "u" }), "user_profile_id"),
        (json!({ "workspace_id": "w" }), "workspace_id"),
        (json!({ "betas": ["fast-mode-2026-02-01"] }), "betas"),
        (
            json!({ "compaction": { "type": "summarize" } }),
            "summarize at compaction",
        ),
        (
            json!({ "context_management": { "edits": [{ "type": "compact_20260112" }] } }),
            "compact_20260112 at context_management.edits[0]",
        ),
        (
            json!({ "tools": [{ "type": "advisor_20260301", "name": "advisor", "model": "x" }] }),
            "advisor_20260301 at tools[0]",
        ),
        (
            json!({ "tools": [{ "type": "code_execution_20260521", "name": "code_execution" }] }),
            "code_execution_20260521 at tools[0]",
        ),
        (
            json!({ "tools": [{ "type": "mcp_toolset", "mcp_server_name": "s" }] }),
            "mcp_toolset at tools[0]",
        ),
        (
            json!({ "tools": [{ "type": "web_fetch_20260318", "name": "web_fetch" }] }),
            "web_fetch_20260318 at tools[0]",
        ),
        (
            json!({ "tools": [{ "type": "tool_search_tool_regex_20251119", "name": "t" }] }),
            "tool_search_tool_regex_20251119 at tools[0]",
        ),
        (
            json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }),
            "web_search_20250305 at tools[0]",
        ),
    ];
    for (more, what) in cases {
        let body = with(more);
        assert_eq!(refused(check(&body)), what, "{body}");
    }
    assert_eq!(
        sentence(&with(json!({ "compaction": { "type": "summarize" } }))),
        "summarize at compaction is refused: it samples over the whole context once more; \
         compaction = true under [gate] holds one more window for it"
    );
    assert_eq!(
        sentence(&with(json!({ "fallbacks": "default" }))),
        "fallbacks is refused: other models may answer and bill; no setting opens it, so leave it \
         out"
    );
}

/// Blocks that only such features make are refused wherever they stand.
#[test]
fn t07_blocks_of_refused_features_are_refused() {
    for kind in [
        "web_fetch_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "container_upload",
        "mcp_tool_use",
        "mcp_tool_result",
        "mcp_tool_listing",
        "fallback",
        "web_search_tool_result",
        "compaction",
    ] {
        let what = refused(check(&blocks(json!([{ "type": kind }]))));
        assert_eq!(what, format!("{kind} at messages[0].content[0]"));
    }
    let advisor = json!([{ "type": "server_tool_use", "id": "i", "name": "advisor", "input": {} }]);
    assert_eq!(
        refused(check(&blocks(advisor))),
        "advisor at messages[0].content[0].name"
    );
}

/// Tools that are declared inside messages are judged as those at top level.
#[test]
fn t07_tools_inside_messages_are_judged_too() {
    let added = |definition: Value| {
        let tool = json!({ "type": "tool_definition", "definition": definition });
        with(json!({ "messages": [
            { "role": "user", "content": "hello" },
            { "role": "system", "content": [{ "type": "tool_addition", "tool": tool }] },
        ] }))
    };
    let custom = json!({ "name": "n", "input_schema": { "type": "object" } });
    assert!(check(&added(custom)).is_ok());
    let place = "messages[1].content[0].tool.definition";
    let search = json!({ "type": "web_search_20250305", "name": "web_search" });
    assert_eq!(
        refused(check(&added(search))),
        format!("web_search_20250305 at {place}")
    );
    let unknown = json!({ "type": "surcharge_20270101", "name": "n" });
    assert_eq!(
        refused(check(&added(unknown))),
        format!("unknown tool 'surcharge_20270101' at {place}.type")
    );
    let key = json!({ "name": "n", "surcharge": 1 });
    assert_eq!(
        refused(check(&added(key))),
        format!("unknown key {place}.surcharge")
    );
}

/// Fast mode is refused with the refusal of its own that makes the client go on without it.
#[test]
fn e03_fast_mode_is_refused_at_top_and_in_fallbacks() {
    let fast = |body: &Value| matches!(check(body), Err(GateRefusal::Fast));
    assert!(fast(&with(json!({ "speed": "fast" }))));
    assert!(fast(&with(json!({ "speed": "f\u{61}st" }))));
    let hops = json!([{ "model": "a" }, { "model": "b", "speed": "fast" }]);
    assert!(fast(&with(json!({ "fallbacks": hops }))));
    assert!(check(&with(json!({ "speed": "standard" }))).is_ok());
    assert!(check(&with(json!({ "speed": null }))).is_ok());
    let other = with(json!({ "speed": "turbo" }));
    assert_eq!(refused(check(&other)), "unknown speed 'turbo' at speed");
    let escaped = br#"{"model":"m","max_tokens":1,"messages":[],"spe\u0065d":"f\u0061st"}"#;
    let result = check_messages(escaped, &GatePolicy::default());
    assert_eq!(result.unwrap_err(), GateRefusal::Fast);
}

/// A history with `speed` inside a tool's input, a schema or a text is not fast mode.
#[test]
fn t36_speed_inside_tool_inputs_and_schemas_passes() {
    let body = with(json!({
        "tools": [{ "name": "drive", "input_schema": { "speed": "fast", "properties": {
            "speed": { "enum": ["fast"] }, "fallbacks": {}, "type": { "type": "x" } } },
            "input_examples": [{ "speed": "fast" }] }],
        "output_config": { "format": { "type": "json_schema", "schema": { "speed": "fast" } } },
        "messages": [
            { "role": "user", "content": "{\"speed\":\"fast\"}" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "i", "name": "drive",
                "input": { "speed": "fast", "cache_control": { "ttl": "1h" }, "type": "image" } }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "i",
                "content": "{\"speed\":\"fast\"}" }] },
        ],
    }));
    let intent = check(&body).unwrap();
    assert!(!intent.one_hour_asked);
}

/// E14: what no table lists is refused with the line that opens it, and that line opens it, for
/// keys, types and values alike.
#[test]
fn e14_accept_opens_a_single_unknown_name() {
    let cases = [
        (
            json!({ "sparkle": { "a": 1 } }),
            "sparkle",
            "unknown key sparkle",
        ),
        (
            json!({ "metadata": { "sparkle": 1 } }),
            "sparkle",
            "unknown key metadata.sparkle",
        ),
        (
            json!({ "tools": [{ "type": "glow_20270101", "name": "glow", "glare": 1 }] }),
            "glow_20270101",
            "unknown tool 'glow_20270101' at tools[0].type",
        ),
        (
            json!({ "service_tier": "flex" }),
            "flex",
            "unknown service tier 'flex' at service_tier",
        ),
        (
            json!({ "inference_geo": "mars" }),
            "mars",
            "unknown inference geography 'mars' at inference_geo",
        ),
        (
            json!({ "thinking": { "type": "sideways" } }),
            "sideways",
            "unknown thinking 'sideways' at thinking.type",
        ),
    ];
    for (more, name, what) in cases {
        let body = with(more);
        assert_eq!(refused(check(&body)), what);
        let text = sentence(&body);
        assert!(
            text.ends_with(&format!(
                "if it is harmless, set accept = [\"{name}\"] under [gate] (gate.accept)"
            )),
            "{text}"
        );
        let policy = GatePolicy {
            accept: vec![name.to_owned()],
            ..GatePolicy::default()
        };
        let intent = check_messages(body.to_string().as_bytes(), &policy).unwrap();
        // What an accepted thing holds is not looked into, so it may hold a one-hour marker.
        assert!(intent.one_hour_asked);
    }
    let policy = GatePolicy {
        accept: vec![
            "fallbacks".to_owned(),
            "speed".to_owned(),
            "fast".to_owned(),
        ],
        ..GatePolicy::default()
    };
    let body = with(json!({ "fallbacks": "default" })).to_string();
    assert!(check_messages(body.as_bytes(), &policy).is_err());
    let body = with(json!({ "speed": "fast" })).to_string();
    assert!(check_messages(body.as_bytes(), &policy).is_err());
}

/// E11 and E12: the service tier and the geography pass, since the hold covers the dearest.
#[test]
fn e11_e12_tier_and_geography_pass() {
    for more in [
        json!({ "service_tier": "auto" }),
        json!({ "service_tier": "standard_only" }),
        json!({ "inference_geo": "us" }),
        json!({ "inference_geo": "global" }),
        json!({ "inference_geo": null }),
    ] {
        assert!(check(&with(more)).is_ok());
    }
}

/// What has the wrong kind of value is malformed, with its place.
#[test]
fn wrong_kinds_are_named_with_their_place() {
    for (more, text) in [
        (json!({ "messages": "x" }), "messages must be an array"),
        (json!({ "messages": [1] }), "messages[0] must be an object"),
        (
            json!({ "messages": [{ "role": "user", "content": 1 }] }),
            "messages[0].content must be a string or an array",
        ),
        (json!({ "stream": "true" }), "stream must be true or false"),
        (json!({ "model": ["a"] }), "model must be a string"),
        (json!({ "tools": {} }), "tools must be an array"),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 1.5 } }),
            "thinking.budget_tokens must be a whole number in plain digits, not 1.5",
        ),
        (
            json!({ "thinking": {} }),
            "thinking must be an object with a type",
        ),
        (
            json!({ "system": [{ "type": 1, "text": "x" }] }),
            "system[0].type must be a string",
        ),
    ] {
        assert_eq!(malformed(check(&with(more))), text);
    }
}

/// A model id with a suffix or with characters that no id has is refused before it is looked up.
#[test]
fn odd_model_ids_are_refused() {
    for (model, shown) in [
        ("claude-opus-5-5[1m]", "claude-opus-5-5[1m]"),
        ("", ""),
        ("claude opus", "claude opus"),
        ("claude-opus-5-5\u{1b}[2J", "claude-opus-5-5\\u{1b}[2J"),
        ("claude-opus-5-5\u{200b}", "claude-opus-5-5\\u{200b}"),
    ] {
        let body = with(json!({ "model": model }));
        assert_eq!(refused(check(&body)), format!("model '{shown}'"));
    }
    let intent = check(&small()).unwrap();
    assert_eq!(intent.model, "claude-opus-5-5");
}

/// What an operator opens passes, and what stays closed is still refused.
#[test]
fn opened_features_pass() {
    let url = json!({ "type": "image", "source": { "type": "url", "url": "https://e.example/i" } });
    let body = blocks(json!([url]));
    assert_eq!(
        refused(check(&body)),
        "url at messages[0].content[0].source"
    );
    let intent = check_open(&body).unwrap();
    assert_eq!((intent.prompt_bound, intent.countable), (None, false));
    let body = with(json!({ "compaction": { "type": "summarize", "instructions": "short" } }));
    assert!(check_open(&body).unwrap().compaction);
    let body = with(json!({ "fallbacks": "default" }));
    assert_eq!(refused(check_open(&body)), "fallbacks");
    assert!(open().web_search.is_some());
}
