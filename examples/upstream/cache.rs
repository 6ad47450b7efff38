//! Prompt tokens and the prompt cache: a prefix that was written before is read the next time.
//!
//! Tokens are a quarter of the bytes of each block, rounded up: not the provider's tokeniser, but
//! in the same range, the same for the same prompt, and never more than the bytes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::prices::Tokens;

/// A shorter prefix is not cached, as at the provider.
const SMALLEST_PREFIX: u64 = 1_024;
/// How long an entry lives without a read.
const FIVE_MINUTES: Duration = Duration::from_mins(5);
/// The same for `ttl: "1h"`.
const ONE_HOUR: Duration = Duration::from_hours(1);

/// How long a breakpoint asks its prefix to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    FiveMinutes,
    OneHour,
}

/// One block of a prompt, in the order in which the provider reads them.
struct Block {
    /// Of everything up to and including it.
    prefix: blake3::Hash,
    tokens: u64,
    marker: Option<Marker>,
}

/// What was written, by prefix, and until when it lives.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<blake3::Hash, (Instant, Duration)>,
}

impl Cache {
    /// The prompt tokens of a request by kind, and remembers what it wrote.
    pub(crate) fn account(&mut self, request: &Value, now: Instant) -> Tokens {
        let blocks = blocks(request);
        let total: u64 = blocks.iter().map(|block| block.tokens).sum();
        let Some(last_marker) = blocks.iter().rposition(|block| block.marker.is_some()) else {
            return Tokens {
                input: total,
                ..Tokens::default()
            };
        };
        self.entries
            .retain(|_, (used, life)| now.saturating_duration_since(*used) < *life);
        let cached_up_to = blocks
            .iter()
            .take(last_marker + 1)
            .rposition(|block| self.entries.contains_key(&block.prefix));
        let mut tokens = Tokens::default();
        let last_hour = blocks
            .iter()
            .rposition(|block| block.marker == Some(Marker::OneHour));
        for (at, block) in blocks.iter().enumerate() {
            let kind = if cached_up_to.is_some_and(|last| at <= last) {
                &mut tokens.read
            } else if at > last_marker {
                &mut tokens.input
            } else if last_hour.is_some_and(|last| at <= last) {
                &mut tokens.write_1h
            } else {
                &mut tokens.write_5m
            };
            *kind += block.tokens;
        }
        if tokens.read == 0 && total - tokens.input < SMALLEST_PREFIX {
            return Tokens {
                input: total,
                ..Tokens::default()
            };
        }
        self.remember(&blocks, cached_up_to, now);
        tokens
    }

    fn remember(&mut self, blocks: &[Block], cached_up_to: Option<usize>, now: Instant) {
        for (at, block) in blocks.iter().enumerate() {
            let life = match block.marker {
                Some(Marker::OneHour) => ONE_HOUR,
                Some(Marker::FiveMinutes) => FIVE_MINUTES,
                None if cached_up_to == Some(at) => FIVE_MINUTES,
                None => continue,
            };
            let entry = self.entries.entry(block.prefix).or_insert((now, life));
            *entry = (now, entry.1.max(life));
        }
    }
}

/// Tokens of the whole prompt: what `count_tokens` answers.
pub(crate) fn prompt_tokens(request: &Value) -> u64 {
    blocks(request).iter().map(|block| block.tokens).sum()
}

fn blocks(request: &Value) -> Vec<Block> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(text_of(request.get("model")).as_bytes());
    let mut blocks = Vec::new();
    for tool in items(request.get("tools")) {
        push(&mut blocks, &mut hasher, tool.clone());
    }
    for part in parts(request.get("system")) {
        push(&mut blocks, &mut hasher, part);
    }
    for message in items(request.get("messages")) {
        hasher.update(text_of(message.get("role")).as_bytes());
        for part in parts(message.get("content")) {
            push(&mut blocks, &mut hasher, part);
        }
    }
    if request.get("cache_control").is_some_and(Value::is_object)
        && let Some(last) = blocks.last_mut()
    {
        last.marker = last.marker.or_else(|| marker(request));
    }
    blocks
}

/// Adds one block without its marker, which moves from turn to turn and is no content.
fn push(blocks: &mut Vec<Block>, hasher: &mut blake3::Hasher, mut block: Value) {
    let marker = marker(&block);
    if let Some(fields) = block.as_object_mut() {
        fields.remove("cache_control");
    }
    let text = block.to_string();
    hasher.update(text.as_bytes());
    blocks.push(Block {
        prefix: hasher.finalize(),
        tokens: tokens_of(&text),
        marker,
    });
}

fn marker(block: &Value) -> Option<Marker> {
    let control = block.get("cache_control")?.as_object()?;
    match control.get("ttl").and_then(Value::as_str) {
        Some("1h") => Some(Marker::OneHour),
        _ => Some(Marker::FiveMinutes),
    }
}

/// Content as blocks: a plain string is one text block.
fn parts(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
        other => items(other).to_vec(),
    }
}

/// The items of an array, none of anything else.
pub(crate) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The string, or nothing.
pub(crate) fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// A quarter of the bytes, rounded up.
pub(crate) fn tokens_of(text: &str) -> u64 {
    u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
}
