//! Threat 21: a text that two parsers could read differently is refused, everything else is read as
//! `serde_json` reads it.

use labproxy::proxy::gate::json::{Fault, JsonError, Kind, MAX_DEPTH, MAX_VALUES, Tape, Value};
use labproxy::proxy::gate::{GatePolicy, check_messages};
use proptest::prelude::*;

use crate::support::{check, malformed, with};

fn fault(text: &[u8]) -> (usize, Fault) {
    let JsonError { at, fault } = Tape::parse(text).unwrap_err();
    (at, fault)
}

/// Each departure from RFC 8259 is refused at its byte.
#[test]
fn t21_what_is_not_strict_json_is_refused_at_its_byte() {
    use Fault::{
        ByteOrderMark, Control, End, Escape, LoneSurrogate, NotUtf8, Number, Trailing, Unexpected,
    };
    let cases: &[(&[u8], usize, Fault)] = &[
        (b"", 0, End),
        (b"   ", 3, End),
        (b"\xef\xbb\xbf{}", 0, ByteOrderMark),
        (b"{} {}", 3, Trailing),
        (b"{}x", 2, Trailing),
        (b"{}\0", 2, Trailing),
        (b"{\"a\":NaN}", 5, Unexpected),
        (b"{\"a\":Infinity}", 5, Unexpected),
        (b"{\"a\":-Infinity}", 5, Number),
        (b"{\"a\":tru}", 5, Unexpected),
        (b"{\"a\":True}", 5, Unexpected),
        (b"{'a':1}", 1, Unexpected),
        (b"{a:1}", 1, Unexpected),
        (b"{\"a\":1,}", 7, Unexpected),
        (b"[1,]", 3, Unexpected),
        (b"[,1]", 1, Unexpected),
        (b"[1 2]", 3, Unexpected),
        (b"{\"a\" 1}", 5, Unexpected),
        (b"{\"a\":1", 6, End),
        (b"[", 1, End),
        (b"]", 0, Unexpected),
        (b"[1}", 2, Unexpected),
        (b"{\"a\":1]", 6, Unexpected),
        (b"/* c */ {}", 0, Unexpected),
        (b"{} // c", 3, Trailing),
        (b"\xc2\xa0{}", 0, Unexpected),
        (b"\x0c{}", 0, Unexpected),
        (b"[01]", 2, Unexpected),
        (b"[-]", 1, Number),
        (b"[+1]", 1, Unexpected),
        (b"[1.]", 1, Number),
        (b"[.5]", 1, Unexpected),
        (b"[1e]", 1, Number),
        (b"[1e+]", 1, Number),
        (b"[0x10]", 2, Unexpected),
        (b"[1_000]", 2, Unexpected),
        (b"\"\x01\"", 1, Control),
        (b"\"a\nb\"", 2, Control),
        (b"\"abc", 4, End),
        (b"\"\\x41\"", 1, Escape),
        (b"\"\\u12g4\"", 1, Escape),
        (b"\"\\u12", 1, Escape),
        (b"\"\\", 1, End),
        (b"\"\\ud800\"", 1, LoneSurrogate),
        (b"\"\\ud800\\u0041\"", 1, LoneSurrogate),
        (b"\"\\ud800x\"", 1, LoneSurrogate),
        (b"\"\\udc00\"", 1, LoneSurrogate),
        (b"\"\\udc00\\ud800\"", 1, LoneSurrogate),
        (b"\"a\xff\"", 2, NotUtf8),
        (b"\"\xed\xa0\x80\"", 1, NotUtf8),
        (b"\"\xc0\x80\"", 1, NotUtf8),
    ];
    for (text, at, expected) in cases {
        let shown = String::from_utf8_lossy(text);
        assert_eq!(fault(text), (*at, expected.clone()), "{shown:?}");
    }
}

