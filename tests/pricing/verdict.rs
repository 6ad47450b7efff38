//! What a request is charged for the way it ended.

use labproxy::money::PicoUsd;
use labproxy::usage::{
    Admission, BodyEnd, BodyKind, CloseReason, Observed, Settlement, Verdict, decide,
};
use serde_json::{Value, json};

use crate::price::{answer_events, book, message, read, stream, today, usd};

const MODEL: &str = "claude-opus-5-5";

fn admission() -> Admission {
    Admission {
        requested_model: MODEL.to_owned(),
        max_tokens: 4_096,
        thinking_budget: None,
        hold: PicoUsd::from_pico(usd("1")),
        one_hour_asked: false,
        known_usage: Vec::new(),
        prompt_bound: None,
        resampled: false,
        soft: false,
    }
}

fn judge(admission: &Admission, status: u16, end: BodyEnd, observed: &Observed) -> Verdict {
    decide(book(), admission, Some(status), end, observed, today())
}

fn judge_json(admission: &Admission, usage: &Value) -> Verdict {
    let observed = read(BodyKind::Json, &message(MODEL, "end_turn", usage));
    judge(admission, 200, BodyEnd::Complete, &observed)
}

fn charged(verdict: &Verdict) -> u64 {
    match &verdict.settlement {
        Settlement::Charge(bill) => bill.total.pico(),
        other => panic!("not charged: {other:?}"),
    }
}

fn is_kept(verdict: &Verdict) -> bool {
    matches!(verdict.settlement, Settlement::Keep(_))
}

fn whole_events() -> Vec<Value> {
    answer_events(
        MODEL,
        &json!({"input_tokens": 1_000, "output_tokens": 1}),
        &[json!({"output_tokens": 500})],
    )
}

fn observe(events: &[Value]) -> Observed {
    read(BodyKind::EventStream, &stream(events))
}

#[test]
fn a_whole_answer_is_charged_by_its_bill() {
    let verdict = judge(
        &admission(),
        200,
        BodyEnd::Complete,
        &observe(&whole_events()),
    );
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 500 * 20_000_000);
    assert_eq!((verdict.close, verdict.note), (None, None));
    // The last event is there: how the connection ended no longer matters.
    let verdict = judge(&admission(), 200, BodyEnd::Cut, &observe(&whole_events()));
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 500 * 20_000_000);
}

#[test]
fn only_a_complete_provider_error_is_free() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}});
    let observed = read(BodyKind::Json, error.to_string().as_bytes());
    for status in [400, 401, 404, 413, 429, 500, 529] {
        let verdict = judge(&admission(), status, BodyEnd::Complete, &observed);
        assert_eq!(verdict.settlement, Settlement::Free, "{status}");
        assert!(is_kept(&judge(
            &admission(),
            status,
            BodyEnd::Cut,
            &observed
        )));
    }
    assert!(is_kept(&judge(
        &admission(),
        200,
        BodyEnd::Complete,
        &observed
    )));
}

#[test]
fn t11_anything_else_after_sending_keeps_the_hold() {
    let html = read(BodyKind::Json, b"<html>502 Bad Gateway</html>");
    let json = read(BodyKind::Json, b"{\"message\":\"upstream connect error\"}");
    let half = read(
        BodyKind::Json,
        b"{\"type\":\"message\",\"usage\":{\"input_tokens\":5",
    );
    let nothing = Observed::default();
    let mut started = whole_events();
    started.truncate(4);
    let started = observe(&started);
    for (status, end, observed) in [
        (502, BodyEnd::Complete, &html),
        (502, BodyEnd::Complete, &json),
        (529, BodyEnd::Complete, &nothing),
        (200, BodyEnd::Complete, &html),
        (200, BodyEnd::Complete, &json),
        (200, BodyEnd::Complete, &half),
        (200, BodyEnd::Complete, &nothing),
        (200, BodyEnd::Cut, &started),
        (200, BodyEnd::TimedOut, &started),
        (302, BodyEnd::Complete, &nothing),
        (204, BodyEnd::Complete, &nothing),
    ] {
        let verdict = judge(&admission(), status, end, observed);
        assert!(is_kept(&verdict), "{status} {end:?}: {verdict:?}");
        assert_eq!(verdict.close, None);
    }
    let none = decide(
        book(),
        &admission(),
        None,
        BodyEnd::NoResponse,
        &nothing,
        today(),
    );
    assert!(is_kept(&none));
    let head_lost = judge(
        &admission(),
        200,
        BodyEnd::NoResponse,
        &observe(&whole_events()),
    );
    assert!(is_kept(&head_lost));
}

