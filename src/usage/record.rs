//! A usage object as typed counters, with everything unknown or unreadable named.

use serde_json::{Map, Value};

use super::merge::is_positive;
use super::{Counts, Iteration, Usage};

/// How deep an unknown object is searched for counters; deeper ones are called unreadable.
const DEPTH: usize = 8;

/// Most odd counters that are named; a hostile response could have any number of them.
const MOST_NAMED: usize = 32;

/// The four counters that every record has.
const COUNTERS: [&str; 4] = [INPUT, OUTPUT, CACHE_CREATION, CACHE_READ];
const INPUT: &str = "input_tokens";
const OUTPUT: &str = "output_tokens";
const CACHE_CREATION: &str = "cache_creation_input_tokens";
const CACHE_READ: &str = "cache_read_input_tokens";
const SPLIT: &str = "cache_creation";
const FIVE_MINUTES: &str = "ephemeral_5m_input_tokens";
const ONE_HOUR: &str = "ephemeral_1h_input_tokens";

impl Usage {
    /// Reads a merged usage object.
    pub(super) fn from_object(raw: Map<String, Value>, fell: bool) -> Self {
        let mut odd = Odd::default();
        let mut usage = Self {
            top: odd.counts("", &raw),
            fell,
            ..Self::default()
        };
        for (key, value) in &raw {
            match key.as_str() {
                // Already in the counts; `fallback_credit` moves tokens between them.
                SPLIT | "fallback_credit" => {}
                "speed" => usage.speed = odd.text(key, value),
                "inference_geo" => usage.geo = odd.text(key, value),
                "service_tier" => usage.service_tier = odd.text(key, value),
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
    /// One pass: looking up each of so few members would take longer.
    fn counts(&mut self, at: &str, record: &Map<String, Value>) -> Counts {
        let mut counts = Counts::default();
        for (key, value) in record {
            let place = match key.as_str() {
                INPUT => &mut counts.input,
                OUTPUT => &mut counts.output,
                CACHE_CREATION => &mut counts.cache_creation,
                CACHE_READ => &mut counts.cache_read,
                SPLIT => {
                    counts.split = self.split(&joined(at, SPLIT), value);
                    continue;
                }
                _ => continue,
            };
            *place = self.count(at, key, value);
        }
        counts
    }

    fn split(&mut self, at: &str, value: &Value) -> Option<(u64, u64)> {
        let Value::Object(split) = value else {
            if !value.is_null() {
                name(&mut self.unreadable, at);
            }
            return None;
        };
        let (mut five_minutes, mut one_hour) = (0, 0);
        for (key, value) in split {
            match key.as_str() {
                FIVE_MINUTES => five_minutes = self.count(at, key, value),
                ONE_HOUR => one_hour = self.count(at, key, value),
                _ => self.unknown_value(&joined(at, key), value, DEPTH),
            }
        }
        Some((five_minutes, one_hour))
    }

    /// A known counter: null is zero, anything else must be a whole number.
    fn count(&mut self, at: &str, key: &str, value: &Value) -> u64 {
        if value.is_null() {
            return 0;
        }
        value.as_u64().unwrap_or_else(|| {
            name(&mut self.unreadable, &joined(at, key));
            0
        })
    }

    fn text(&mut self, key: &str, value: &Value) -> Option<String> {
        if !matches!(value, Value::Null | Value::String(_)) {
            name(&mut self.unreadable, key);
        }
        value.as_str().map(str::to_owned)
    }

    fn server_tools(&mut self, value: &Value) -> u64 {
        let at = "server_tool_use";
        match value {
            Value::Null => 0,
            Value::Object(tools) => {
                let mut searches = 0;
                for (key, value) in tools {
                    match key.as_str() {
                        "web_search_requests" => searches = self.count(at, key, value),
                        // A fetch has no fee of its own.
                        "web_fetch_requests" => {}
                        _ => self.unknown_value(&joined(at, key), value, DEPTH),
                    }
                }
                searches
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
