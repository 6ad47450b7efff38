//! The worked examples of `facts/anthropic.md` 8, each to the exact pico-dollar, on the built-in
//! prices of 2026-11-29.

use labproxy::money::Rate;
use labproxy::pricing::{WriteBound, bill};
use labproxy::usage::BodyKind;
use serde_json::json;

use crate::price::{
    answer_events, bill_of, book, cost, message, read, stopped_cost, stream, stream_cost, today,
    usd,
};

#[test]
fn t8_01_cache_counts_are_disjoint_from_input() {
    let usage = json!({"input_tokens": 1_200, "output_tokens": 800,
        "cache_creation_input_tokens": 3_000, "cache_read_input_tokens": 90_000});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.053800"));
}

#[test]
fn t8_02_one_hour_writes_cost_twice_the_input() {
    let usage = json!({"input_tokens": 10, "output_tokens": 100,
        "cache_creation_input_tokens": 20_456, "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 20_000}});
    assert_eq!(cost("claude-opus-5", &usage), usd("0.205400"));
}

#[test]
fn t8_03_an_empty_split_leaves_the_aggregate_at_five_minutes() {
    let usage = json!({"input_tokens": 335, "output_tokens": 690,
        "cache_creation_input_tokens": 12_229, "cache_read_input_tokens": 14_942,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}});
    assert_eq!(cost("claude-haiku-4-5", &usage), usd("0.03056545"));
}

#[test]
fn t8_04_a_split_without_an_aggregate_counts() {
    let usage = json!({"input_tokens": 20, "output_tokens": 300,
        "cache_creation_input_tokens": null, "cache_read_input_tokens": null,
        "cache_creation": {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 4_000}});
    assert_eq!(cost("claude-sonnet-4-6", &usage), usd("0.032310"));
}

#[test]
fn t8_05_message_deltas_are_cumulative() {
    let deltas = [120, 340, 512].map(|output| json!({"output_tokens": output}));
    let start = json!({"input_tokens": 2_000, "output_tokens": 1});
    assert_eq!(
        stream_cost("claude-opus-5-5", &start, &deltas),
        usd("0.018240")
    );
}

#[test]
fn t8_06_input_grows_in_the_delta_when_a_server_tool_ran() {
    let start = json!({"input_tokens": 2_679, "output_tokens": 3});
    let delta = json!({"input_tokens": 10_682, "output_tokens": 510,
        "server_tool_use": {"web_search_requests": 1}});
    assert_eq!(
        stream_cost("claude-opus-5", &start, &[delta]),
        usd("0.076160")
    );
}

#[test]
fn t8_07_output_of_message_start_is_a_placeholder() {
    let start = json!({"input_tokens": 30_000, "output_tokens": 3});
    let delta = json!({"output_tokens": 6_200});
    assert_eq!(
        stream_cost("claude-opus-5-5", &start, &[delta]),
        usd("0.244000")
    );
}

#[test]
fn t8_08_a_fable_read_costs_a_fortieth() {
    let usage = json!({"input_tokens": 500, "output_tokens": 1_000,
        "cache_read_input_tokens": 400_000});
    assert_eq!(cost("claude-fable-5-2", &usage), usd("0.124000"));
}

#[test]
fn t8_09_a_read_of_the_5_5_models_costs_a_twentieth() {
    let usage = json!({"input_tokens": 500, "output_tokens": 1_000,
        "cache_read_input_tokens": 150_000});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.052000"));
    assert_eq!(cost("claude-sonnet-5-5", &usage), usd("0.026000"));
}

#[test]
fn t8_10_the_haiku_band_counts_the_whole_prompt_and_is_strict() {
    let usage = |input: u64| {
        json!({"input_tokens": input, "output_tokens": 2_000,
            "cache_creation_input_tokens": 6_000, "cache_read_input_tokens": 90_000})
    };
    assert_eq!(cost("claude-haiku-5-5", &usage(4_000)), usd("0.003050"));
    assert_eq!(cost("claude-haiku-5-5", &usage(4_001)), usd("0.0152505"));
}

#[test]
fn t8_11_the_haiku_band_is_chosen_for_each_iteration() {
    let one = json!({"type": "message", "model": null, "input_tokens": 70_000,
        "output_tokens": 500, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
    let usage = json!({"input_tokens": 140_000, "output_tokens": 1_000,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "iterations": [one, one]});
    assert_eq!(cost("claude-haiku-5-5", &usage), usd("0.014500"));
}

#[test]
fn t8_12_compaction_is_not_in_the_top_level() {
    let usage = json!({"input_tokens": 23_000, "output_tokens": 1_000, "iterations": [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000}]});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.902000"));
}

#[test]
fn t8_13_an_advisor_is_paid_at_its_own_rates() {
    let usage = json!({"input_tokens": 1_760, "output_tokens": 531,
        "cache_read_input_tokens": 412, "iterations": [
            {"type": "message", "model": "claude-sonnet-5-5", "input_tokens": 1_760,
                "output_tokens": 531, "cache_read_input_tokens": 412},
            {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 823,
                "output_tokens": 1_612}]});
    assert_eq!(cost("claude-sonnet-5-5", &usage), usd("0.0532862"));
}

#[test]
fn t8_14_a_decline_without_output_is_free_and_one_with_output_is_paid_at_its_own_rates() {
    let free = json!({"input_tokens": 412, "output_tokens": 264, "iterations": [
        {"type": "message", "model": "claude-fable-5", "input_tokens": 535, "output_tokens": 0},
        {"type": "fallback_message", "model": "claude-opus-4-8", "input_tokens": 412,
            "output_tokens": 264}]});
    assert_eq!(cost("claude-opus-4-8", &free), usd("0.008660"));
    let paid = json!({"input_tokens": 6_200, "output_tokens": 900, "iterations": [
        {"type": "message", "model": "claude-fable-5-2", "input_tokens": 5_000,
            "output_tokens": 1_200},
        {"type": "fallback_message", "model": "claude-opus-5-5", "input_tokens": 6_200,
            "output_tokens": 900}]});
    assert_eq!(cost("claude-opus-5-5", &paid), usd("0.130800"));
}

#[test]
fn t8_15_a_refusal_is_free_only_before_output() {
    let usage = |output: u64| json!({"input_tokens": 20_000, "output_tokens": output});
    assert_eq!(
        stopped_cost("claude-fable-5-2", "refusal", &usage(0)),
        usd("0")
    );
    assert_eq!(
        stopped_cost("claude-fable-5-2", "refusal", &usage(350)),
        usd("0.174000")
    );
}

#[test]
fn t8_16_us_only_inference_multiplies_tokens_but_not_fees() {
    let usage = json!({"input_tokens": 50_000, "output_tokens": 2_000,
        "cache_read_input_tokens": 100_000, "inference_geo": "us",
        "server_tool_use": {"web_search_requests": 2}});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.306000"));
}

#[test]
fn t8_17_fast_mode_is_billed_by_the_speed_served() {
    let usage = |geo: &str| {
        json!({"input_tokens": 10_000, "output_tokens": 3_000,
            "cache_read_input_tokens": 60_000, "speed": "fast", "inference_geo": geo})
    };
    assert_eq!(cost("claude-opus-5-5", &usage("global")), usd("0.224000"));
    assert_eq!(cost("claude-opus-5-5", &usage("us")), usd("0.246400"));
}

#[test]
fn t8_18_a_standard_answer_to_a_fast_request_costs_the_standard_price() {
    let usage = json!({"input_tokens": 10_000, "output_tokens": 3_000, "speed": "standard"});
    assert_eq!(cost("claude-opus-4-6", &usage), usd("0.125000"));
}

#[test]
fn t8_19_a_fast_cache_read_doubles_too() {
    let usage = json!({"input_tokens": 10_000, "output_tokens": 1_000,
        "cache_read_input_tokens": 200_000, "speed": "fast"});
    assert_eq!(cost("claude-fable-5-2", &usage), usd("0.320000"));
}

#[test]
fn t8_20_thinking_is_inside_the_output() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 4_096,
        "output_tokens_details": {"thinking_tokens": 3_500}});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.085920"));
}

