//! Bugs that other meters had: merging, cache tokens, speed, geography, iterations, price rows.

use labproxy::pricing::{ChargeTerms, Flag, PriceBook, Unpriced, bill};
use labproxy::usage::BodyKind;
use serde_json::{Value, json};

use crate::price::{
    answer_events, bill_of, book, cost, message, read, stopped_cost, stream, stream_cost, today,
    usd,
};

/// A price file with one model at the given prices.
fn one_model(input: &str, output: &str, write: &str, read: &str) -> PriceBook {
    let text = format!(
        "schema = 1\n[[row]]\nids = [\"m\"]\nfrom = 2026-01-01\ninput = \"{input}\"\n\
         output = \"{output}\"\ncache_write_5m = \"{write}\"\ncache_write_1h = \"{write}\"\n\
         cache_read = \"{read}\"\nus_geo = false\nweb_search = \"0.01\"\n\
         context_window = 200_000\nmax_output = 64_000\nsource = \"x\"\nchecked_on = 2026-11-29\n"
    );
    PriceBook::from_text("m.toml", &text).unwrap()
}

fn cost_in(book: &PriceBook, usage: &Value) -> u64 {
    let observed = read(BodyKind::Json, &message("m", "end_turn", usage));
    let terms = ChargeTerms {
        requested_model: "m",
        served_model: Some("m"),
        at: today(),
        one_hour_asked: false,
        refused: false,
        known_usage: &[],
    };
    bill(book, observed.usage.as_ref().unwrap(), &terms)
        .total
        .pico()
}

#[test]
fn c01_cache_creation_is_not_charged_twice() {
    let usage = json!({"input_tokens": 3, "output_tokens": 550,
        "cache_creation_input_tokens": 12_304});
    assert_eq!(cost("claude-sonnet-4-6", &usage), usd("0.054399"));
}

#[test]
fn c02_streamed_cache_reads_cost_what_they_cost_in_json() {
    let usage = json!({"input_tokens": 10, "output_tokens": 0, "cache_read_input_tokens": 100_000});
    assert_eq!(cost("claude-opus-5", &usage), usd("0.05005"));
    let streamed = stream_cost("claude-opus-5", &usage, &[json!({"output_tokens": 0})]);
    assert_eq!(streamed, usd("0.05005"));
}

#[test]
fn c03_json_and_events_give_one_price() {
    let usage = json!({"input_tokens": 123, "output_tokens": 456,
        "cache_creation_input_tokens": 789, "cache_read_input_tokens": 1_011,
        "cache_creation": {"ephemeral_5m_input_tokens": 700, "ephemeral_1h_input_tokens": 89}});
    let delta = json!({"output_tokens": 456});
    let mut start = usage.clone();
    start["output_tokens"] = json!(2);
    assert_eq!(
        stream_cost("claude-opus-5-5", &start, &[delta]),
        cost("claude-opus-5-5", &usage)
    );
}

#[test]
fn c04_a_price_row_of_the_users_own_adds_no_third_term() {
    let book = one_model("1", "5", "1.25", "0.1");
    let usage = json!({"input_tokens": 100, "output_tokens": 0, "cache_read_input_tokens": 900});
    assert_eq!(cost_in(&book, &usage), 100 * 1_000_000 + 900 * 100_000);
}

#[test]
fn c05_one_hour_writes_are_charged_at_the_one_hour_rate() {
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "cache_creation_input_tokens": 1_000_000, "cache_creation":
            {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000}});
    assert_eq!(cost("claude-opus-5", &usage), usd("10"));
}

#[test]
fn c06_one_hour_writes_in_the_long_band() {
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "cache_creation_input_tokens": 100_001, "cache_creation":
            {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100_001}});
    assert_eq!(cost("claude-haiku-5-5", &usage), 100_001 * 1_000_000);
}

#[test]
fn c07_the_band_covers_cache_reads() {
    let usage = |read: u64| json!({"input_tokens": 10, "output_tokens": 0, "cache_read_input_tokens": read});
    assert_eq!(
        cost("claude-haiku-5-5", &usage(99_991)),
        10 * 500_000 + 99_991 * 50_000
    );
    assert_eq!(
        cost("claude-haiku-5-5", &usage(99_990)),
        10 * 100_000 + 99_990 * 10_000
    );
}

fn merged(start: &Value, deltas: &[Value]) -> labproxy::usage::Usage {
    let body = stream(&answer_events("claude-opus-5", start, deltas));
    read(BodyKind::EventStream, &body).usage.unwrap()
}

