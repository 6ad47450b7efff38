//! Captured requests made whole again, and small bodies to start from.

use std::fs;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use labproxy::proxy::gate::{GatePolicy, GateRefusal, Intent, WebSearchPolicy, check_messages};
use serde_json::{Value, json};

/// A request as a real client sent it, with what was cut for the record filled in again.
pub(crate) struct Capture {
    pub(crate) file: String,
    pub(crate) method: Method,
    pub(crate) target: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Value>,
    /// Size of the original body.
    pub(crate) body_bytes: usize,
}

pub(crate) fn captures() -> Vec<Capture> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 43, "one fixture for each captured request");
    files.into_iter().map(|path| capture(&path)).collect()
}

fn capture(path: &PathBuf) -> Capture {
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut headers = HeaderMap::new();
    for line in record["headers"].as_array().unwrap() {
        let (name, value) = line.as_str().unwrap().split_once(": ").unwrap();
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    Capture {
        file: path.file_name().unwrap().to_str().unwrap().to_owned(),
        method: record["method"].as_str().unwrap().parse().unwrap(),
        target: record["target"].as_str().unwrap().parse().unwrap(),
        headers,
        body: Some(whole(&record["body"])).filter(Value::is_object),
        body_bytes: usize::try_from(record["body_bytes"].as_u64().unwrap()).unwrap(),
    }
}

/// Fills in texts and tool definitions that were cut.
fn whole(cut: &Value) -> Value {
    match cut {
        Value::String(text) => Value::String(whole_text(text)),
        Value::Array(items) => items.iter().map(whole).collect(),
        Value::Object(members) if members.contains_key("_bytes") => whole_tool(cut),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                ("safeguards", Value::String(_)) => {
                    let rules = "x".repeat(1_650);
                    let safeguard =
                        json!({ "type": "dangerous_tool_use", "classifier_context": rules });
                    (key.clone(), json!([safeguard]))
                }
                _ => (key.clone(), whole(value)),
            })
            .collect(),
        other => other.clone(),
    }
}

fn whole_text(text: &str) -> String {
    let size = text
        .strip_prefix("<text, ")
        .or_else(|| text.strip_prefix("<system prompt, "))
        .and_then(|rest| rest.strip_suffix(" bytes>"))
        .and_then(|digits| digits.parse().ok());
    match size {
        Some(size) => "a line of plain words that goes on until here, with one \"\n"
            .chars()
            .cycle()
            .take(size)
            .collect(),
        None => text.to_owned(),
    }
}

fn whole_tool(cut: &Value) -> Value {
    let mut tool = cut.clone();
    let size = usize::try_from(cut["_bytes"].as_u64().unwrap()).unwrap();
    let members = tool.as_object_mut().unwrap();
    members.remove("_bytes");
    if !members.contains_key("type") {
        members.insert("description".to_owned(), json!(""));
        members.insert(
            "input_schema".to_owned(),
            json!({ "type": "object", "properties": { "speed": { "type": "string" } } }),
        );
        let missing = size.saturating_sub(tool.to_string().len());
        tool["description"] = json!("d".repeat(missing));
    }
    tool
}

/// A small body that passes.
pub(crate) fn small() -> Value {
    json!({
        "model": "claude-opus-5-5",
        "max_tokens": 1000,
        "messages": [{ "role": "user", "content": "hello" }],
    })
}

/// A small body with more keys.
pub(crate) fn with(more: Value) -> Value {
    let mut body = small();
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A small body whose one message holds these blocks.
pub(crate) fn blocks(blocks: Value) -> Value {
    with(json!({ "messages": [{ "role": "user", "content": blocks }] }))
}

pub(crate) fn check(body: &Value) -> Result<Intent, GateRefusal> {
    check_messages(body.to_string().as_bytes(), &GatePolicy::default())
}

pub(crate) fn check_open(body: &Value) -> Result<Intent, GateRefusal> {
    check_messages(body.to_string().as_bytes(), &open())
}

/// Everything that an operator can open.
pub(crate) fn open() -> GatePolicy {
    GatePolicy {
        web_search: Some(WebSearchPolicy {
            tokens_per_use: 40_000,
            max_uses: 5,
        }),
        compaction: true,
        remote_content: true,
        ..GatePolicy::default()
    }
}

/// The thing that a refusal names.
pub(crate) fn refused(result: Result<Intent, GateRefusal>) -> String {
    match result {
        Err(GateRefusal::Feature { what, why, remedy }) => {
            assert!(!why.is_empty() && !remedy.is_empty());
            what
        }
        other => panic!("not refused as a feature: {other:?}"),
    }
}

/// The text of a 400.
pub(crate) fn malformed(result: Result<Intent, GateRefusal>) -> String {
    match result {
        Err(GateRefusal::Malformed(text)) => text,
        other => panic!("not refused as malformed: {other:?}"),
    }
}