#[test]
fn t8_21_a_search_has_a_fee_and_a_fetch_has_none() {
    let usage = json!({"input_tokens": 8_000, "output_tokens": 600,
        "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 2}});
    assert_eq!(cost("claude-sonnet-5-5", &usage), usd("0.052000"));
}

#[test]
fn t8_22_haiku_3_has_its_own_cache_prices() {
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "cache_creation_input_tokens": 1_000_000, "cache_read_input_tokens": 1_000_000});
    assert_eq!(cost("claude-3-haiku-20240307", &usage), usd("0.330000"));
}

#[test]
fn t8_23_ids_match_exactly_never_by_prefix() {
    let read = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 200_000});
    assert_eq!(cost("claude-fable-5-1", &read), usd("0.050000"));
    let usage = json!({"input_tokens": 100_000, "output_tokens": 4_000});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.480000"));
}

#[test]
fn t8_24_sonnet_5_never_rose() {
    let usage = json!({"input_tokens": 100_000, "output_tokens": 5_000});
    assert_eq!(cost("claude-sonnet-5", &usage), usd("0.250000"));
}

#[test]
fn t8_25_long_prompts_of_4_6_cost_no_more() {
    let usage = json!({"input_tokens": 350_000, "output_tokens": 2_000});
    assert_eq!(cost("claude-sonnet-4-6", &usage), usd("1.080000"));
}

