//! Threats 8, 9, 22 and cases K08, E07, E09: what a hold covers.

use std::sync::LazyLock;

use jiff::Timestamp;
use labproxy::money::PicoUsd;
use labproxy::pricing::{ChargeTerms, HoldRates, PriceBook, WriteBound, bill};
use labproxy::proxy::gate::Intent;
use labproxy::usage::{Counts, Usage};
use serde_json::{Value, json};

use crate::support::{blocks, check, check_open, with};

/// Slack of every prompt.
const SLACK: u64 = 2_048 + 804;

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

static BOOK: LazyLock<PriceBook> = LazyLock::new(|| PriceBook::builtin().unwrap());

pub(crate) fn rates(model: &str) -> HoldRates {
    BOOK.hold_rates(model, now()).unwrap()
}

fn bytes(body: &Value) -> u64 {
    u64::try_from(body.to_string().len()).unwrap()
}

/// How many tokens the bound has beyond the bytes and the slack of every prompt.
fn extra(body: &Value) -> u64 {
    check(body).unwrap().prompt_bound.unwrap() - bytes(body) - SLACK
}

fn dollars(text: &str) -> PicoUsd {
    text.parse().unwrap()
}

/// A prompt of all kinds of tokens at their dearest.
pub(crate) fn usage(prompt: u64, writes: WriteBound, output: u64, searches: u64) -> Usage {
    let mut top = Counts {
        output,
        ..Counts::default()
    };
    match writes {
        WriteBound::None => top.input = prompt,
        WriteBound::FiveMinutes => {
            top.cache_creation = prompt;
            top.split = Some((prompt, 0));
        }
        WriteBound::OneHour => {
            top.cache_creation = prompt;
            top.split = Some((0, prompt));
        }
    }
    Usage {
        top,
        web_searches: searches,
        geo: Some("us".to_owned()),
        ..Usage::default()
    }
}

pub(crate) fn charge(model: &str, usage: &Usage, intent: &Intent) -> PicoUsd {
    let terms = ChargeTerms {
        requested_model: model,
        served_model: Some(model),
        at: now(),
        one_hour_asked: intent.one_hour_asked,
        refused: false,
        known_usage: &[],
    };
    bill(&BOOK, usage, &terms).total
}

/// What Claude Code asks for by default: the numbers of the design.
#[test]
fn k08_the_hold_covers_all_of_max_tokens() {
    let intent = check(&with(json!({ "max_tokens": 128_000 }))).unwrap();
    let terms = intent.hold_terms(&rates("claude-opus-5-5"));
    // $20 per million × 1.1, for 128,000 tokens.
    let output = terms.hold(128_000).checked_sub(terms.hold(0)).unwrap();
    assert_eq!(output, dollars("2.816"));
    let output = terms.hold(64_000).checked_sub(terms.hold(0)).unwrap();
    assert_eq!(output, dollars("1.408"));
    let prompt = intent.prompt_bound.unwrap();
    assert_eq!(
        prompt,
        bytes(&with(json!({ "max_tokens": 128_000 }))) + SLACK
    );
    // $4 per million × 1.1.
    assert_eq!(terms.fixed, PicoUsd::from_pico(prompt * 4_400_000));
}

/// A PDF of a few kilobytes is held at the window; what it may cost at most fits.
#[test]
fn t08_a_document_is_held_at_the_window() {
    let source = json!({ "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" });
    let document = json!({ "type": "document", "source": source });
    let text = json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain",
        "data": "x" } });
    let result = |content: &Value| json!({ "type": "tool_result", "tool_use_id": "i", "content": [content] });
    for body in [
        blocks(json!([document])),
        blocks(json!([text])),
        blocks(json!([result(&document)])),
        blocks(json!([{ "type": "text", "text": "x" }, result(&text)])),
    ] {
        let intent = check(&body).unwrap();
        assert_eq!((intent.prompt_bound, intent.countable), (None, true));
        let terms = intent.hold_terms(&rates("claude-opus-5-5"));
        // A million tokens at $4 × 1.1, and a thousand of output at $20 × 1.1.
        assert_eq!(terms.hold(intent.max_tokens), dollars("4.422"));
        let worst = usage(1_000_000, WriteBound::None, 1_000, 0);
        assert_eq!(charge("claude-opus-5-5", &worst, &intent), dollars("4.422"));
    }
}

