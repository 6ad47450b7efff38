//! The form in which an entry stands in the ledger.
//!
//! Every request makes a `held` and mostly a `settled`, so these two have a short form, a third of
//! their JSON: each byte is hashed, written to the log and synced before a request may be sent, and
//! moved into the database later. Everything else is JSON, and so are these two where the short form
//! has no words for them. The first byte tells which: JSON begins with a brace.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ChargedLine, Entry, LedgerError, RequestEnd, RequestFacts};
use crate::id::RequestId;
use crate::money::PicoUsd;

/// Room for most short entries, so that they are not moved while they are written.
const ROOM: usize = 256;

/// Texts that have a number in the short form: their place here, which never changes. New ones come
/// last.
const WORDS: [&str; 16] = [
    "input",
    "output",
    "cache_write_5m",
    "cache_write_1h",
    "cache_read",
    "web_search",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cache_creation",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
    "service_tier",
    "inference_geo",
    "server_tool_use",
];

/// The bytes of an entry.
pub(super) fn write(entry: &Entry) -> Result<Vec<u8>, LedgerError> {
    let written =
        short(entry).and_then(|short| postcard::to_extend(&short, Vec::with_capacity(ROOM)).ok());
    written.map_or_else(
        || serde_json::to_vec(entry).map_err(LedgerError::Encode),
        Ok,
    )
}

/// Reads an entry back.
///
/// # Errors
/// What is wrong with the bytes.
pub(super) fn read(body: &[u8]) -> Result<Entry, String> {
    if body.starts_with(b"{") {
        return serde_json::from_slice(body).map_err(|error| error.to_string());
    }
    let (short, rest): (Short<'_>, _) =
        postcard::take_from_bytes(body).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err("bytes follow it".to_owned());
    }
    long(short)
}

#[derive(Debug, Serialize, Deserialize)]
enum Short<'a> {
    #[serde(borrow)]
    Held(Held<'a>),
    #[serde(borrow)]
    Settled(Settled<'a>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Held<'a> {
    request: RequestId,
    at_second: i64,
    at_nanosecond: i32,
    stream: Option<bool>,
    model: Option<&'a str>,
    max_tokens_asked: Option<u64>,
    arrival: u64,
    max_tokens_sent: u64,
    amount: PicoUsd,
}

#[derive(Debug, Serialize, Deserialize)]
struct Settled<'a> {
    request: RequestId,
    charged: PicoUsd,
    free: bool,
    #[serde(borrow)]
    lines: Vec<Line<'a>>,
    status: Option<u16>,
    served_model: Option<&'a str>,
    #[serde(borrow)]
    usage: Option<Vec<(Word<'a>, Member<'a>)>>,
    upstream_request_id: Option<&'a str>,
    ttfb_ms: Option<u64>,
    duration_ms: u64,
    client_gone: bool,
    stop_reason: Option<&'a str>,
    note: Option<&'a str>,
}

/// A line of a bill; what it comes to is what its other figures multiply to.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    /// `None`: the served one.
    model: Option<&'a str>,
    #[serde(borrow)]
    item: Word<'a>,
    count: u64,
    pico_per_unit: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum Word<'a> {
    Known(u8),
    Other(&'a str),
}

/// A member of a usage object. Groups have one level, so that reading needs no recursion.
#[derive(Debug, Serialize, Deserialize)]
enum Member<'a> {
    #[serde(borrow)]
    Single(Leaf<'a>),
    Group(Vec<(Word<'a>, Leaf<'a>)>),
}

#[derive(Debug, Serialize, Deserialize)]
enum Leaf<'a> {
    Count(u64),
    Text(&'a str),
    Null,
    /// Anything else, as JSON.
    Json(Cow<'a, str>),
}

/// The short form of an entry that has one.
fn short(entry: &Entry) -> Option<Short<'_>> {
    match entry {
        Entry::Held {
            request,
            facts,
            arrival,
            max_tokens_sent,
            amount,
        } => Some(Short::Held(Held {
            request: request.clone(),
            at_second: facts.at.as_second(),
            at_nanosecond: facts.at.subsec_nanosecond(),
            stream: facts.stream,
            model: facts.model.as_deref(),
            max_tokens_asked: facts.max_tokens_asked,
            arrival: *arrival,
            max_tokens_sent: *max_tokens_sent,
            amount: *amount,
        })),
        Entry::Settled {
            request,
            charged,
            free,
            lines,
            end,
            note,
        } => Some(Short::Settled(Settled {
            request: request.clone(),
            charged: *charged,
            free: *free,
            lines: lines
                .iter()
                .map(|line| Line::of(line, end.served_model.as_deref()))
                .collect::<Option<_>>()?,
            status: end.status,
            served_model: end.served_model.as_deref(),
            usage: end.usage.as_ref().map(members),
            upstream_request_id: end.upstream_request_id.as_deref(),
            ttfb_ms: end.ttfb_ms,
            duration_ms: end.duration_ms,
            client_gone: end.client_gone,
            stop_reason: end.stop_reason.as_deref(),
            note: note.as_deref(),
        })),
        _ => None,
    }
}

/// The entry of a short form.
fn long(short: Short<'_>) -> Result<Entry, String> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(match short {
        Short::Held(held) => Entry::Held {
            request: held.request,
            facts: RequestFacts {
                at: Timestamp::new(held.at_second, held.at_nanosecond)
                    .map_err(|error| error.to_string())?,
                stream: held.stream,
                model: owned(held.model),
                max_tokens_asked: held.max_tokens_asked,
            },
            arrival: held.arrival,
            max_tokens_sent: held.max_tokens_sent,
            amount: held.amount,
        },
        Short::Settled(settled) => {
            let lines = settled.lines.into_iter();
            let usage = settled.usage.map(object).transpose()?;
            Entry::Settled {
                request: settled.request,
                charged: settled.charged,
                free: settled.free,
                lines: lines
                    .map(|line| line.charged(settled.served_model))
                    .collect::<Result<_, _>>()?,
                end: RequestEnd {
                    status: settled.status,
                    served_model: owned(settled.served_model),
                    usage,
                    upstream_request_id: owned(settled.upstream_request_id),
                    ttfb_ms: settled.ttfb_ms,
                    duration_ms: settled.duration_ms,
                    client_gone: settled.client_gone,
                    stop_reason: owned(settled.stop_reason),
                },
                note: owned(settled.note),
            }
        }
    })
}

