//! Merging of usage objects: every counter at the largest value seen.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// Deepest nesting that is read. The provider's own objects have a handful of levels, and every
/// level is scanned again.
const DEPTH: usize = 32;

/// Reads JSON so that a key that stands twice holds both values merged: neither the first nor the
/// last of them can hide a larger count. `None` when it is not JSON or nested too deeply.
pub(super) fn read_lossless(json: &[u8]) -> Option<Value> {
    lossless(serde_json::from_slice(json).ok()?, DEPTH)
}

fn lossless(raw: &RawValue, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    match raw.get().as_bytes().first()? {
        b'{' => {
            let Entries(entries) = serde_json::from_str(raw.get()).ok()?;
            let mut map = Map::new();
            for (key, raw) in entries {
                let value = lossless(raw, depth)?;
                match map.get_mut(&key) {
                    Some(earlier) => {
                        merge_value(&key, earlier, value);
                    }
                    None => {
                        map.insert(key, value);
                    }
                }
            }
            Some(Value::Object(map))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            let values = items.into_iter().map(|item| lossless(item, depth));
            values.collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        _ => serde_json::from_str(raw.get()).ok(),
    }
}

/// The entries of an object in order, repeated keys included.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

/// Merges `new` into `merged`; true when a counter fell to a smaller positive value.
///
/// Numbers settle at the larger, null and zero never replace a positive value, objects and lists
/// merge entry by entry, and of two texts the later one stays, except where one is priced dearer.
pub(super) fn merge_usage(merged: &mut Map<String, Value>, new: Map<String, Value>) -> bool {
    let mut fell = false;
    for (key, value) in new {
        match merged.get_mut(&key) {
            Some(earlier) => fell |= merge_value(&key, earlier, value),
            None => {
                merged.insert(key, value);
            }
        }
    }
    fell
}

fn merge_value(key: &str, earlier: &mut Value, new: Value) -> bool {
    match (&mut *earlier, new) {
        (_, Value::Null) => false,
        (Value::Null, new) => {
            *earlier = new;
            false
        }
        (Value::Object(earlier), Value::Object(new)) => merge_usage(earlier, new),
        (Value::Array(earlier), Value::Array(new)) => merge_lists(earlier, new),
        (Value::Number(old), Value::Number(new)) => {
            let fell = weight(&new) < weight(old) && is_positive(&new);
            if weight(&new) > weight(old) {
                *earlier = Value::Number(new);
            }
            fell
        }
        (Value::String(old), Value::String(new)) => {
            if !is_dearest(key, old) {
                *old = new;
            }
            false
        }
        // Two kinds of value for one key: a number is the one that can be charged for.
        (Value::Number(_), _) => true,
        (earlier, new) => {
            *earlier = new;
            true
        }
    }
}

/// Lists of iterations are cumulative; one that got shorter has lost entries that were paid.
fn merge_lists(earlier: &mut Vec<Value>, new: Vec<Value>) -> bool {
    let mut fell = !new.is_empty() && new.len() < earlier.len();
    for (index, value) in new.into_iter().enumerate() {
        match earlier.get_mut(index) {
            Some(old) => fell |= merge_value("", old, value),
            None => earlier.push(value),
        }
    }
    fell
}

/// Whether `text` is the dearest value that `key` can have, so that no later one replaces it.
fn is_dearest(key: &str, text: &str) -> bool {
    matches!((key, text), ("speed", "fast") | ("inference_geo", "us"))
}

/// What settles: the larger count. A positive number that is no count outweighs every count, so
/// that it stays visible as unreadable; a negative one is outweighed by every count.
fn weight(number: &Number) -> (u8, u64) {
    match number.as_u64() {
        Some(count) => (1, count),
        None if is_positive(number) => (2, 0),
        None => (0, 0),
    }
}

/// Whether a JSON number is more than zero.
pub(super) fn is_positive(number: &Number) -> bool {
    if let Some(count) = number.as_u64() {
        return count > 0;
    }
    let text = number.to_string();
    let digits = text.split(['e', 'E']).next().unwrap_or("");
    !text.starts_with('-') && digits.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}
