//! Server-sent events, framed under a byte limit.
//!
//! `eventsource-stream` parses the events that matter, but cannot be given the stream itself: one
//! byte that is not UTF-8 ends it, a line without an end grows without limit, an event without its
//! blank line is dropped, a byte order mark makes it panic, and it takes time in the square of the
//! number of lines. So events are framed here, at blank lines, and each is handed over by itself:
//! bounded, made valid UTF-8, ended by a blank line. What is wrong in one event stays in it.

use std::borrow::Cow;
use std::convert::Infallible;

use eventsource_stream::{Event, EventStream};
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value};

use super::delta::{DeltaKind, plain_delta};
use super::merge::read_lossless;
use super::reader::{Tally, UsageSource};

/// Largest event that is read: the provider's own events stay far below, and 1,000 streams may be
/// open at once. A larger one is passed over.
const EVENT_BYTES: usize = 1 << 20;
/// Most lines in one event; the parser's time grows with their square.
const EVENT_LINES: usize = 1_024;
/// A buffer that grew beyond this is given back after its event.
const KEPT_BYTES: usize = 16 << 10;
/// The byte order mark, which may stand before the first event.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Frames events out of chunks that may end anywhere.
#[derive(Debug)]
pub(super) struct Events {
    /// Bytes of the event that has not ended yet; `None` once it is too large, and everything up to
    /// the next blank line is passed over.
    pending: Option<Vec<u8>>,
    /// No byte of the current line has come yet.
    line_is_empty: bool,
    /// The last chunk ended in CR: an LF at the beginning of the next belongs to it.
    after_cr: bool,
    /// No event has ended yet.
    first: bool,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            pending: Some(Vec::new()),
            line_is_empty: true,
            after_cr: false,
            first: true,
        }
    }

    /// Takes the next bytes and tells `tally` of every event that ends in them.
    pub(super) fn push(&mut self, bytes: &[u8], tally: &mut Tally) {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr)
            && let Some(after) = rest.strip_prefix(b"\n")
        {
            rest = after;
        }
        // `rest` begins at the current event, and its first `line` bytes are whole lines.
        let mut line = 0_usize;
        while let Some(tail) = rest.get(line..) {
            let Some(length) = memchr::memchr2(b'\n', b'\r', tail) else {
                self.line_is_empty &= tail.is_empty();
                break;
            };
            let is_blank = length == 0 && self.line_is_empty;
            let end = line.saturating_add(length);
            let mut next = end.saturating_add(1);
            if rest.get(end) == Some(&b'\r') {
                match rest.get(next) {
                    Some(b'\n') => next = next.saturating_add(1),
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.line_is_empty = true;
            line = next;
            if is_blank {
                self.event_ended(rest.get(..end).unwrap_or_default(), tally);
                rest = rest.get(next..).unwrap_or_default();
                line = 0;
            }
        }
        self.keep(rest, tally);
    }

    /// The end of the stream: an event that only lacks its blank line is read too.
    pub(super) fn finish(mut self, tally: &mut Tally) {
        self.event_ended(b"", tally);
    }

    fn keep(&mut self, bytes: &[u8], tally: &mut Tally) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        if pending.len().saturating_add(bytes.len()) > EVENT_BYTES {
            self.pending = None;
            tally.unread();
        } else {
            pending.extend_from_slice(bytes);
        }
    }

    fn event_ended(&mut self, last: &[u8], tally: &mut Tally) {
        let in_one_chunk = self.pending.as_ref().is_some_and(Vec::is_empty);
        if in_one_chunk && last.len() <= EVENT_BYTES {
            self.read_event(last, tally);
            return;
        }
        self.keep(last, tally);
        let Some(mut block) = self.pending.replace(Vec::new()) else {
            self.first = false;
            return;
        };
        self.read_event(&block, tally);
        if block.capacity() <= KEPT_BYTES {
            block.clear();
            self.pending = Some(block);
        }
    }

    fn read_event(&mut self, block: &[u8], tally: &mut Tally) {
        let block = if std::mem::take(&mut self.first) {
            block.strip_prefix(BYTE_ORDER_MARK).unwrap_or(block)
        } else {
            block
        };
        if block.is_empty() {
            return;
        }
        match plain_delta(block) {
            Some(delta) => tally.content(delta.kind, delta.bytes),
            None => read_block(block, tally),
        }
    }
}