/// What the provider fetches is held at the window, and no count lowers that: the second fetch may
/// be larger than the first.
#[test]
fn t08_no_count_lowers_what_is_fetched() {
    for source in [
        json!({ "type": "url", "url": "https://e.example/x" }),
        json!({ "type": "file", "file_id": "file_1" }),
    ] {
        for kind in ["image", "document"] {
            let body = blocks(json!([{ "type": kind, "source": source }]));
            assert!(check(&body).is_err());
            let intent = check_open(&body).unwrap();
            assert_eq!((intent.prompt_bound, intent.countable), (None, false));
            let rates = rates("claude-opus-5-5");
            assert_eq!(intent.counted_terms(&rates, 10), intent.hold_terms(&rates));
            let nested = json!([{ "type": "tool_result", "tool_use_id": "i",
                "content": [{ "type": kind, "source": source }] }]);
            assert!(check(&blocks(nested.clone())).is_err());
            assert!(!check_open(&blocks(nested)).unwrap().countable);
        }
    }
}

/// Each image has the tokens of the largest one, whatever its bytes; at any depth.
#[test]
fn t09_each_image_has_the_largest_allowance() {
    let image = json!({ "type": "image",
        "source": { "type": "base64", "media_type": "image/png", "data": "iVBORw0=" } });
    assert_eq!(extra(&blocks(json!([image]))), 4_784);
    assert_eq!(extra(&blocks(json!([image, image, image]))), 3 * 4_784);
    let nested = json!([{ "type": "tool_result", "tool_use_id": "i", "content": [image, image] }]);
    assert_eq!(extra(&blocks(nested)), 2 * 4_784);
}

/// Each tool has its slack and the hidden definition that its few bytes stand for.
#[test]
fn t09_each_tool_has_its_hidden_definition() {
    for (tool, tokens) in [
        (json!({ "name": "n", "input_schema": {} }), 64),
        (
            json!({ "type": "custom", "name": "n", "input_schema": {} }),
            64,
        ),
        (json!({ "type": "bash_20250124", "name": "bash" }), 64 + 325),
        (
            json!({ "type": "text_editor_20250728", "name": "e" }),
            64 + 700,
        ),
        (
            json!({ "type": "memory_20250818", "name": "memory" }),
            64 + 1_400,
        ),
        (
            json!({ "type": "computer_20251124", "name": "computer" }),
            64 + 1_500,
        ),
        (json!({ "type": "computer_toolset_20260801" }), 64 + 4_500),
        (json!({ "type": "browser_toolset_20260801" }), 64 + 7_480),
    ] {
        assert_eq!(extra(&with(json!({ "tools": [tool] }))), tokens);
        let added = json!({ "type": "tool_addition",
            "tool": { "type": "tool_definition", "definition": tool } });
        assert_eq!(extra(&blocks(json!([added]))), tokens);
    }
}

/// Each reference repeats the whole definition of its tool; one to an unknown name the largest.
#[test]
fn t09_references_repeat_definitions() {
    let large = json!({ "name": "large", "defer_loading": true, "description": "d".repeat(5_000) });
    let small = json!({ "name": "sm\u{e4}ll", "defer_loading": true, "input_schema": {} });
    let cost = |tool: &Value| bytes(tool) + 64;
    let body = |names: &[&str]| {
        let references: Vec<_> = names
            .iter()
            .map(|name| json!({ "type": "tool_reference", "tool_name": name }))
            .collect();
        let result = json!({ "type": "tool_result", "tool_use_id": "i", "content": references });
        with(json!({
            "tools": [large, small],
            "messages": [{ "role": "user", "content": [result] }],
        }))
    };
    assert_eq!(extra(&body(&[])), 2 * 64);
    assert_eq!(extra(&body(&["large"])), 2 * 64 + cost(&large));
    assert_eq!(extra(&body(&["sm\u{e4}ll"])), 2 * 64 + cost(&small));
    assert_eq!(extra(&body(&["nobody"])), 2 * 64 + cost(&large));
    let many = vec!["large"; 1_000];
    assert_eq!(extra(&body(&many)), 2 * 64 + 1_000 * cost(&large));
    let added = with(
        json!({ "tools": [large], "messages": [{ "role": "system", "content": [
        { "type": "tool_addition", "tool": { "type": "tool_reference", "name": "large" } },
        { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "large" } },
    ] }] }),
    );
    assert_eq!(extra(&added), 64 + cost(&large));
}

