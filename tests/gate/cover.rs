//! Holds cover every charge that the bounds of a body allow.

use labproxy::money::PicoUsd;
use labproxy::pricing::WriteBound;
use labproxy::usage::{Counts, Iteration, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bounds::{charge, rates, usage};
use crate::support::{check, check_open, small, with};

const MODELS: [&str; 6] = [
    "claude-opus-5-5",
    "claude-fable-5-2",
    "claude-sonnet-4-6",
    "claude-haiku-5-5",
    "claude-haiku-4-5",
    "claude-sonnet-5-5",
];

/// Bodies of all shapes that pass.
fn any_body() -> impl Strategy<Value = Value> {
    let hour = json!({ "type": "ephemeral", "ttl": "1h" });
    let minutes = json!({ "type": "ephemeral" });
    let mark = prop::sample::select(vec![Value::Null, Value::Null, minutes, hour]);
    let block = (0..6, "\\PC{0,200}", mark.clone()).prop_map(|(kind, text, mark)| match kind {
        0 => json!({ "type": "image", "cache_control": mark, "source":
            { "type": "base64", "media_type": "image/png", "data": "aGk=" } }),
        1 => json!({ "type": "tool_use", "id": "i", "name": "n", "input": { "t": text } }),
        2 => json!({ "type": "tool_result", "tool_use_id": "i", "content":
            [{ "type": "tool_reference", "tool_name": "n" }] }),
        3 => json!({ "type": "document", "source":
            { "type": "base64", "media_type": "application/pdf", "data": "aGk=" } }),
        _ => json!({ "type": "text", "text": text, "cache_control": mark }),
    });
    let tool = prop::sample::select(vec![
        json!({ "name": "n", "input_schema": { "type": "object" } }),
        json!({ "type": "browser_toolset_20260801" }),
        json!({ "type": "web_search_20250305", "name": "web_search" }),
        json!({ "type": "web_search_20260318", "name": "web_search", "max_uses": 2 }),
    ]);
    let edits = prop::sample::select(vec![json!([]), json!([{ "type": "compact_20260112" }])]);
    (
        prop::sample::select(MODELS.to_vec()),
        0u64..128_000,
        prop::collection::vec(block, 0..8),
        prop::collection::vec(tool, 0..3),
        edits,
        mark,
    )
        .prop_map(|(model, max_tokens, blocks, tools, edits, mark)| {
            let mut body = small();
            body["model"] = json!(model);
            body["max_tokens"] = json!(max_tokens);
            body["messages"][0]["content"] = json!(blocks);
            body["tools"] = json!(tools);
            body["context_management"] = json!({ "edits": edits });
            body["cache_control"] = mark;
            body
        })
}

/// Splits `total` into four parts by three cuts.
fn parts(total: u64, cuts: [u64; 3]) -> [u64; 4] {
    let mut left = total;
    let [a, b, c] = cuts.map(|cut| {
        let part = cut.min(left);
        left -= part;
        part
    });
    [a, b, c, left]
}

/// K07, found by the property below: a response that says it was served in the US is charged so even
/// where the model's row knows no US-only inference, and the hold covers it.
#[test]
fn k07_an_unexpected_geography_is_covered() {
    let intent = check(&with(json!({ "model": "claude-haiku-4-5" }))).unwrap();
    let mut usage = usage(0, WriteBound::None, 127_830, 0);
    usage.geo = Some("us".to_owned());
    let charged = charge("claude-haiku-4-5", &usage, &intent);
    assert_eq!(charged, PicoUsd::from_pico(127_830 * 5_500_000));
    let hold = intent.hold_terms(&rates("claude-haiku-4-5")).hold(127_830);
    assert!(hold >= charged, "{hold} < {charged}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// K07: for every body that passes and every usage that its bounds allow, the hold is at least
    /// the charge: prompts split in any way over input, writes and reads, with and without US-only
    /// inference, searches up to their number, a compaction of a whole window.
    #[test]
    fn k07_the_hold_is_at_least_the_charge(
        body in any_body(),
        share in 0u64..=100,
        cuts in any::<[u32; 3]>(),
        outputs in any::<[u64; 2]>(),
        searched in 0u64..=20,
        us in any::<bool>(),
    ) {
        let intent = check_open(&body).unwrap();
        let rates = rates(&intent.model);
        let window = rates.context_window();
        let bound = intent.prompt_bound.unwrap_or(window).min(window);
        let most = (bound * intent.samplings + intent.web_search_tokens)
            .min(window * intent.samplings);
        let counts = |prompt: u64, output: u64| {
            let [input, read, five, mut hour] = parts(prompt, cuts.map(u64::from));
            let mut counts = Counts { input, cache_read: read, ..Counts::default() };
            counts.output = output % (intent.max_tokens + 1);
            let mut five = five;
            if intent.writes < WriteBound::OneHour {
                five += std::mem::take(&mut hour);
            }
            if intent.writes == WriteBound::None {
                counts.input += std::mem::take(&mut five);
            }
            counts.cache_creation = five + hour;
            counts.split = Some((five, hour));
            counts
        };
        let iteration = |kind: &str, counts| Iteration { kind: kind.to_owned(), model: None, counts };
        let top = counts(most / 100 * share, outputs[0]);
        let mut iterations = Vec::new();
        if intent.compaction {
            iterations.push(iteration("compaction", counts(window, outputs[1])));
            iterations.push(iteration("message", top));
        }
        let usage = Usage {
            top,
            iterations,
            web_searches: searched.min(intent.web_searches),
            geo: us.then(|| "us".to_owned()),
            ..Usage::default()
        };
        let charged = charge(&intent.model, &usage, &intent);
        let hold = intent.hold_terms(&rates).hold(intent.max_tokens);
        prop_assert!(hold >= charged, "hold {} < charge {} for {}", hold, charged, body);
    }
}
