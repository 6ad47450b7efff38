//! The receipt: a fold over a session's entries, to the exact JSON.

use labproxy::cap::OnCap;
use labproxy::id::{RequestId, SessionId};
use labproxy::ledger::{
    ChargedLine, Entry, EntryHash, Head, Ledger, Recorded, RequestEnd, RequestFacts,
};
use labproxy::receipt::Receipt;
use labproxy::usage::CloseReason;

use crate::bench::{NOON, facts, held, open, opened, pico, read, settled};

pub(crate) const SESSION: &str = "ses_vonevonevonevonevonevonevo";

pub(crate) fn name(letter: char) -> RequestId {
    format!("req_{}", letter.to_string().repeat(26))
        .parse()
        .unwrap()
}

/// Entries of every kind.
pub(crate) fn every_kind() -> Vec<Entry> {
    let usage = serde_json::json!({"input_tokens": 10, "output_tokens": 4});
    let line = |item: &'static str, count, pico_per_unit| ChargedLine {
        model: "claude-opus-5".into(),
        item: item.into(),
        count,
        pico_per_unit,
        pico_usd: pico(count * pico_per_unit),
    };
    let end = RequestEnd {
        status: Some(200),
        served_model: Some("claude-opus-5".into()),
        usage: usage.as_object().cloned(),
        upstream_request_id: Some("req_011".into()),
        ttfb_ms: Some(12),
        duration_ms: 34,
        client_gone: true,
        stop_reason: Some("end_turn".into()),
    };
    let refused_by_upstream = RequestEnd {
        status: Some(502),
        duration_ms: 9,
        ..RequestEnd::default()
    };
    let mut entries = vec![
        Entry::Opened {
            cap: pico(2_000),
            on_cap: OnCap::Clamp,
            pricing_digest: "d1".into(),
            argv0: Some("claude".into()),
            host: None,
            version: "0.1.0".into(),
            resumed: false,
        },
        // Arrived second and was held first: the first waited.
        with_arrival(held(&name('b'), 500), 1),
        with_arrival(held(&name('a'), 600), 0),
        Entry::Settled {
            request: name('a'),
            charged: pico(27),
            free: false,
            lines: vec![
                line("input", 10, 1),
                line("output", 4, 4),
                line("web_search", 1, 1),
            ],
            end,
            note: Some("odd".into()),
        },
        Entry::Settled {
            request: name('b'),
            charged: pico(0),
            free: true,
            lines: Vec::new(),
            end: RequestEnd {
                status: Some(529),
                ..RequestEnd::default()
            },
            note: None,
        },
        with_arrival(held(&name('c'), 400), 2),
        Entry::Released {
            request: name('c'),
            reason: "the upstream cannot be reached".into(),
            end: Some(refused_by_upstream),
        },
        with_arrival(held(&name('d'), 700), 3),
        Entry::Kept {
            request: name('d'),
            charged: pico(700),
            reason: "reset".into(),
            end: None,
        },
        Entry::Corrected {
            request: name('d'),
            charged: pico(100),
            reason: "the provider's console shows it".into(),
        },
    ];
    entries.extend(the_end());
    entries
}

/// What comes after the correction.
fn the_end() -> Vec<Entry> {
    vec![
        Entry::ToppedUp {
            by: pico(1_000),
            cap: pico(3_000),
        },
        with_arrival(held(&name('e'), 900), 4),
        settled(&name('e'), 1_000),
        Entry::Overrun {
            request: name('e'),
            by: pico(100),
        },
        Entry::Closed {
            reason: CloseReason::Overrun("by 100".into()),
        },
        Entry::Refused {
            request: name('f'),
            facts: facts(),
            arrival: 5,
            status: 402,
            reason: "cap reached".into(),
            needed: Some(pico(5_000)),
        },
        Entry::RefusedMore {
            count: 7,
            needed: None,
        },
        Entry::Ended {
            end_reason: "overrun".into(),
            exit_code: Some(1),
            signal: None,
            free_requests: 3,
            workspace: None,
        },
    ]
}

