//! Properties over generated usage: exactness, order, and bounds.

use labproxy::money::{PicoUsd, Rate};
use labproxy::pricing::{ChargeTerms, PriceBook, WriteBound, bill};
use labproxy::usage::{BodyKind, UsageReader};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::price::{answer_events, book, message, read, stream, today};

/// Models with and without a band, fast rates and US-only inference.
const MODELS: [&str; 5] = [
    "claude-opus-5-5",
    "claude-haiku-5-5",
    "claude-haiku-4-5",
    "claude-sonnet-5",
    "claude-fable-5-2",
];

#[derive(Clone, Debug)]
struct Sample {
    model: usize,
    input: u64,
    output: u64,
    five_minutes: u64,
    one_hour: u64,
    read: u64,
    searches: u64,
    us: bool,
    batch: bool,
    one_hour_asked: bool,
}

impl Sample {
    fn model(&self) -> &'static str {
        MODELS[self.model]
    }

    fn usage(&self) -> Value {
        json!({
            "input_tokens": self.input, "output_tokens": self.output,
            "cache_creation_input_tokens": self.five_minutes + self.one_hour,
            "cache_read_input_tokens": self.read,
            "cache_creation": {"ephemeral_5m_input_tokens": self.five_minutes,
                "ephemeral_1h_input_tokens": self.one_hour},
            "server_tool_use": {"web_search_requests": self.searches},
            "inference_geo": if self.us { "us" } else { "global" },
            "service_tier": if self.batch { "batch" } else { "standard" },
        })
    }

    fn prompt(&self) -> u64 {
        self.input + self.five_minutes + self.one_hour + self.read
    }

    /// Twenty times the price, so that ×1.1 and ×½ stay whole numbers.
    fn price_times_twenty(&self, book: &PriceBook) -> u128 {
        let row = book.row_at(self.model(), today()).unwrap();
        let rates = row.rates_for(self.prompt());
        let tokens = [
            (self.input, rates.input),
            (self.output, rates.output),
            (self.five_minutes, rates.write_5m),
            (self.one_hour, rates.write_1h),
            (self.read, rates.read),
        ];
        let sum: u128 = tokens.iter().map(|(count, rate)| rate.times(*count)).sum();
        let geo = if self.us { 11 } else { 10 };
        let tier = if self.batch { 1 } else { 2 };
        let fees = u128::from(row.web_search.pico()) * u128::from(self.searches);
        sum * geo * tier + fees * 20
    }

    fn charged(&self, book: &PriceBook) -> u64 {
        let body = message(self.model(), "end_turn", &self.usage());
        let observed = read(BodyKind::Json, &body);
        let terms = ChargeTerms {
            requested_model: self.model(),
            served_model: observed.served_model.as_deref(),
            at: today(),
            one_hour_asked: self.one_hour_asked,
            refused: false,
            known_usage: &[],
        };
        let bill = bill(book, observed.usage.as_ref().unwrap(), &terms);
        let lines: u64 = bill.lines.iter().map(|line| line.pico_usd.pico()).sum();
        assert_eq!(lines, bill.total.pico(), "the lines add up");
        assert!(bill.flags.is_empty());
        bill.total.pico()
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    (
        0..MODELS.len(),
        prop_oneof![0..10_u64, 0..1_000_000_u64],
        0..200_000_u64,
        prop_oneof![Just(0_u64), 0..200_000_u64],
        prop_oneof![Just(0_u64), 0..200_000_u64],
        prop_oneof![99_990..100_010_u64, 0..1_000_000_u64],
        0..20_u64,
        any::<(bool, bool, bool)>(),
    )
        .prop_map(
            |(model, input, output, five_minutes, one_hour, read, searches, flags)| Sample {
                model,
                input,
                output,
                five_minutes,
                one_hour,
                read,
                searches,
                us: flags.0,
                batch: flags.1,
                one_hour_asked: flags.2,
            },
        )
}

/// Any JSON that a usage object could hold at one of its keys.
fn odd_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(|number| json!(number)),
        any::<i64>().prop_map(|number| json!(number)),
        (0..100_u64).prop_map(|number| json!(number)),
        "[a-z]{0,8}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((keys(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn keys() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "ephemeral_5m_input_tokens",
        "ephemeral_1h_input_tokens",
        "server_tool_use",
        "web_search_requests",
        "iterations",
        "type",
        "model",
        "speed",
        "inference_geo",
        "service_tier",
        "output_tokens_details",
        "new_tokens",
    ])
    .prop_map(str::to_owned)
}

