//! `labproxy pricing` as a user runs it: the same bill as the proxy's, shown for people and as JSON.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::price::{answer_events, cost, message, stream, usd};

/// Runs `labproxy pricing …` in an empty home with `input` on stdin.
fn pricing(home: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_labproxy"))
        .arg("pricing")
        .args(arguments)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early leaves its input unread.
    let _written = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn run(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let home = tempfile::tempdir().unwrap();
    let output = pricing(home.path(), arguments, input);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn quote(arguments: &[&str], input: &[u8]) -> (i32, Value) {
    let mut all = vec!["quote", "--json", "--at", "2026-11-29"];
    all.extend(arguments);
    let (code, out, err) = run(&all, input);
    (
        code,
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}")),
    )
}

#[test]
fn quote_takes_a_usage_object_a_response_and_a_transcript() {
    let usage = json!({"input_tokens": 1_200, "output_tokens": 800,
        "cache_creation_input_tokens": 3_000, "cache_read_input_tokens": 90_000});
    let expected = json!(usd("0.0538"));
    let model = "claude-opus-5-5";
    let (code, bare) = quote(&["--model", model], usage.to_string().as_bytes());
    assert_eq!((code, &bare["pico_usd"]), (0, &expected));
    let (_, whole) = quote(&[], &message(model, "end_turn", &usage));
    assert_eq!(whole["pico_usd"], expected);
    let transcript = stream(&answer_events(
        model,
        &usage,
        &[json!({"output_tokens": 800})],
    ));
    let (_, streamed) = quote(&["-"], &transcript);
    assert_eq!(streamed["pico_usd"], expected);
    assert_eq!(streamed["lines"], whole["lines"]);
    assert_eq!(
        whole["pico_usd"],
        json!(cost(model, &usage)),
        "as the bill says"
    );
    assert_eq!(whole["outcome"], "charged");
    assert_eq!(whole["usage"], usage);
    assert_eq!(whole["pricing_digest"].as_str().unwrap().len(), 64);
}

#[test]
fn quote_shows_a_breakdown_that_a_person_can_follow() {
    let usage = json!({"input_tokens": 50_000, "output_tokens": 2_000,
        "cache_read_input_tokens": 100_000, "inference_geo": "us",
        "server_tool_use": {"web_search_requests": 2}});
    let arguments = ["quote", "--at", "2026-11-29", "--model", "claude-opus-5-5"];
    let (code, out, _) = run(&arguments, usage.to_string().as_bytes());
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "MODEL            ITEM         COUNT  PRICE  PER        COST\n\
         claude-opus-5-5  input        50000   $4.4  million   $0.22\n\
         claude-opus-5-5  cache_read  100000  $0.22  million  $0.022\n\
         claude-opus-5-5  output        2000    $22  million  $0.044\n\
         claude-opus-5-5  web_search       2  $0.01  search    $0.02\n\
         total $0.306 (306000000000 pico-dollars)\n  \
         prices of claude-opus-5-5 from 2026-09-22, checked on 2026-11-29\n  \
         US-only inference: every token price × 1.1, fees not\n"
    );
}

#[test]
fn quote_judges_as_the_proxy_does() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 1});
    let mut events = answer_events("claude-opus-5-5", &usage, &[]);
    events.truncate(4);
    let cut = stream(&events);
    let (code, _, err) = run(&["quote"], &cut);
    assert_eq!(code, 2);
    assert!(err.contains("--max-tokens"), "{err}");
    let (_, estimated) = quote(&["--max-tokens", "4096"], &cut);
    assert_eq!(
        estimated["pico_usd"],
        json!(1_000_u64 * 4_000_000 + 13 * 20_000_000)
    );
    let error = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}});
    let (code, free) = quote(&[], error.to_string().as_bytes());
    assert_eq!(
        (code, &free["outcome"], &free["pico_usd"]),
        (0, &json!("free"), &json!(0))
    );
    let odd = json!({"input_tokens": 1, "output_tokens": 1, "video_tokens": 1});
    let (code, kept) = quote(&["--model", "claude-opus-5"], odd.to_string().as_bytes());
    assert_eq!(
        (code, &kept["outcome"], &kept["pico_usd"]),
        (1, &json!("kept"), &Value::Null)
    );
    assert!(
        kept["closes_session"]
            .to_string()
            .contains("gate.known_usage")
    );
}

#[test]
fn quote_says_what_is_missing() {
    let (code, _, err) = run(&["quote"], b"{\"input_tokens\":1,\"output_tokens\":1}");
    assert_eq!(code, 2);
    assert!(err.contains("--model"), "{err}");
    assert_eq!(run(&["quote"], b" \n").0, 2);
    let (code, _, err) = run(&["quote", "/nowhere/x.json"], b"");
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere/x.json cannot be read"), "{err}");
}