/// D03, D07: a stream that ends early without saying so is charged by what was seen at least.
#[test]
fn d07_a_clean_end_without_the_last_event_is_charged_and_told() {
    let mut events = whole_events();
    events.truncate(4);
    let verdict = judge(&admission(), 200, BodyEnd::Complete, &observe(&events));
    // Hello, 世界 has 13 bytes, so at most 13 tokens.
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 13 * 20_000_000);
    assert_eq!(
        verdict.note.as_deref(),
        Some("the stream ended without its last event")
    );
}

/// What the copy could not read was not counted, so a stream that ends early is charged for all that
/// it may have held; a whole one by its usage as ever.
#[test]
fn an_early_end_of_a_stream_that_could_not_be_read_is_charged_at_most() {
    let judged = |count: usize| {
        let mut events = whole_events();
        events.truncate(count);
        let mut observed = observe(&events);
        observed.damaged = true;
        charged(&judge(&admission(), 200, BodyEnd::Complete, &observed))
    };
    let max_tokens = admission().max_tokens;
    assert_eq!(judged(4), 1_000 * 4_000_000 + max_tokens * 20_000_000);
    assert_eq!(judged(usize::MAX), 1_000 * 4_000_000 + 500 * 20_000_000);
}

/// An event that cannot be read may hold the last count: the one before it is not final. A later count makes it whole again.
#[test]
fn t24_an_unread_event_after_the_last_count_is_charged_at_most() {
    let count = |output: u64| {
        format!("data: {{\"type\":\"message_delta\",\"usage\":{{\"output_tokens\":{output}}}}}\n\n")
    };
    let stop = "data: {\"type\":\"message_stop\"}\n\n";
    let start = String::from_utf8(stream(&whole_events()[..1])).unwrap();
    let broken = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":500,}}\n\n";
    let long = format!(
        "data: {{\"type\":\"message_delta\",\"pad\":\"{}\",\"usage\":{{\"output_tokens\":500}}}}\n\n",
        "x".repeat(1 << 20)
    );
    let lines = format!("{}{}", "data: \n".repeat(1_100), count(500));
    for unread in [broken, &long, &lines] {
        let body = format!("{start}{}{unread}{stop}", count(5));
        let observed = read(BodyKind::EventStream, body.as_bytes());
        let verdict = judge(&admission(), 200, BodyEnd::Complete, &observed);
        assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 4_096 * 20_000_000);
        let body = format!("{start}{unread}{}{stop}", count(501));
        let observed = read(BodyKind::EventStream, body.as_bytes());
        let verdict = judge(&admission(), 200, BodyEnd::Complete, &observed);
        assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 501 * 20_000_000);
    }
}

/// A stream that breaks off between two samplings shows the input of the first and no fee at all,
/// so it bounds nothing.
#[test]
fn a_broken_stream_that_may_have_sampled_twice_keeps_the_hold() {
    let mut events = whole_events();
    events.truncate(4);
    let searching = Admission {
        resampled: true,
        ..admission()
    };
    for error in [false, true] {
        let mut events = events.clone();
        if error {
            events.push(json!({"type": "error", "error": {"type": "api_error", "message": "x"}}));
        }
        let observed = observe(&events);
        assert!(is_kept(&judge(
            &searching,
            200,
            BodyEnd::Complete,
            &observed
        )));
    }
    let whole = judge(
        &searching,
        200,
        BodyEnd::Complete,
        &observe(&whole_events()),
    );
    assert_eq!(charged(&whole), 1_000 * 4_000_000 + 500 * 20_000_000);
}

#[test]
fn d03_the_last_reported_output_counts_when_it_is_larger_than_what_was_seen() {
    let mut events = whole_events();
    events.pop();
    let verdict = judge(&admission(), 200, BodyEnd::Complete, &observe(&events));
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 500 * 20_000_000);
}