#[test]
fn t8_26_warming_the_cache_without_output_pays_its_writes() {
    let usage = json!({"input_tokens": 12, "output_tokens": 0,
        "cache_creation_input_tokens": 40_000, "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40_000}});
    assert_eq!(
        stopped_cost("claude-opus-5-5", "max_tokens", &usage),
        usd("0.320048")
    );
}

/// The example is with geography ×1; the hold itself takes ×1.1, as a workspace may be set to
/// US-only inference without the request saying so.
#[test]
fn t8_27_a_hold_for_unseen_content_covers_the_window() {
    let book = book();
    let row = book.row_at("claude-opus-5-5", today()).unwrap();
    let rates = book.hold_rates("claude-opus-5-5", today()).unwrap();
    let window = rates.context_window();
    assert_eq!(window, 1_000_000);
    let sum = |input: Rate, output: Rate| {
        window * input.pico_per_token() + 4_096 * output.pico_per_token()
    };
    assert_eq!(sum(row.base.input, row.base.output), usd("4.081920"));
    assert_eq!(sum(row.base.write_1h, row.base.output), usd("8.081920"));
    let hold = |writes| sum(rates.input(window, writes), rates.output(window));
    assert_eq!(hold(WriteBound::None), usd("4.490112"));
    assert_eq!(hold(WriteBound::OneHour), usd("8.890112"));
}

#[test]
fn t8_28_a_failed_stream_and_its_repetition_are_two_bills() {
    let cut = |output: u64| {
        let start = json!({"input_tokens": 30_000, "output_tokens": 1});
        let mut events = answer_events(
            "claude-opus-5-5",
            &start,
            &[json!({"output_tokens": output})],
        );
        events.pop();
        let observed = read(BodyKind::EventStream, &stream(&events));
        assert!(!observed.finished);
        bill_of(&observed, "claude-opus-5-5", today()).total.pico()
    };
    let again = cost(
        "claude-opus-5-5",
        &json!({"input_tokens": 30_000, "output_tokens": 1_480}),
    );
    assert_eq!(cut(1_500) + again, usd("0.299600"));
}

#[test]
fn t8_29_a_batch_halves_token_prices() {
    let usage = json!({"input_tokens": 10_000, "output_tokens": 2_000, "service_tier": "batch"});
    assert_eq!(cost("claude-opus-5-5", &usage), usd("0.040000"));
}

#[test]
fn t8_30_one_token_of_the_cheapest_model_is_exact_and_a_million_do_not_drift() {
    let one = |geo: &str, tier: &str| {
        cost(
            "claude-haiku-5-5",
            &json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1,
                "inference_geo": geo, "service_tier": tier}),
        )
    };
    assert_eq!(one("global", "standard"), 125_000);
    assert_eq!(one("us", "standard"), 137_500);
    assert_eq!(one("global", "batch"), 62_500);
    assert_eq!(one("us", "batch"), 68_750);
    let million: u64 = std::iter::repeat_n(one("global", "standard"), 1_000_000).sum();
    assert_eq!(million, usd("0.125"));
}

/// (33) and (34) of the same list: an unknown kind of iteration is charged at the dearest known
/// rates and told; null counters are nothing.
#[test]
fn t8_33_an_unknown_iteration_is_charged_at_the_dearest_rate() {
    let body = message(
        "claude-sonnet-5",
        "end_turn",
        &json!({"input_tokens": 1_000, "output_tokens": 10, "cache_creation_input_tokens": null,
            "cache_creation": null, "server_tool_use": null, "iterations": [
                {"type": "message", "input_tokens": 1_000, "output_tokens": 10},
                {"type": "oracle", "input_tokens": 100, "output_tokens": 10}]}),
    );
    let observed = read(BodyKind::Json, &body);
    let bill = bill_of(&observed, "claude-sonnet-5", today());
    // 1,000 × 2 + 10 × 10, and the dearest served today: 100 × 10 + 10 × 50.
    assert_eq!(bill.total.pico(), usd("0.0036"));
    assert_eq!(
        bill.flags,
        [labproxy::pricing::Flag::UnknownIteration("oracle".into())]
    );
}

/// `quote` and the proxy call the same function; this pins its public form.
#[test]
fn the_bill_is_one_public_function() {
    let _: fn(&labproxy::pricing::PriceBook, _, &labproxy::pricing::ChargeTerms<'_>) -> _ = bill;
}