#[test]
fn c10_a_zero_in_the_delta_does_not_replace_the_input() {
    let usage = merged(
        &json!({"input_tokens": 500, "output_tokens": 1}),
        &[json!({"input_tokens": 0, "output_tokens": 20})],
    );
    assert_eq!((usage.top.input, usage.top.output), (500, 20));
    assert!(!usage.fell, "zero is not a fall");
}

#[test]
fn c11_cumulative_deltas_are_not_added() {
    let deltas = [5, 12, 40].map(|output| json!({"output_tokens": output}));
    let usage = merged(&json!({"input_tokens": 1, "output_tokens": 1}), &deltas);
    assert_eq!(usage.top.output, 40);
}

#[test]
fn c12_running_totals_in_ten_chunks_count_once() {
    let deltas: Vec<Value> = (1..=10)
        .map(|n| json!({"input_tokens": 100, "output_tokens": n * 7, "cache_read_input_tokens": 9}))
        .collect();
    let usage = merged(&json!({"input_tokens": 100, "output_tokens": 0}), &deltas);
    assert_eq!(
        (usage.top.input, usage.top.output, usage.top.cache_read),
        (100, 70, 9)
    );
}

#[test]
fn c13_input_of_the_last_delta_counts() {
    let usage = merged(
        &json!({"input_tokens": 100, "output_tokens": 1}),
        &[json!({"input_tokens": 140, "output_tokens": 9})],
    );
    assert_eq!(usage.top.input, 140);
}

#[test]
fn c14_cache_writes_are_charged_once() {
    let usage =
        json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000});
    assert_eq!(cost("claude-opus-5", &usage), 1_000 * 6_250_000);
}

/// Every model of the book that has rows today is charged for streamed output.
#[test]
fn c15_streamed_output_counts_for_every_model() {
    let book = book();
    for row in book.rows() {
        if book.row_at(&row.model, today()).ok() != Some(row) {
            continue;
        }
        let start = json!({"input_tokens": 0, "output_tokens": 1});
        let charged = stream_cost(&row.model, &start, &[json!({"output_tokens": 77})]);
        assert_eq!(
            charged,
            77 * row.base.output.pico_per_token(),
            "{}",
            row.model
        );
    }
}

#[test]
fn c18_usage_nested_in_message_start_is_found() {
    let events = answer_events("claude-opus-5", &json!({"input_tokens": 321}), &[]);
    let observed = read(BodyKind::EventStream, &stream(&events[..1]));
    assert_eq!(observed.usage.unwrap().top.input, 321);
}

#[test]
fn c24_a_missing_split_is_five_minutes_and_a_split_is_kept() {
    let write = |split: Value| {
        json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000,
            "cache_creation": split})
    };
    assert_eq!(
        cost("claude-opus-5", &write(Value::Null)),
        1_000 * 6_250_000
    );
    let split = json!({"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600});
    assert_eq!(
        cost("claude-opus-5", &write(split)),
        400 * 6_250_000 + 600 * 10_000_000
    );
}

#[test]
fn c25_a_million_small_settlements_do_not_drift() {
    let usage = json!({"input_tokens": 1, "output_tokens": 0});
    let one = cost("claude-haiku-4-5", &usage);
    assert_eq!(one, usd("0.000001"));
    assert_eq!((0..1_000_000).map(|_| one).sum::<u64>(), usd("1"));
}

#[test]
fn c28_an_agent_run_that_mostly_reads_the_cache_costs_what_the_price_sheet_says() {
    let turns = (1..=200_u64).map(|turn| {
        json!({"input_tokens": 50, "output_tokens": 400, "cache_creation_input_tokens": 1_000,
            "cache_read_input_tokens": 1_000 * turn})
    });
    let total: u64 = turns.map(|usage| cost("claude-opus-5-5", &usage)).sum();
    let reads: u64 = (1..=200).map(|turn| 1_000 * turn).sum();
    let sheet = 200 * (50 * 4_000_000 + 400 * 20_000_000 + 1_000 * 5_000_000) + reads * 200_000;
    assert_eq!(total, sheet);
}

#[test]
fn c31_dated_and_plain_ids_have_one_price_and_dotted_ones_none() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 1_000});
    assert_eq!(
        cost("claude-opus-4-5-20251101", &usage),
        cost("claude-opus-4-5", &usage)
    );
    for odd in [
        "claude-opus-4.1",
        "claude-opus-4-5-20251102",
        "claude-opus",
        "CLAUDE-OPUS-5",
        "anthropic/claude-opus-5",
        "claude-opus-5[1m]",
        "",
    ] {
        let missing = Unpriced::UnknownModel(odd.to_owned());
        assert_eq!(book().row_at(odd, today()).unwrap_err(), missing, "{odd}");
    }
}