/// A key that stands twice in one object is refused at every level, however it is written; the same
/// key in two objects is not.
#[test]
fn t21_duplicate_keys_are_refused_at_every_level() {
    let twice = |text: &str, at: usize, key: &str| {
        assert_eq!(
            fault(text.as_bytes()),
            (at, Fault::DuplicateKey(key.to_owned())),
            "{text}"
        );
    };
    twice(r#"{"a":1,"a":1}"#, 7, "a");
    twice(r#"{"a":1,"b":2,"c":{"d":[{"x":1,"y":2,"x":3}]}}"#, 36, "x");
    twice(r#"{"model":1,"mod\u0065l":2}"#, 11, "model");
    twice(r#"{"\u006dodel":1,"m\u006fdel":2}"#, 16, "model");
    twice(r#"{"":1,"":2}"#, 6, "");
    // More keys than are compared pair by pair.
    let keys = |count: usize| {
        (0..count)
            .map(|n| format!("\"k{n}\":0"))
            .collect::<Vec<_>>()
            .join(",")
    };
    for count in [10, 11, 12, 13, 14, 1_000] {
        let text = format!("{{{},\"k3\":1}}", keys(count));
        let at = text.rfind("\"k3\"").unwrap();
        twice(&text, at, "k3");
        assert!(Tape::parse(format!("{{{}}}", keys(count)).as_bytes()).is_ok());
    }
    assert!(Tape::parse(br#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}],"A":1,"a ":1}"#).is_ok());
}

/// E06: a body with two models, or with two of any other key, is refused before anything is read
/// from it, also inside tool inputs.
#[test]
fn e06_a_model_that_stands_twice_is_refused() {
    let policy = GatePolicy::default();
    for body in [
        r#"{"model":"claude-haiku-5-5","max_tokens":1,"messages":[],"model":"claude-opus-5-5"}"#,
        r#"{"model":"claude-haiku-5-5","max_tokens":1,"messages":[],"mod\u0065l":"claude-opus-5-5"}"#,
    ] {
        let text = malformed(check_messages(body.as_bytes(), &policy));
        assert_eq!(
            text,
            "the body is not strict JSON: duplicate key 'model' at byte 57"
        );
    }
    let inside = r#"{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[
        {"type":"tool_use","id":"t","name":"n","input":{"x":1,"x":2}}]}]}"#;
    let text = malformed(check_messages(inside.as_bytes(), &policy));
    assert!(text.contains("duplicate key 'x'"), "{text}");
}

/// `max_tokens` is digits and nothing else: no reader may see another number.
#[test]
fn t21_max_tokens_is_plain_digits_only() {
    let body = |written: &str| format!(r#"{{"model":"m","messages":[],"max_tokens":{written}}}"#);
    let policy = GatePolicy::default();
    for bad in [
        "\"128000\"",
        "1e5",
        "1E5",
        "128000.0",
        "1.5",
        "-1",
        "-0",
        "null",
        "true",
        "[1]",
        "{}",
        "18446744073709551616",
    ] {
        let text = malformed(check_messages(body(bad).as_bytes(), &policy));
        assert!(text.contains("max_tokens"), "{bad}: {text}");
    }
    for (good, number) in [
        ("0", 0),
        ("1", 1),
        ("128000", 128_000),
        ("18446744073709551615", u64::MAX),
    ] {
        let body = body(good);
        let intent = check_messages(body.as_bytes(), &policy).unwrap();
        assert_eq!(intent.max_tokens, number);
        assert_eq!(&body[intent.max_tokens_at], good);
    }
}

/// K23: a request without `max_tokens`, model or messages is refused as the provider would.
#[test]
fn k23_a_missing_part_is_named() {
    for key in ["model", "max_tokens", "messages"] {
        let mut body = with(serde_json::json!({}));
        body.as_object_mut().unwrap().shift_remove(key);
        assert_eq!(malformed(check(&body)), format!("{key} is missing"));
        let body = with(serde_json::json!({ key: null }));
        assert_eq!(malformed(check(&body)), format!("{key} is missing"));
    }
    for text in ["[]", "\"x\"", "1", "null"] {
        let result = check_messages(text.as_bytes(), &GatePolicy::default());
        assert_eq!(malformed(result), "the body is not a JSON object");
    }
}

/// Nesting and the number of values have limits, so a small body cannot take much memory or stack.
#[test]
fn nesting_and_values_are_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Tape::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(
        fault(nested(MAX_DEPTH + 1).as_bytes()),
        (MAX_DEPTH, Fault::Depth)
    );
    assert_eq!(fault("[".repeat(1_000_000).as_bytes()).1, Fault::Depth);
    assert_eq!(
        fault("{\"a\":".repeat(1_000_000).as_bytes()).1,
        Fault::Depth
    );
    let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
    assert_eq!(fault(many.as_bytes()).1, Fault::Values);
}

/// Reads a tape back into the value of `serde_json`.
fn back(value: Value<'_>) -> serde_json::Value {
    match value.kind() {
        Kind::Null => serde_json::Value::Null,
        Kind::Bool => (value.raw() == "true").into(),
        Kind::Number => serde_json::from_str(value.raw()).unwrap(),
        Kind::String => value.string().unwrap().into(),
        Kind::Array => value.children().map(|(_, child)| back(child)).collect(),
        Kind::Object => value
            .children()
            .map(|(key, child)| (key.unwrap().string().unwrap().into_owned(), back(child)))
            .collect(),
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC*".prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::vec((any::<String>(), inner), 0..20).prop_map(|members| members
                .into_iter()
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

proptest! {
    /// Whatever `serde_json` writes, plain or pretty, is read back as it was.
    #[test]
    fn written_json_is_read_back(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let tape = Tape::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(back(tape.root().unwrap()), value.clone());
        }
    }

    /// No bytes make the reader panic; what it accepts, `serde_json` accepts too, and reads the same.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(tape) = Tape::parse(&bytes) {
            let theirs: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(back(tape.root().unwrap()), theirs);
        }
    }

    /// The same for bytes that look like JSON; what `serde_json` refuses is refused.
    #[test]
    fn broken_json_is_judged_as_serde_json_does(
        text in "[\\[\\]{},:\" \\\\u0-9a-fn.eE+-]{0,24}",
    ) {
        let ours = Tape::parse(text.as_bytes());
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
        match (ours, theirs) {
            (Ok(tape), Ok(theirs)) => prop_assert_eq!(back(tape.root().unwrap()), theirs),
            (Err(error), Ok(_)) => {
                prop_assert!(matches!(error.fault, Fault::DuplicateKey(_)), "{}: {}", text, error);
            }
            (Ok(_), Err(error)) => {
                // A float that serde_json cannot hold is a number all the same.
                prop_assert!(error.to_string().contains("number out of range"), "{text}: {error}");
            }
            (Err(_), Err(_)) => {}
        }
    }

    /// A JSON value of any shape in place of a body is judged without a panic.
    #[test]
    fn arbitrary_json_is_judged_without_a_panic(value in any_json(), key in prop::sample::select(vec![
        "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "speed",
        "context_management", "cache_control", "compaction", "fallbacks", "metadata", "unknown",
    ])) {
        let _judged = check(&with(serde_json::json!({ key: value.clone() })));
        let _judged = check(&value);
    }
}