#[test]
fn d06_an_error_event_charges_the_input_and_what_was_received() {
    let mut events = whole_events();
    events.truncate(4);
    events.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}));
    for end in [BodyEnd::Complete, BodyEnd::Cut] {
        let verdict = judge(&admission(), 200, end, &observe(&events));
        assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 13 * 20_000_000);
        assert!(verdict.note.unwrap().contains("overloaded_error"));
    }
}

#[test]
fn an_error_event_before_any_usage_keeps_the_hold() {
    let events = [json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}})];
    assert!(is_kept(&judge(
        &admission(),
        200,
        BodyEnd::Complete,
        &observe(&events)
    )));
}

#[test]
fn unseen_thinking_is_charged_up_to_its_budget_and_max_tokens() {
    let mut events = whole_events();
    events.truncate(4);
    events.push(json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "0123456789"}}));
    let observed = observe(&events);
    let output = |budget: Option<u64>, max_tokens: u64| {
        let admission = Admission {
            thinking_budget: budget,
            max_tokens,
            ..admission()
        };
        let verdict = judge(&admission, 200, BodyEnd::Complete, &observed);
        (charged(&verdict) - 1_000 * 4_000_000) / 20_000_000
    };
    assert_eq!(
        output(Some(2_000), 4_096),
        13 + 2_000,
        "the budget covers what was shown"
    );
    assert_eq!(
        output(Some(5), 4_096),
        13 + 10,
        "more was shown than asked for"
    );
    assert_eq!(output(Some(2_000), 1_500), 1_500);
    assert_eq!(
        output(None, 4_096),
        4_096,
        "thinking without a budget has no bound"
    );
}

#[test]
fn a_refusal_before_output_is_free_of_charge() {
    let usage = json!({"input_tokens": 20_000, "output_tokens": 0});
    let observed = read(BodyKind::Json, &message(MODEL, "refusal", &usage));
    let verdict = judge(&admission(), 200, BodyEnd::Complete, &observed);
    assert_eq!(charged(&verdict), 0);
    let mut events = answer_events(MODEL, &usage, &[json!({"output_tokens": 0})]);
    let delta = events.len() - 2;
    events[delta]["delta"]["stop_reason"] = json!("refusal");
    assert_eq!(
        charged(&judge(
            &admission(),
            200,
            BodyEnd::Complete,
            &observe(&events)
        )),
        0
    );
}

#[test]
fn u03_a_served_model_without_a_price_keeps_the_hold_and_closes() {
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let observed = read(BodyKind::Json, &message("claude-next", "end_turn", &usage));
    let verdict = judge(&admission(), 200, BodyEnd::Complete, &observed);
    assert!(is_kept(&verdict));
    assert_eq!(
        verdict.close,
        Some(CloseReason::UnpricedServedModel("claude-next".to_owned()))
    );
}

#[test]
fn e16_an_unknown_counter_charges_the_hold_at_least_and_names_the_setting() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 1, "video_tokens": 5});
    let verdict = judge_json(&admission(), &usage);
    assert!(is_kept(&verdict), "the bill is below the hold");
    let Some(CloseReason::UnknownCounter(text)) = verdict.close else {
        panic!("not closed");
    };
    assert!(
        text.contains("gate.known_usage") && text.contains("video_tokens"),
        "{text}"
    );
    let small = Admission {
        hold: PicoUsd::from_pico(1),
        ..admission()
    };
    let verdict = judge_json(&small, &usage);
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 20_000_000);
    assert!(matches!(
        verdict.close,
        Some(CloseReason::UnknownCounter(_))
    ));
}

#[test]
fn t24_known_usage_reopens() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 1, "video_tokens": 5,
        "server_tool_use": {"code_execution_requests": 2}});
    let declared = Admission {
        known_usage: vec![
            "video_tokens".to_owned(),
            "server_tool_use.code_execution_requests".to_owned(),
        ],
        ..admission()
    };
    let verdict = judge_json(&declared, &usage);
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 20_000_000);
    assert_eq!(verdict.close, None);
}

#[test]
fn a_count_that_cannot_be_read_keeps_the_hold_and_closes() {
    for count in [json!(-5), json!(1.5), json!("9"), json!(1e30)] {
        let usage = json!({"input_tokens": 1, "output_tokens": count});
        let verdict = judge_json(&admission(), &usage);
        assert!(is_kept(&verdict), "{count}");
        if count.is_number() {
            assert!(verdict.close.is_some(), "{count}");
        }
    }
}