/// Parses one event the long way.
fn read_block(block: &[u8], tally: &mut Tally) {
    if line_count(block) > EVENT_LINES {
        tally.unread();
        return;
    }
    let text = String::from_utf8_lossy(block);
    if matches!(text, Cow::Owned(_)) {
        tally.damaged();
    }
    let Some(event) = parse_block(&text) else {
        return;
    };
    match read_lossless(event.data.as_bytes()) {
        Some(Value::Object(data)) => read_data(&event.event, data, tally),
        _ => tally.unread(),
    }
}

/// Line ends in `block`; CR LF is one.
fn line_count(block: &[u8]) -> usize {
    let ends = memchr::memchr2_iter(b'\n', b'\r', block);
    let second_half = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| block.get(before));
        block.get(at) == Some(&b'\n') && before == Some(&b'\r')
    };
    ends.filter(|at| !second_half(*at)).count()
}

/// The event that `text` holds, if it holds one.
fn parse_block(text: &str) -> Option<Event> {
    // Another byte order mark in the middle of a stream would make the parser panic.
    let text = text.trim_start_matches('\u{feff}');
    let whole = format!("{text}\n\n");
    let chunk = futures_util::stream::iter([Ok::<_, Infallible>(whole)]);
    let mut events = EventStream::new(chunk);
    events.next().now_or_never()??.ok()
}

/// Takes what an event says about money. The JSON `type` decides; the event's name only where the
/// data has none.
fn read_data(name: &str, mut data: Map<String, Value>, tally: &mut Tally) {
    let kind = match data.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        _ => name.to_owned(),
    };
    let mut source = UsageSource::Other;
    match kind.as_str() {
        "message_start" => {
            source = UsageSource::Start;
            if let Some(Value::Object(mut message)) = data.remove("message") {
                tally.model(message.get("model"));
                tally.stop_reason(message.get("stop_reason"));
                tally.started();
                tally.usage(message.remove("usage"), UsageSource::Start);
            } else {
                tally.started();
            }
        }
        "message_delta" => {
            source = UsageSource::Delta;
            if let Some(Value::Object(delta)) = data.get("delta") {
                tally.stop_reason(delta.get("stop_reason"));
            }
        }
        "message_stop" => tally.finished(),
        "error" => tally.error(data.get("error")),
        "content_block_start" => {
            if let Some(Value::Object(block)) = data.get("content_block") {
                let kind = block_type(block);
                // Results of server tools are input of the next sampling.
                if !kind.ends_with("_tool_result") {
                    tally.content(kind_of(kind), text_bytes(block));
                }
            }
        }
        "content_block_delta" => {
            if let Some(Value::Object(delta)) = data.get("delta") {
                tally.content(kind_of(block_type(delta)), text_bytes(delta));
            }
        }
        _ => {}
    }
    tally.usage(data.remove("usage"), source);
}

fn block_type(block: &Map<String, Value>) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or("")
}

fn kind_of(kind: &str) -> DeltaKind {
    match kind {
        "thinking" | "thinking_delta" | "redacted_thinking" => DeltaKind::Thinking,
        "signature_delta" => DeltaKind::Signature,
        _ => DeltaKind::Visible,
    }
}

/// Bytes of every text in a block or delta, but for its type and its signature.
fn text_bytes(block: &Map<String, Value>) -> u64 {
    let counted = block.iter().filter(|(key, _)| *key != "type");
    counted
        .map(|(key, value)| value_bytes(key, value))
        .fold(0, u64::saturating_add)
}

fn value_bytes(key: &str, value: &Value) -> u64 {
    match value {
        Value::String(_) if key == "signature" => 0,
        Value::String(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        Value::Object(inner) => text_bytes(inner),
        Value::Array(items) => {
            let each = items.iter().map(|item| value_bytes(key, item));
            each.fold(0, u64::saturating_add)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