impl<'a> Line<'a> {
    /// `None` when its figures do not multiply to its amount.
    fn of(line: &'a ChargedLine, served: Option<&str>) -> Option<Self> {
        let amount = line.count.checked_mul(line.pico_per_unit);
        (amount == Some(line.pico_usd.pico())).then(|| Self {
            model: (served != Some(&line.model)).then_some(&line.model),
            item: Word::of(&line.item),
            count: line.count,
            pico_per_unit: line.pico_per_unit,
        })
    }

    fn charged(self, served: Option<&str>) -> Result<ChargedLine, String> {
        let model = self.model.or(served).ok_or("a line has no model")?;
        let amount = self.count.checked_mul(self.pico_per_unit);
        let amount = amount.ok_or("a line's amount is no amount")?;
        Ok(ChargedLine {
            model: model.to_owned(),
            item: Cow::Owned(self.item.text()?.to_owned()),
            count: self.count,
            pico_per_unit: self.pico_per_unit,
            pico_usd: PicoUsd::from_pico(amount),
        })
    }
}

impl<'a> Word<'a> {
    fn of(text: &'a str) -> Self {
        let place = WORDS.iter().position(|word| *word == text);
        match place.and_then(|place| u8::try_from(place).ok()) {
            Some(number) => Self::Known(number),
            None => Self::Other(text),
        }
    }

    fn text(&self) -> Result<&'a str, String> {
        match self {
            Self::Known(number) => WORDS
                .get(usize::from(*number))
                .copied()
                .ok_or_else(|| format!("there is no word {number}")),
            Self::Other(text) => Ok(text),
        }
    }
}

fn members(usage: &Map<String, Value>) -> Vec<(Word<'_>, Member<'_>)> {
    let members = usage.iter();
    members
        .map(|(key, value)| (Word::of(key), Member::of(value)))
        .collect()
}

fn object(members: Vec<(Word<'_>, Member<'_>)>) -> Result<Map<String, Value>, String> {
    let mut usage = Map::with_capacity(members.len());
    for (key, member) in members {
        let value = match member {
            Member::Single(leaf) => leaf.value()?,
            Member::Group(leaves) => leaves
                .into_iter()
                .map(|(key, leaf)| Ok((key.text()?.to_owned(), leaf.value()?)))
                .collect::<Result<Map<_, _>, String>>()?
                .into(),
        };
        usage.insert(key.text()?.to_owned(), value);
    }
    Ok(usage)
}