#[test]
fn a_usage_without_counters_is_no_usage() {
    for usage in [
        json!({}),
        json!({"output_tokens": 5}),
        json!({"input_tokens": 5}),
        Value::Null,
    ] {
        assert!(is_kept(&judge_json(&admission(), &usage)), "{usage}");
    }
}

#[test]
fn p02_a_fast_answer_is_charged_twice_and_closes() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 1, "speed": "fast"});
    let verdict = judge_json(&admission(), &usage);
    assert_eq!(charged(&verdict), 1_000 * 8_000_000 + 40_000_000);
    assert_eq!(verdict.close, Some(CloseReason::ServedFast));
}

#[test]
fn t09_one_pico_dollar_above_the_hold_closes_the_session_and_is_charged() {
    let usage = json!({"input_tokens": 1_000, "output_tokens": 0});
    let exact = PicoUsd::from_pico(1_000 * 4_000_000);
    let at = |hold: PicoUsd, soft: bool| {
        let admission = Admission {
            hold,
            soft,
            ..admission()
        };
        judge_json(&admission, &usage)
    };
    assert_eq!(at(exact, false).close, None);
    let below = PicoUsd::from_pico(exact.pico() - 1);
    let over = at(below, false);
    assert_eq!(charged(&over), exact.pico(), "an overrun is never clipped");
    assert!(matches!(over.close, Some(CloseReason::Overrun(_))));
    assert_eq!(at(below, true).close, None, "soft holds are expectations");
    assert_eq!(charged(&at(below, true)), exact.pico());
}

#[test]
fn t09_one_prompt_token_above_the_bound_closes_the_session() {
    let usage = json!({"input_tokens": 600, "output_tokens": 0, "cache_read_input_tokens": 300,
        "cache_creation_input_tokens": 101});
    let bounded = |bound: u64| Admission {
        prompt_bound: Some(bound),
        ..admission()
    };
    assert_eq!(judge_json(&bounded(1_001), &usage).close, None);
    let over = judge_json(&bounded(1_000), &usage);
    assert!(matches!(over.close, Some(CloseReason::Overrun(_))));
    assert_eq!(
        charged(&over),
        600 * 4_000_000 + 300 * 200_000 + 101 * 5_000_000
    );
}

#[test]
fn t22_an_unsplit_write_is_charged_at_one_hour_when_that_was_asked_for() {
    let asked = Admission {
        one_hour_asked: true,
        ..admission()
    };
    let write = |split: Value| {
        json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 1_000,
            "cache_creation": split})
    };
    let zeros = json!({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0});
    for split in [Value::Null, zeros] {
        let usage = write(split);
        assert_eq!(charged(&judge_json(&asked, &usage)), 1_000 * 8_000_000);
        assert_eq!(
            charged(&judge_json(&admission(), &usage)),
            1_000 * 5_000_000
        );
        let events = answer_events(MODEL, &usage, &[json!({"output_tokens": 0})]);
        let verdict = judge(&asked, 200, BodyEnd::Complete, &observe(&events));
        assert_eq!(charged(&verdict), 1_000 * 8_000_000);
    }
    let split = json!({"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 0});
    assert_eq!(
        charged(&judge_json(&asked, &write(split))),
        1_000 * 5_000_000
    );
}

#[test]
fn a_sum_beyond_counting_is_not_believed() {
    let usage = json!({"input_tokens": u64::MAX, "output_tokens": u64::MAX,
        "cache_read_input_tokens": u64::MAX});
    let verdict = judge_json(&admission(), &usage);
    assert!(is_kept(&verdict));
    assert!(matches!(verdict.close, Some(CloseReason::Overrun(_))));
}

/// A stream that lost its last counts to damage is not charged by the placeholder of its start.
#[test]
fn a_finished_stream_without_final_counts_is_estimated() {
    let mut events = whole_events();
    events.retain(|event| event["type"] != "message_delta");
    let verdict = judge(&admission(), 200, BodyEnd::Complete, &observe(&events));
    assert_eq!(charged(&verdict), 1_000 * 4_000_000 + 13 * 20_000_000);
    assert!(verdict.note.is_some());
}