fn with_arrival(entry: Entry, number: u64) -> Entry {
    match entry {
        Entry::Held {
            request,
            facts,
            max_tokens_sent,
            amount,
            ..
        } => Entry::Held {
            request,
            facts,
            arrival: number,
            max_tokens_sent,
            amount,
        },
        other => other,
    }
}

/// Entries with their places, as if the ledger had nothing else.
fn recorded(entries: Vec<Entry>) -> Vec<Recorded> {
    let hash: EntryHash = "0".repeat(64).parse().unwrap();
    (1..)
        .zip(entries)
        .map(|(seq, entry)| Recorded {
            head: Head { seq, hash },
            at: NOON.parse().unwrap(),
            entry,
        })
        .collect()
}

fn fold(entries: Vec<Entry>) -> Receipt {
    Receipt::fold(&session(), &recorded(entries)).unwrap()
}

fn session() -> SessionId {
    SESSION.parse().unwrap()
}

fn line(letter: char, rest: &str) -> String {
    format!(
        r#"{{"id":"{}","at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5",{rest}}}"#,
        name(letter)
    )
}

/// The JSON has the fields of the published form, in its order, with the ledger's place at the end.
#[test]
fn the_receipt_is_the_published_json() {
    let receipt = fold(every_kind());
    let none = r#""usage":null,"upstream_request_id":null,"ttfb_ms":null"#;
    let lines = [
        line(
            'a',
            r#""served_model":"claude-opus-5","status":200,"outcome":"settled","client_gone":true,"reason":"odd","held_pico_usd":600,"charged_pico_usd":27,"max_tokens":{"asked":1000,"sent":1000},"usage":{"input_tokens":10,"output_tokens":4},"upstream_request_id":"req_011","ttfb_ms":12,"duration_ms":34"#,
        ),
        line(
            'b',
            &format!(
                r#""served_model":null,"status":529,"outcome":"free","client_gone":false,"reason":null,"held_pico_usd":500,"charged_pico_usd":0,"max_tokens":{{"asked":1000,"sent":1000}},{none},"duration_ms":0"#
            ),
        ),
        line(
            'c',
            &format!(
                r#""served_model":null,"status":502,"outcome":"upstream_error","client_gone":false,"reason":"the upstream cannot be reached","held_pico_usd":400,"charged_pico_usd":0,"max_tokens":{{"asked":1000,"sent":1000}},{none},"duration_ms":9"#
            ),
        ),
        line(
            'd',
            &format!(
                r#""served_model":null,"status":null,"outcome":"kept","client_gone":false,"reason":"corrected: the provider's console shows it","held_pico_usd":700,"charged_pico_usd":100,"max_tokens":{{"asked":1000,"sent":1000}},{none},"duration_ms":null"#
            ),
        ),
        line(
            'e',
            &format!(
                r#""served_model":null,"status":null,"outcome":"settled","client_gone":false,"reason":null,"held_pico_usd":900,"charged_pico_usd":1000,"max_tokens":{{"asked":1000,"sent":1000}},{none},"duration_ms":0"#
            ),
        ),
        line(
            'f',
            &format!(
                r#""served_model":null,"status":402,"outcome":"refused","client_gone":false,"reason":"cap reached","held_pico_usd":0,"charged_pico_usd":0,"max_tokens":{{"asked":1000,"sent":null}},{none},"duration_ms":null"#
            ),
        ),
    ];
    let zero = "0".repeat(64);
    let expected = format!(
        r#"{{"schema":1,"labproxy_version":"0.1.0","session":"{SESSION}","end_reason":"overrun","cap_pico_usd":3000,"spent_pico_usd":1127,"held_pico_usd":0,"unused_pico_usd":1873,"unused_because":"the next request could have cost $0.000000005, and only $0.000000001873 is left","cap_reached":true,"started_at":"2026-11-30T12:00:00Z","ended_at":"2026-11-30T12:00:00Z","pricing_digest":"d1","free_requests":3,"agent":{{"argv0":"claude","exit_code":1,"signal":null}},"requests":[{}],"refusals_beyond_listed":7,"on_cap":"clamp","over_cap_pico_usd":0,"ledger":{{"seq":18,"hash":"{zero}"}}}}"#,
        lines.join(",")
    );
    assert_eq!(serde_json::to_string(&receipt).unwrap(), expected);
    let back: Receipt = serde_json::from_str(&expected).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), expected);
}

