//! Merging of usage objects: every counter at the largest value seen.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// Members that the outermost object has room for from the beginning: a usage object has about as
/// many. Inner ones get theirs as they grow, since a hostile answer could have any number of them.
const MEMBERS: usize = 8;

/// Deepest nesting that is read. The provider's own objects have a handful of levels.
const DEPTH: usize = 32;

/// Reads JSON so that a key that stands twice holds both values merged: neither the first nor the
/// last of them can hide a larger count. `None` when it is not JSON or nested too deeply.
pub(super) fn read_lossless(json: &[u8]) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = Lossless { levels: DEPTH }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

/// A value with at most so many levels of nesting.
#[derive(Clone, Copy)]
struct Lossless {
    levels: usize,
}

impl<'de> DeserializeSeed<'de> for Lossless {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let levels = self.levels.checked_sub(1);
        let levels = levels.ok_or_else(|| D::Error::custom("nested too deeply"))?;
        deserializer.deserialize_any(Lossless { levels })
    }
}

/// The levels are those that are left for what is inside the value.
impl<'de> Visitor<'de> for Lossless {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let is_outermost = self.levels.saturating_add(1) == DEPTH;
        let mut map = Map::with_capacity(if is_outermost { MEMBERS } else { 0 });
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            put(&mut map, key, value);
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
        fell |= put(merged, key, value);
    }
    fell
}

/// Puts one value beside, or into, what there is; true when a counter fell.
fn put(merged: &mut Map<String, Value>, key: String, value: Value) -> bool {
    match merged.entry(key) {
        Entry::Vacant(place) => {
            place.insert(value);
            false
        }
        Entry::Occupied(mut earlier) => {
            let key = earlier.key().clone();
            merge_value(&key, earlier.get_mut(), value)
        }
    }
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
