//! A usage object as typed counters, with everything unknown or unreadable named.

use serde_json::{Map, Value};

use super::merge::is_positive;
use super::{Counts, Iteration, Usage};

/// How deep an unknown object is searched for counters; deeper ones are called unreadable.
const DEPTH: usize = 8;

/// Most odd counters that are named; a hostile response could have any number of them.
const MOST_NAMED: usize = 32;

/// The four counters that every record has, with the place each takes.
const COUNTERS: [&str; 4] = [
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
];
const SPLIT: &str = "cache_creation";
const FIVE_MINUTES: &str = "ephemeral_5m_input_tokens";
const ONE_HOUR: &str = "ephemeral_1h_input_tokens";

impl Usage {
    /// Reads a merged usage object.
    pub(super) fn from_object(raw: Map<String, Value>, fell: bool) -> Self {
        let mut odd = Odd::default();
        let mut usage = Self {
            top: odd.counts("", &raw),
            speed: text(&raw, "speed"),
            geo: text(&raw, "inference_geo"),
            service_tier: text(&raw, "service_tier"),
            fell,
            ..Self::default()
        };
        for (key, value) in &raw {
            match key.as_str() {
                // Already in the counts; `fallback_credit` moves tokens between them.
                SPLIT | "fallback_credit" => {}
                "speed" | "inference_geo" | "service_tier" => odd.is_text(key, value),
                "server_tool_use" => usage.web_searches = odd.server_tools(value),
                "iterations" => usage.iterations = odd.iterations(value),
                key if COUNTERS.contains(&key) || key.ends_with("_details") => {}
                key => odd.unknown_value(key, value, DEPTH),
            }
        }
        usage.unknown = odd.unknown;
        usage.unreadable = odd.unreadable;
        usage.raw = raw;
        usage
    }
}

/// What was odd in a usage object.
#[derive(Default)]
struct Odd {
    unknown: Vec<String>,
    unreadable: Vec<String>,
}

impl Odd {
    fn counts(&mut self, at: &str, record: &Map<String, Value>) -> Counts {
        let [input, output, cache_creation, cache_read] =
            COUNTERS.map(|key| self.count(at, key, record.get(key)));
        let split = match record.get(SPLIT) {
            None | Some(Value::Null) => None,
            Some(Value::Object(split)) => {
                let at = joined(at, SPLIT);
                for (key, value) in split {
                    if key != FIVE_MINUTES && key != ONE_HOUR {
                        self.unknown_value(&joined(&at, key), value, DEPTH);
                    }
                }
                Some((
                    self.count(&at, FIVE_MINUTES, split.get(FIVE_MINUTES)),
                    self.count(&at, ONE_HOUR, split.get(ONE_HOUR)),
                ))
            }
            Some(_) => {
                name(&mut self.unreadable, &joined(at, SPLIT));
                None
            }
        };
        Counts {
            input,
            output,
            cache_creation,
            cache_read,
            split,
        }
    }

    /// A known counter: null and absent are zero, anything else must be a whole number.
    fn count(&mut self, at: &str, key: &str, value: Option<&Value>) -> u64 {
        match value {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                name(&mut self.unreadable, &joined(at, key));
                0
            }),
        }
    }

    fn is_text(&mut self, key: &str, value: &Value) {
        if !matches!(value, Value::Null | Value::String(_)) {
            name(&mut self.unreadable, key);
        }
    }

    fn server_tools(&mut self, value: &Value) -> u64 {
        let at = "server_tool_use";
        match value {
            Value::Null => 0,
            Value::Object(tools) => {
                for (key, value) in tools {
                    // A fetch has no fee of its own.
                    if key != "web_search_requests" && key != "web_fetch_requests" {
                        self.unknown_value(&joined(at, key), value, DEPTH);
                    }
                }
                self.count(at, "web_search_requests", tools.get("web_search_requests"))
            }
            _ => {
                name(&mut self.unreadable, at);
                0
            }
        }
    }

    fn iterations(&mut self, value: &Value) -> Vec<Iteration> {
        let at = "iterations";
        match value {
            Value::Null => Vec::new(),
            Value::Array(entries) => entries
                .iter()
                .filter_map(|entry| {
                    let read = entry.as_object().map(|entry| self.iteration(at, entry));
                    if read.is_none() {
                        name(&mut self.unreadable, at);
                    }
                    read
                })
                .collect(),
            _ => {
                name(&mut self.unreadable, at);
                Vec::new()
            }
        }
    }

    fn iteration(&mut self, at: &str, entry: &Map<String, Value>) -> Iteration {
        for (key, value) in entry {
            match key.as_str() {
                // Searches are charged from the top level.
                "type" | "model" | SPLIT | "server_tool_use" => {}
                // No entry is served fast while fast mode is refused.
                "speed" if matches!(value.as_str(), None | Some("standard")) => {}
                "speed" => name(&mut self.unknown, &joined(at, "speed")),
                key if COUNTERS.contains(&key) || key.ends_with("_details") => {}
                key => self.unknown_value(&joined(at, key), value, DEPTH),
            }
        }
        Iteration {
            kind: text(entry, "type").unwrap_or_default(),
            model: text(entry, "model"),
            counts: self.counts(at, entry),
        }
    }

    /// Names every positive number in something unknown.
    fn unknown_value(&mut self, path: &str, value: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            name(&mut self.unreadable, path);
            return;
        };
        match value {
            Value::Number(number) if is_positive(number) => {
                name(&mut self.unknown, path);
            }
            Value::Object(inner) => {
                for (key, value) in inner {
                    if !key.ends_with("_details") {
                        self.unknown_value(&joined(path, key), value, depth);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.unknown_value(path, item, depth);
                }
            }
            _ => {}
        }
    }
}

fn name(paths: &mut Vec<String>, path: &str) {
    if paths.len() < MOST_NAMED && !paths.iter().any(|known| known == path) {
        paths.push(path.to_owned());
    }
}

fn joined(at: &str, key: &str) -> String {
    if at.is_empty() {
        key.to_owned()
    } else {
        format!("{at}.{key}")
    }
}

fn text(record: &Map<String, Value>, key: &str) -> Option<String> {
    record.get(key).and_then(Value::as_str).map(str::to_owned)
}