/// The prices of every row today, as published: dollars per million are pico-dollars per token
/// divided by a million.
#[test]
fn show_lists_prices_as_integers_and_as_a_table() {
    let (code, out, _) = run(
        &["show", "claude-haiku-5-5", "--json", "--at", "2026-11-29"],
        b"",
    );
    assert_eq!(code, 0);
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!(rows[0]["pico_usd_per_token"]["cache_write_5m"], 125_000);
    assert_eq!(rows[0]["long_prompts"]["above_prompt_tokens"], 100_000);
    assert_eq!(rows[0]["from"], "2026-10-07");
    let (_, table, _) = run(&["show", "--at", "2026-11-29"], b"");
    assert!(
        table.contains("claude-haiku-5-5            prompt > 100000"),
        "{table}"
    );
    assert!(!table.contains("claude-3-opus"), "{table}");
    let (code, _, err) = run(&["show", "claude-opus-9"], b"");
    assert_eq!(code, 1);
    assert!(err.contains("'claude-opus-9' has no price"), "{err}");
}

#[test]
fn check_names_every_problem_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("p.toml");
    std::fs::write(&file, "schema = 1\n[[row]]\nids = [\"m\"]\ninput = 4.0\n").unwrap();
    let output = pricing(home.path(), &["check", file.to_str().unwrap()], b"");
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("p.toml:4: input must be a string"), "{err}");
    assert!(err.contains("p.toml:2: 'checked_on' is missing"), "{err}");
}

/// A map in LiteLLM's form: numbers with exponents, a band, multipliers, a foreign provider.
fn price_map() -> &'static str {
    r#"{"sample_spec": {"litellm_provider": "one of"},
     "gpt-5": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06},
     "claude-next": {"litellm_provider": "anthropic", "mode": "chat",
        "input_cost_per_token": 1e-07, "output_cost_per_token": 5e-07,
        "cache_creation_input_token_cost": 1.25e-07,
        "cache_creation_input_token_cost_above_1hr": 2e-07,
        "cache_read_input_token_cost": 1e-08,
        "input_cost_per_token_above_100k_tokens": 5e-07,
        "output_cost_per_token_above_100k_tokens": 2.5e-06,
        "cache_creation_input_token_cost_above_100k_tokens": 6.25e-07,
        "cache_creation_input_token_cost_above_1hr_above_100k_tokens": 1e-06,
        "cache_read_input_token_cost_above_100k_tokens": 5e-08,
        "provider_specific_entry": {"us": 1.1, "fast": 2.0},
        "search_context_cost_per_query": {"search_context_size_medium": 0.01},
        "max_input_tokens": 1000000, "max_output_tokens": 128000},
     "claude-opus-5": {"litellm_provider": "anthropic", "mode": "chat",
        "input_cost_per_token": 6e-06, "output_cost_per_token": 2.5e-05,
        "cache_creation_input_token_cost": 6.25e-06,
        "cache_creation_input_token_cost_above_1hr": 1e-05,
        "cache_read_input_token_cost": 5e-07, "provider_specific_entry": {"us": 1.1, "fast": 2},
        "max_input_tokens": 1000000, "max_output_tokens": 128000},
     "claude-odd": {"litellm_provider": "anthropic", "mode": "chat",
        "input_cost_per_token": 2.9999999e-13}}"#
}

#[test]
fn import_writes_a_price_file_that_loads_exactly() {
    let home = tempfile::tempdir().unwrap();
    let map = home.path().join("map.json");
    std::fs::write(&map, price_map()).unwrap();
    let output = pricing(home.path(), &["import", map.to_str().unwrap()], b"");
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("'claude-odd' is left out"), "{err}");
    let text = String::from_utf8(output.stdout).unwrap();
    let book = labproxy::pricing::PriceBook::from_text("imported.toml", &text).unwrap();
    let row = book
        .rows()
        .iter()
        .find(|row| row.model == "claude-next")
        .unwrap();
    assert_eq!(row.base.write_5m.pico_per_token(), 125_000);
    let band = row.band.unwrap();
    assert_eq!(band.above_prompt_tokens, 100_000);
    assert_eq!(band.rates.write_1h.pico_per_token(), 1_000_000);
    assert_eq!(row.fast.unwrap().read.pico_per_token(), 20_000);
    assert!(row.us_geo);
    assert_eq!(book.rows().len(), 2);
}

#[test]
fn diff_names_every_difference() {
    let home = tempfile::tempdir().unwrap();
    let map = home.path().join("map.json");
    std::fs::write(&map, price_map()).unwrap();
    let output = pricing(home.path(), &["diff", "--json", map.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1));
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |model: &str| -> Vec<&Value> {
        found
            .iter()
            .filter(|difference| difference["model"] == model)
            .collect()
    };
    assert_eq!(
        of("claude-opus-5"),
        [
            &json!({"model": "claude-opus-5", "item": "input", "ours": "5", "theirs": "6"}),
            &json!({"model": "claude-opus-5", "item": "fast input", "ours": "10", "theirs": "12"}),
        ]
    );
    assert_eq!(of("claude-next")[0]["ours"], Value::Null);
    assert_eq!(of("claude-opus-5-5")[0]["theirs"], Value::Null);
    let output = pricing(home.path(), &["diff", "/nowhere.json"], b"");
    assert_eq!(output.status.code(), Some(2));
}