impl<'a> Member<'a> {
    fn of(value: &'a Value) -> Self {
        let Value::Object(group) = value else {
            return Self::Single(Leaf::of(value));
        };
        let leaves = group.iter();
        Self::Group(
            leaves
                .map(|(key, leaf)| (Word::of(key), Leaf::of(leaf)))
                .collect(),
        )
    }
}

impl<'a> Leaf<'a> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::String(text) => Self::Text(text),
            other => match other.as_u64() {
                Some(count) => Self::Count(count),
                None => Self::Json(Cow::Owned(other.to_string())),
            },
        }
    }

    fn value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Text(text) => text.into(),
            Self::Count(count) => count.into(),
            Self::Json(text) => serde_json::from_str(&text).map_err(|error| error.to_string())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn settled(usage: &Value, lines: Vec<ChargedLine>) -> Entry {
        Entry::Settled {
            request: RequestId::random().unwrap(),
            charged: PicoUsd::from_pico(2_085_000_000),
            free: false,
            lines,
            end: RequestEnd {
                status: Some(200),
                served_model: Some("claude-opus-5-5".into()),
                usage: usage.as_object().cloned(),
                upstream_request_id: Some("req_011CSHoEeqs5C35K2UUqR7Fy".into()),
                ttfb_ms: Some(7),
                duration_ms: 9,
                client_gone: false,
                stop_reason: Some("end_turn".into()),
            },
            note: None,
        }
    }

    fn line(model: &str, item: &'static str, count: u64, pico_per_unit: u64) -> ChargedLine {
        ChargedLine {
            model: model.into(),
            item: item.into(),
            count,
            pico_per_unit,
            pico_usd: PicoUsd::from_pico(count.saturating_mul(pico_per_unit)),
        }
    }

    fn held(at: Timestamp, number: u64) -> Entry {
        Entry::Held {
            request: RequestId::random().unwrap(),
            facts: RequestFacts {
                at,
                stream: Some(true),
                model: Some("claude-opus-5-5".into()),
                max_tokens_asked: Some(number),
            },
            arrival: number,
            max_tokens_sent: number,
            amount: PicoUsd::from_pico(number),
        }
    }

    /// What every request writes stays short, whatever is added to it.
    #[test]
    fn the_entries_of_a_request_are_short() {
        let usage = json!({"input_tokens": 212, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "cache_creation": {"ephemeral_5m_input_tokens": 0,
            "ephemeral_1h_input_tokens": 0}, "output_tokens": 41, "service_tier": "standard"});
        let lines = vec![
            line("claude-opus-5-5", "input", 212, 5_000_000),
            line("claude-opus-5-5", "output", 41, 25_000_000),
        ];
        let held = held("2026-12-01T12:00:00.123456789Z".parse().unwrap(), 4_096);
        for (entry, most) in [(held, 90), (settled(&usage, lines), 200)] {
            let body = write(&entry).unwrap();
            assert!(body.len() <= most, "{} bytes: {body:?}", body.len());
            assert_eq!(read(&body).unwrap(), entry);
        }
    }

    /// What the short form cannot say is JSON.
    #[test]
    fn an_amount_that_is_no_product_is_written_out() {
        let mut odd = line("other", "input", 3, 5);
        odd.pico_usd = PicoUsd::from_pico(16);
        for lines in [vec![odd], vec![line("other", "input", u64::MAX, 2)]] {
            let entry = settled(&Value::Null, lines);
            let body = write(&entry).unwrap();
            assert!(body.starts_with(b"{"));
            assert_eq!(read(&body).unwrap(), entry);
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        let key = prop_oneof![
            prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
            ".{0,9}"
        ];
        leaf.prop_recursive(4, 24, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back(
            usage in any_value(), count in any::<u64>(), price in any::<u64>(), own in any::<bool>(),
            second in -377_705_116_800_i64..=253_402_207_199, number in any::<u64>()
        ) {
            let model = if own { "claude-opus-5-5" } else { "another" };
            let lines = vec![line(model, "output", count, price), line(model, "odd", 1, 1)];
            let at = Timestamp::new(second, 999_999_999).unwrap();
            for entry in [settled(&usage, lines), held(at, number)] {
                prop_assert_eq!(read(&write(&entry).unwrap()).unwrap(), entry);
            }
        }

        #[test]
        fn bytes_that_are_no_entry_are_refused_and_do_no_harm(body in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(entry) = read(&body) {
                prop_assert_eq!(read(&write(&entry).unwrap()).unwrap(), entry);
            }
        }
    }
}