fn usages() -> impl Strategy<Value = Value> {
    prop::collection::vec((keys(), odd_values()), 0..8)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

fn counters() -> impl Strategy<Value = Value> {
    (
        prop::option::of(0..1_000_u64),
        prop::option::of(0..1_000_u64),
        prop::option::of(0..1_000_u64),
        prop::option::of(0..5_u64),
    )
        .prop_map(|(input, output, read, searches)| {
            json!({"input_tokens": input, "output_tokens": output,
                "cache_read_input_tokens": read,
                "server_tool_use": {"web_search_requests": searches}})
        })
}

fn settled(deltas: &[Value]) -> (labproxy::usage::Counts, u64) {
    let body = stream(&answer_events("claude-opus-5", &json!({}), deltas));
    let usage = read(BodyKind::EventStream, &body).usage.unwrap();
    (usage.top, usage.web_searches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// The bill is the exact rational price: never rounded, never below.
    #[test]
    fn the_bill_is_exact(sample in samples()) {
        let book = book();
        prop_assert_eq!(
            u128::from(sample.charged(book)) * 20,
            sample.price_times_twenty(book)
        );
    }

    /// K07, as far as prices go: a hold for the prompt and output that were used covers them.
    #[test]
    fn k07_a_hold_covers_every_answer_within_its_bounds(sample in samples()) {
        let book = book();
        let rates = book.hold_rates(sample.model(), today()).unwrap();
        let writes = match (sample.one_hour, sample.five_minutes) {
            (0, 0) => WriteBound::None,
            (0, _) => WriteBound::FiveMinutes,
            _ => WriteBound::OneHour,
        };
        let bound = sample.prompt();
        let hold = rates.input(bound, writes).saturating_times(bound)
            .saturating_add(rates.output(bound).saturating_times(sample.output))
            .saturating_add(rates.web_search().saturating_mul(sample.searches));
        prop_assert!(hold >= PicoUsd::from_pico(sample.charged(book)));
    }

    /// P18: the band is part of the hold as soon as the bound can reach it.
    #[test]
    fn p18_a_larger_bound_never_lowers_a_hold(model in 0..MODELS.len(), low in 0..1_000_000_u64, high in 0..1_000_000_u64) {
        let book = book();
        let rates = book.hold_rates(MODELS[model], today()).unwrap();
        let (low, high) = (low.min(high), low.max(high));
        for writes in [WriteBound::None, WriteBound::FiveMinutes, WriteBound::OneHour] {
            prop_assert!(rates.input(low, writes) <= rates.input(high, writes));
        }
        prop_assert!(rates.output(low) <= rates.output(high));
        prop_assert!(rates.input(low, WriteBound::None) <= rates.input(low, WriteBound::OneHour));
    }

    /// Counters settle at the same values in any order and however often they are repeated.
    #[test]
    fn merging_is_commutative_and_idempotent(
        deltas in prop::collection::vec(counters(), 1..6),
        turn in 0..6_usize,
    ) {
        let expected = settled(&deltas);
        let mut other: Vec<Value> = deltas.clone();
        let turns = turn % other.len();
        other.rotate_left(turns);
        prop_assert_eq!(settled(&other), expected);
        other.reverse();
        other.extend(deltas);
        prop_assert_eq!(settled(&other), expected);
    }

    /// No bytes whatever make the reader panic, and their chunks do not matter.
    #[test]
    fn the_reader_takes_any_bytes(
        bytes in prop::collection::vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\n\r: {}[]\",\\data".to_vec()),
        ], 0..600),
        size in 1..50_usize,
    ) {
        for kind in [BodyKind::EventStream, BodyKind::Json] {
            let whole = read(kind, &bytes);
            let mut reader = UsageReader::new(kind);
            bytes.chunks(size).for_each(|chunk| reader.push(chunk));
            prop_assert_eq!(reader.finish(), whole);
        }
    }

    /// Any JSON in place of usage is read, priced and judged without a panic, and the bill's lines
    /// never add up to more than its total.
    #[test]
    fn any_usage_is_priced_without_panic(start in usages(), delta in usages()) {
        let body = stream(&answer_events("claude-opus-5-5", &start, &[delta]));
        let observed = read(BodyKind::EventStream, &body);
        let admission = labproxy::usage::Admission {
            requested_model: "claude-opus-5-5".to_owned(),
            max_tokens: 1_000,
            thinking_budget: None,
            hold: PicoUsd::from_pico(1_000_000_000),
            one_hour_asked: true,
            known_usage: Vec::new(),
            prompt_bound: Some(1_000),
            resampled: false,
            soft: false,
        };
        let verdict = labproxy::usage::decide(
            book(), &admission, Some(200), labproxy::usage::BodyEnd::Complete, &observed, today(),
        );
        if let labproxy::usage::Settlement::Charge(bill) = verdict.settlement {
            let lines: u128 = bill.lines.iter()
                .map(|line| Rate::from_pico_per_token(line.pico_per_unit).times(line.count))
                .sum();
            prop_assert_eq!(lines, u128::from(bill.total.pico()));
            prop_assert!(bill.total <= admission.hold || verdict.close.is_some());
        }
    }
}