#[test]
fn p01_only_the_speed_that_was_served_counts_and_it_covers_reads() {
    let usage = |speed: &str| {
        json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 1_000_000,
            "speed": speed})
    };
    assert_eq!(cost("claude-opus-5", &usage("standard")), usd("0.50"));
    assert_eq!(cost("claude-opus-5", &usage("fast")), usd("1.00"));
}

#[test]
fn p02_a_fast_answer_of_a_model_without_fast_rates_costs_twice_and_is_flagged() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 100, "speed": "fast"});
    let body = message("claude-sonnet-5", "end_turn", &usage);
    let bill = bill_of(&read(BodyKind::Json, &body), "claude-sonnet-5", today());
    assert_eq!(bill.total.pico(), 1_000 * 4_000_000 + 100 * 20_000_000);
    assert_eq!(bill.flags, [Flag::ServedFast]);
}

#[test]
fn p03_an_unknown_fast_variant_has_no_price() {
    for id in ["claude-opus-5-fast", "claude-opus-5-5-fast"] {
        assert!(book().row_at(id, today()).is_err());
    }
}

#[test]
fn p04_every_fast_price_is_twice_the_standard_one() {
    for row in book().rows() {
        if let Some(fast) = row.fast {
            for (fast, base) in [
                (fast.input, row.base.input),
                (fast.output, row.base.output),
                (fast.write_5m, row.base.write_5m),
                (fast.write_1h, row.base.write_1h),
                (fast.read, row.base.read),
            ] {
                assert_eq!(
                    fast.pico_per_token(),
                    2 * base.pico_per_token(),
                    "{}",
                    row.model
                );
            }
        }
    }
}

/// Priority is capacity that was paid in advance; its answers are charged at the list price, the
/// upper side.
#[test]
fn p05_a_priority_answer_costs_the_list_price() {
    let usage =
        |tier: &str| json!({"input_tokens": 1_000, "output_tokens": 10, "service_tier": tier});
    let list = 1_000 * 5_000_000 + 10 * 25_000_000;
    assert_eq!(cost("claude-opus-4-8", &usage("priority")), list);
    assert_eq!(cost("claude-opus-4-8", &usage("standard")), list);
}

#[test]
fn p07_geography_of_message_start_survives_the_last_delta() {
    let start = json!({"input_tokens": 1_000_000, "output_tokens": 0, "inference_geo": "us"});
    let delta = json!({"output_tokens": 0, "inference_geo": null});
    assert_eq!(stream_cost("claude-opus-5", &start, &[delta]), usd("5.50"));
}

#[test]
fn p08_searches_that_only_the_delta_counts_are_charged() {
    let start = json!({"input_tokens": 0, "output_tokens": 0});
    let delta = json!({"output_tokens": 0, "server_tool_use": {"web_search_requests": 3}});
    assert_eq!(stream_cost("claude-opus-5", &start, &[delta]), usd("0.03"));
}

#[test]
fn p10_compaction_is_added_to_the_top_level() {
    let usage = json!({"input_tokens": 23_000, "output_tokens": 1_000, "iterations": [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000}]});
    assert_eq!(cost("claude-opus-5", &usage), usd("1.1275"));
}

#[test]
fn p11_an_advisor_is_added_at_its_own_rates() {
    let usage = json!({"input_tokens": 1_760, "output_tokens": 531,
        "cache_read_input_tokens": 412, "iterations": [
            {"type": "message", "input_tokens": 1_760, "output_tokens": 531,
                "cache_read_input_tokens": 412},
            {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 823,
                "output_tokens": 1_612}]});
    assert_eq!(cost("claude-sonnet-5", &usage), usd("0.0533274"));
}

#[test]
fn p12_a_declined_attempt_without_output_is_free() {
    let usage = |output: u64| {
        json!({"input_tokens": 412, "output_tokens": 264, "iterations": [
            {"type": "message", "model": "claude-fable-5", "input_tokens": 535,
                "output_tokens": output},
            {"type": "fallback_message", "model": "claude-opus-4-8", "input_tokens": 412,
                "output_tokens": 264}]})
    };
    let served = 412 * 5_000_000 + 264 * 25_000_000;
    assert_eq!(cost("claude-opus-4-8", &usage(0)), served);
    assert_eq!(
        cost("claude-opus-4-8", &usage(10)),
        served + 535 * 10_000_000 + 10 * 50_000_000
    );
    let all_declined = json!({"input_tokens": 412, "output_tokens": 0, "iterations": [
        {"type": "message", "model": "claude-fable-5", "input_tokens": 535, "output_tokens": 30},
        {"type": "fallback_message", "model": "claude-opus-4-8", "input_tokens": 412,
            "output_tokens": 0}]});
    assert_eq!(
        stopped_cost("claude-opus-4-8", "refusal", &all_declined),
        535 * 10_000_000 + 30 * 50_000_000,
        "only the attempt that wrote something"
    );
}

