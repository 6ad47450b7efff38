//! Merging of usage objects: every counter at the largest value seen.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value in which a key that stands twice holds both values merged, so that neither the
/// first nor the last of them can hide a larger count.
#[derive(Debug)]
pub(super) struct Lossless(pub(super) Value);

impl<'de> Deserialize<'de> for Lossless {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LosslessVisitor).map(Self)
    }
}

struct LosslessVisitor;

impl<'de> Visitor<'de> for LosslessVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Lossless(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Lossless(value))) = entries.next_entry::<String, Lossless>()? {
            match map.get_mut(&key) {
                Some(earlier) => {
                    merge_value(&key, earlier, value);
                }
                None => {
                    map.insert(key, value);
                }
            }
        }
        Ok(Value::Object(map))
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
        (Value::Number(old), Value::Number(new)) => match compare(old, &new) {
            Ordering::Less => {
                *earlier = Value::Number(new);
                false
            }
            Ordering::Equal => false,
            Ordering::Greater => is_positive(&new),
        },
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

fn compare(old: &Number, new: &Number) -> Ordering {
    match (old.as_u64(), new.as_u64()) {
        (Some(old), Some(new)) => old.cmp(&new),
        _ => old
            .as_f64()
            .partial_cmp(&new.as_f64())
            .unwrap_or(Ordering::Equal),
    }
}

/// Whether a JSON number is more than zero.
pub(super) fn is_positive(number: &Number) -> bool {
    match number.as_u64() {
        Some(count) => count > 0,
        None => number.as_f64().is_some_and(|value| value > 0.0),
    }
}
