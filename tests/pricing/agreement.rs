//! `pricing quote` and the proxy's own verdict on the same recorded responses, and the amounts.

use std::path::PathBuf;
use std::process::Command;

use labproxy::money::PicoUsd;
use labproxy::usage::{Admission, BodyEnd, BodyKind, Settlement, UsageReader, decide};
use serde_json::Value;

use crate::price::book;

/// Each recorded response and what it costs; `None` where the hold is kept.
const RESPONSES: [(&str, Option<u64>); 8] = [
    // 12 × 4 + 4,200 × 8 + 61,000 × 0.20 + 187 × 20
    ("tool_turn.sse", Some(49_588_000_000)),
    // 10,682 × 5 + 510 × 25 and a search
    ("web_search.sse", Some(76_160_000_000)),
    // 30,000 × 2 + 16 bytes × 10
    ("overloaded.sse", Some(60_160_000_000)),
    ("compaction.json", Some(902_000_000_000)),
    ("refusal.json", Some(0)),
    // (4,001 × 0.50 + 6,000 × 0.625 + 90,000 × 0.05 + 2,000 × 2.50) × 1.1
    ("long_prompt.json", Some(16_775_550_000)),
    ("new_counter.json", None),
    ("rate_limited.json", Some(0)),
];

fn proxied(bytes: &[u8], name: &str) -> Option<u64> {
    let kind = match name.rsplit('.').next() {
        Some("sse") => BodyKind::EventStream,
        _ => BodyKind::Json,
    };
    // As the network would cut it.
    let mut reader = UsageReader::new(kind);
    bytes.chunks(61).for_each(|chunk| reader.push(chunk));
    let observed = reader.finish();
    let admission = Admission {
        requested_model: observed.served_model.clone().unwrap_or_default(),
        max_tokens: 4_096,
        thinking_budget: None,
        hold: PicoUsd::from_pico(10_000_000_000_000),
        one_hour_asked: false,
        known_usage: Vec::new(),
        prompt_bound: None,
        resampled: false,
        soft: false,
    };
    let status = if observed.provider_error { 429 } else { 200 };
    let at = "2026-11-29T12:00:00Z".parse().unwrap();
    let verdict = decide(
        book(),
        &admission,
        Some(status),
        BodyEnd::Complete,
        &observed,
        at,
    );
    match verdict.settlement {
        Settlement::Charge(bill) => Some(bill.total.pico()),
        Settlement::Free => Some(0),
        Settlement::Keep(_) => None,
    }
}

#[test]
fn quote_and_the_proxy_agree_on_recorded_responses() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/usage");
    let home = tempfile::tempdir().unwrap();
    for (name, expected) in RESPONSES {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(proxied(&bytes, name), expected, "{name}");
        let output = Command::new(env!("CARGO_BIN_EXE_labproxy"))
            .args(["pricing", "quote", "--json", "--at", "2026-11-29"])
            .args(["--max-tokens", "4096"])
            .arg(&path)
            .current_dir(home.path())
            .env_clear()
            .env("HOME", home.path())
            .output()
            .unwrap();
        let quote: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(quote["pico_usd"].as_u64(), expected, "{name}: {quote}");
    }
    let recorded = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(
        recorded,
        RESPONSES.len(),
        "every recorded response is priced here"
    );
}