/// Threat 22: a one-hour marker at every legal position is seen; five-minute markers are not taken
/// for it; without any marker nothing is written.
#[test]
fn t22_one_hour_markers_are_seen_at_every_position() {
    let bodies = |mark: &Value| {
        let text = json!({ "type": "text", "text": "x", "cache_control": mark });
        let image = json!({ "type": "image", "cache_control": mark,
            "source": { "type": "base64", "media_type": "image/png", "data": "" } });
        let tool = json!({ "name": "n", "input_schema": {}, "cache_control": mark });
        let result = |content: Value| {
            json!({ "type": "tool_result", "tool_use_id": "i",
            "content": [content] })
        };
        let document = |content: Value| {
            json!({ "type": "document",
            "source": { "type": "content", "content": [content] } })
        };
        let mut all = vec![
            with(json!({ "cache_control": mark })),
            with(json!({ "system": [text] })),
            with(json!({ "tools": [tool] })),
            with(
                json!({ "tools": [{ "type": "bash_20250124", "name": "b", "cache_control": mark }] }),
            ),
            with(
                json!({ "tools": [{ "type": "browser_toolset_20260801", "cache_control": mark }] }),
            ),
        ];
        let definition = json!({ "type": "tool_definition", "definition": tool });
        let search = json!({ "type": "search_result", "source": "s", "title": "t",
            "content": [text] });
        all.extend(
            [
                text.clone(),
                image.clone(),
                result(text.clone()),
                result(image.clone()),
                result(search.clone()),
                result(document(text.clone())),
                result(
                    json!({ "type": "tool_reference", "tool_name": "n", "cache_control": mark }),
                ),
                result(json!({ "type": "browser_state", "tabs": [], "cache_control": mark })),
                document(image),
                document(text),
                search,
                json!({ "type": "document", "cache_control": mark,
                    "source": { "type": "text", "media_type": "text/plain", "data": "x" } }),
                json!({ "type": "tool_use", "id": "i", "name": "n", "input": {},
                    "cache_control": mark }),
                json!({ "type": "tool_result", "tool_use_id": "i", "cache_control": mark }),
                json!({ "type": "thinking", "thinking": "", "signature": "s",
                    "cache_control": mark }),
                json!({ "type": "redacted_thinking", "data": "d", "cache_control": mark }),
                json!({ "type": "tool_addition", "tool": definition }),
                json!({ "type": "tool_addition", "cache_control": mark,
                    "tool": { "type": "tool_reference", "name": "n" } }),
                json!({ "type": "tool_removal", "cache_control": mark,
                    "tool": { "type": "tool_reference", "name": "n" } }),
            ]
            .map(|block| blocks(json!([block]))),
        );
        all
    };
    let hour = json!({ "type": "ephemeral", "ttl": "1h" });
    let minutes = json!({ "type": "ephemeral", "ttl": "5m" });
    let bare = json!({ "type": "ephemeral" });
    for (mark, writes) in [
        (&hour, WriteBound::OneHour),
        (&minutes, WriteBound::FiveMinutes),
        (&bare, WriteBound::FiveMinutes),
        (&Value::Null, WriteBound::None),
    ] {
        for body in bodies(mark) {
            let intent = check(&body).unwrap();
            assert_eq!(intent.writes, writes, "{body}");
            assert_eq!(intent.one_hour_asked, writes == WriteBound::OneHour);
        }
    }
    let odd = with(json!({ "cache_control": { "type": "ephemeral", "ttl": "1d" } }));
    assert!(check(&odd).is_err());
}