/// While the session runs, what is in flight has no outcome, is held, and nothing has ended.
#[test]
fn a_running_session_has_requests_without_outcome() {
    let mut entries = every_kind();
    entries.truncate(3);
    let receipt = fold(entries);
    assert_eq!(
        (receipt.held_pico_usd, receipt.spent_pico_usd),
        (pico(1_100), pico(0))
    );
    assert_eq!(receipt.unused_pico_usd, pico(900));
    assert_eq!((receipt.ended_at, receipt.end_reason), (None, None));
    assert!(receipt.requests.iter().all(|line| line.outcome.is_none()));
}

/// A resumed session goes on: requests of both launches in order, one cap, nothing ended.
#[test]
fn a_resumed_session_goes_on() {
    let mut entries = every_kind();
    entries.push(Entry::Opened {
        cap: pico(9_000),
        on_cap: OnCap::Clamp,
        pricing_digest: "d2".into(),
        argv0: Some("sh".into()),
        host: None,
        version: "0.2.0".into(),
        resumed: true,
    });
    entries.push(with_arrival(held(&name('g'), 10), 0));
    let receipt = fold(entries);
    assert_eq!(receipt.end_reason, None);
    assert_eq!(receipt.agent.argv0.as_deref(), Some("sh"));
    assert_eq!(receipt.agent.exit_code, None);
    assert_eq!(receipt.requests.last().unwrap().id, name('g'));
    assert_eq!(receipt.unused_pico_usd, pico(9_000 - 1_127 - 10));
    // 5,000 would fit now.
    assert_eq!((receipt.unused_because, receipt.cap_reached), (None, true));
}

/// After 1,000 refusals, over all launches, they are only counted.
#[test]
fn refusals_beyond_a_thousand_are_counted() {
    let refused = |number| Entry::Refused {
        request: RequestId::random().unwrap(),
        facts: facts(),
        arrival: number,
        status: 402,
        reason: "no".into(),
        needed: None,
    };
    let entries = std::iter::once(opened(5)).chain((0..1_003).map(refused));
    let receipt = fold(entries.collect());
    assert_eq!(receipt.requests.len(), 1_000);
    assert_eq!(receipt.refusals_beyond_listed, 3);
    assert!(!receipt.cap_reached);
}

/// In the soft mode the receipt says that the cap was passed, and by how much.
#[test]
fn a_soft_overshoot_is_shown() {
    let entries = vec![
        Entry::Opened {
            cap: pico(100),
            on_cap: OnCap::Soft,
            pricing_digest: String::new(),
            argv0: None,
            host: None,
            version: String::new(),
            resumed: false,
        },
        held(&name('a'), 50),
        settled(&name('a'), 130),
    ];
    let receipt = fold(entries);
    assert_eq!(receipt.on_cap, OnCap::Soft);
    assert_eq!(receipt.over_cap_pico_usd, pico(30));
    assert_eq!(receipt.unused_pico_usd, pico(0));
}

/// Nothing that a request carried stands in the ledger: facts have no place for it.
#[test]
fn entries_have_no_place_for_bodies_headers_or_keys() {
    let facts = RequestFacts {
        at: NOON.parse().unwrap(),
        stream: Some(true),
        model: Some("m".into()),
        max_tokens_asked: Some(1),
    };
    assert_eq!(
        serde_json::to_string(&facts).unwrap(),
        r#"{"at":"2026-11-30T12:00:00Z","stream":true,"model":"m","max_tokens_asked":1}"#
    );
}

/// Entries of every kind go through the ledger unchanged.
#[tokio::test]
async fn every_kind_of_entry_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let ledger: Ledger = open(directory.path()).unwrap();
    let mut entries = every_kind();
    // The kept hold is corrected by its own call, which looks at it first.
    entries.retain(|entry| !matches!(entry, Entry::Corrected { .. }));
    ledger.append(&session(), entries.clone()).await.unwrap();
    let read: Vec<Entry> = read(directory.path(), &session())
        .into_iter()
        .map(|recorded| recorded.entry)
        .collect();
    assert_eq!(read, entries);
}