/// Turns of the serving model before the last one are plain entries and are paid too.
#[test]
fn p12_earlier_turns_of_the_serving_attempt_are_paid() {
    let usage = json!({"input_tokens": 300, "output_tokens": 30, "iterations": [
        {"type": "message", "model": "claude-fable-5", "input_tokens": 535, "output_tokens": 0},
        {"type": "message", "model": "claude-opus-4-8", "input_tokens": 100, "output_tokens": 0},
        {"type": "fallback_message", "model": "claude-opus-4-8", "input_tokens": 200,
            "output_tokens": 30}]});
    assert_eq!(
        cost("claude-opus-4-8", &usage),
        300 * 5_000_000 + 30 * 25_000_000
    );
}

/// A refusal before output is free, but not the compaction that ran before it, nor a sampling whose
/// searches ran.
#[test]
fn a_refusal_leaves_what_ran_before_it_to_pay() {
    let usage = |searches: u64| {
        json!({"input_tokens": 23_000, "output_tokens": 0,
            "server_tool_use": {"web_search_requests": searches}, "iterations": [
                {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
                {"type": "message", "input_tokens": 23_000, "output_tokens": 0}]})
    };
    let compaction = 180_000 * 5_000_000 + 3_500 * 25_000_000;
    let refused = |searches| stopped_cost("claude-opus-5", "refusal", &usage(searches));
    assert_eq!(refused(0), compaction);
    assert_eq!(refused(1), compaction + 23_000 * 5_000_000 + usd("0.01"));
}

/// Entries that explain less than the top level leave the rest to be charged.
#[test]
fn what_the_iterations_leave_out_is_charged_too() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 100,
        "cache_creation_input_tokens": 50, "iterations": [
            {"type": "message", "input_tokens": 900, "output_tokens": 60}]});
    assert_eq!(
        cost("claude-opus-5", &usage),
        1_000 * 5_000_000 + 100 * 25_000_000 + 50 * 6_250_000
    );
}

/// Haiku's band is that of the whole when the entries do not add up to it.
#[test]
fn the_band_is_chosen_by_the_top_level_when_iterations_do_not_add_up() {
    let one = json!({"type": "message", "input_tokens": 70_000, "output_tokens": 500});
    let usage = json!({"input_tokens": 140_001, "output_tokens": 1_000, "iterations": [one, one]});
    assert_eq!(
        cost("claude-haiku-5-5", &usage),
        140_001 * 500_000 + 1_000 * 2_500_000
    );
}

#[test]
fn p14_a_row_needs_a_day_of_its_own_and_a_day_of_checking() {
    for key in ["from", "checked_on", "source"] {
        let lines = book().effective_toml().split_inclusive('\n');
        let text: String = lines.filter(|line| !line.starts_with(key)).collect();
        let problems = PriceBook::from_text("x.toml", &text).unwrap_err();
        assert!(problems[0].what.contains(key), "{}", problems[0]);
    }
}

#[test]
fn p16_reads_have_their_own_price() {
    let usage =
        json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 1_000_000});
    assert_eq!(cost("claude-fable-5-1", &usage), usd("0.25"));
}

#[test]
fn p17_a_long_prompt_of_opus_5_costs_the_flat_rate() {
    let usage = json!({"input_tokens": 900_000, "output_tokens": 0});
    assert_eq!(cost("claude-opus-5", &usage), 900_000 * 5_000_000);
}

#[test]
fn u03_a_served_model_without_a_price_is_flagged_and_adds_nothing() {
    let body = message(
        "claude-next",
        "end_turn",
        &json!({"input_tokens": 9, "output_tokens": 9}),
    );
    let bill = bill_of(&read(BodyKind::Json, &body), "claude-opus-5", today());
    assert_eq!(bill.total.pico(), 0);
    assert_eq!(
        bill.flags,
        [Flag::UnpricedServedModel("claude-next".to_owned())]
    );
}

/// No row, no price: there is nothing to fall back to, neither in bills nor in holds.
#[test]
fn u04_there_is_no_fallback_price() {
    assert!(book().hold_rates("claude-next", today()).is_err());
    assert!(book().billing_row("claude-next", today()).is_err());
    assert!(book().row_at("gpt-5", today()).is_err());
}

#[test]
fn an_unknown_geography_is_charged_as_the_dearest() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 0, "inference_geo": "moon"});
    assert_eq!(cost("claude-opus-5", &usage), 1_000 * 5_500_000);
}