/// Threat 22: when the response does not split the writes of a one-hour request, the charge is at
/// the one-hour rate, and the hold covers it.
#[test]
fn t22_an_unsplit_write_is_covered() {
    let mark = json!({ "cache_control": { "type": "ephemeral", "ttl": "1h" } });
    let intent = check(&with(mark)).unwrap();
    let prompt = intent.prompt_bound.unwrap();
    let mut usage = usage(prompt, WriteBound::OneHour, 1_000, 0);
    for split in [Some((0, 0)), None] {
        usage.top.split = split;
        let charged = charge("claude-opus-5-5", &usage, &intent);
        let hold = intent.hold_terms(&rates("claude-opus-5-5")).hold(1_000);
        assert_eq!(charged, hold, "{split:?}");
    }
}

/// A count replaces the bound with two per cent and 512 tokens on top, and never raises it.
#[test]
fn counted_terms_add_two_per_cent_and_512() {
    let body = with(json!({ "system": "x".repeat(100_000) }));
    let intent = check(&body).unwrap();
    let rates = rates("claude-sonnet-5");
    let fixed = |tokens: u64| PicoUsd::from_pico(tokens * 2_200_000);
    assert_eq!(
        intent.counted_terms(&rates, 20_000).fixed,
        fixed(20_400 + 512)
    );
    assert_eq!(intent.counted_terms(&rates, 1).fixed, fixed(2 + 512));
    assert_eq!(intent.counted_terms(&rates, 0).fixed, fixed(512));
    let own = intent.hold_terms(&rates);
    assert_eq!(own.fixed, fixed(intent.prompt_bound.unwrap()));
    for most in [200_000, u64::MAX] {
        assert_eq!(intent.counted_terms(&rates, most), own);
    }
}

/// The expected cost of soft mode: a third of the bytes at the write rate, 4,000 tokens of output.
#[test]
fn expected_terms_are_those_of_the_predecessor() {
    let body = with(json!({ "max_tokens": 128_000,
        "cache_control": { "type": "ephemeral" } }));
    let intent = check(&body).unwrap();
    let terms = intent.expected_terms(&rates("claude-opus-5-5"), 30_000);
    // 10,000 tokens at $5 × 1.1, 4,000 at $20 × 1.1; the same whatever max_tokens is put in.
    assert_eq!(terms.hold(128_000), dollars("0.143"));
    assert_eq!(terms.hold(0), dollars("0.143"));
    let few = check(&with(json!({ "max_tokens": 10 }))).unwrap();
    let terms = few.expected_terms(&rates("claude-opus-5-5"), 30_000);
    assert_eq!(terms.hold(10), dollars("0.04422"));
}

/// E07: every search may bring its tokens and makes the model read the prompt once more; each has
/// its fee.
#[test]
fn e07_searches_hold_fees_results_and_readings() {
    let tool = json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 3 });
    let body = with(json!({ "tools": [tool] }));
    let intent = check_open(&body).unwrap();
    let bound = bytes(&body) + SLACK + 64 + 1_400;
    assert_eq!(intent.prompt_bound, Some(bound));
    assert_eq!(intent.samplings, 4);
    let tokens = 4 * bound + 3 * 40_000;
    let terms = intent.hold_terms(&rates("claude-opus-5-5"));
    let fees = 3 * 10_000_000_000;
    assert_eq!(terms.fixed, PicoUsd::from_pico(tokens * 5_500_000 + fees));
}

/// E09: compaction holds one more window and one more `max_tokens`.
#[test]
fn e09_compaction_holds_a_window_more() {
    let edits = json!({ "edits": [{ "type": "compact_20260112" }] });
    let body = with(json!({ "context_management": edits }));
    let intent = check_open(&body).unwrap();
    let terms = intent.hold_terms(&rates("claude-opus-5-5"));
    let tokens = intent.prompt_bound.unwrap() + 1_000_000;
    assert_eq!(terms.fixed, PicoUsd::from_pico(tokens * 5_500_000));
    assert_eq!(terms.per_output_token.pico_per_token(), 2 * 22_000_000);
}
