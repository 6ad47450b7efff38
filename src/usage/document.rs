//! One JSON document, read as it comes: a document of any size costs the memory of its usage.
//!
//! Only the keys at top level are looked at. The values of five of them are kept, up to a limit,
//! and parsed when they end; all others are passed over.

use serde_json::Value;

use super::merge::read_lossless;
use super::reader::{Tally, UsageSource};

/// Largest value that is kept. A usage object has a few kilobytes even with many iterations.
const VALUE_BYTES: usize = 1 << 20;
/// Longest key that can be one of ours, escapes included.
const KEY_BYTES: usize = 128;

/// Keys whose values matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Type,
    Model,
    StopReason,
    Usage,
    Error,
    Content,
    Other,
}

impl Field {
    /// The field of a key as it is written, with its quotes.
    fn of_key(written: &[u8]) -> Self {
        if written.contains(&b'\\') {
            let decoded: Option<String> = serde_json::from_slice(written).ok();
            return decoded.map_or(Self::Other, |key| Self::named(key.as_bytes()));
        }
        let key = written.strip_prefix(b"\"").unwrap_or_default();
        Self::named(key.strip_suffix(b"\"").unwrap_or_default())
    }

    fn named(key: &[u8]) -> Self {
        match key {
            b"type" => Self::Type,
            b"model" => Self::Model,
            b"stop_reason" => Self::StopReason,
            b"usage" => Self::Usage,
            b"error" => Self::Error,
            b"content" => Self::Content,
            _ => Self::Other,
        }
    }
}

/// Where in the document the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    FirstKey,
    NextKey,
    Key,
    Colon,
    Value,
    Text,
    Scalar,
    Nested,
    AfterValue,
    Done,
    Broken,
}

/// Where in a text the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

/// Reads a document in chunks that may end anywhere.
#[derive(Debug)]
pub(super) struct Document {
    state: State,
    field: Field,
    /// The key or value being kept; `None` once it is too large.
    kept: Option<Vec<u8>>,
    /// Whether the next byte is inside a text.
    text: Text,
    /// Inside a nested value: how deep.
    depth: u64,
    kind: Option<String>,
    usage_seen: bool,
    error_is_typed: bool,
}

impl Document {
    pub(super) fn new() -> Self {
        Self {
            state: State::Start,
            field: Field::Other,
            kept: Some(Vec::with_capacity(KEY_BYTES)),
            text: Text::Outside,
            depth: 0,
            kind: None,
            usage_seen: false,
            error_is_typed: false,
        }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], tally: &mut Tally) {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            let taken = match self.state {
                State::Broken => return,
                State::Key | State::Text | State::Scalar | State::Nested => {
                    self.in_token(rest, tally)
                }
                _ if matches!(first, b' ' | b'\n' | b'\r' | b'\t') => 1,
                _ => self.between_tokens(first, tally),
            };
            rest = if taken == 1 {
                after
            } else {
                rest.get(taken..).unwrap_or_default()
            };
        }
    }

    /// The end of the body.
    pub(super) fn finish(self, tally: &mut Tally) {
        if self.state != State::Done {
            tally.damaged();
        }
    }

    /// One byte that is not white space, outside texts and nested values. Returns how many bytes
    /// it took.
    fn between_tokens(&mut self, byte: u8, tally: &mut Tally) -> usize {
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::FirstKey,
            (State::FirstKey | State::NextKey, b'"') => {
                self.begin(Field::Other);
                self.state = State::Key;
                self.keep(b"\"", tally);
                self.text = Text::Inside;
                State::Key
            }
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') => {
                self.keep(b"\"", tally);
                self.text = Text::Inside;
                State::Text
            }
            (State::Value, b'{' | b'[') => {
                self.keep(&[byte], tally);
                self.depth = 1;
                State::Nested
            }
            (State::Value, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.state = State::Scalar;
                return 0;
            }
            (State::AfterValue, b',') => State::NextKey,
            (State::FirstKey | State::AfterValue, b'}') => {
                self.ended(tally);
                State::Done
            }
            _ => {
                // Something after the end takes back that the document was whole.
                tally.not_finished();
                tally.damaged();
                State::Broken
            }
        };
        1
    }

    /// A run of bytes inside a key or value. Returns how many it took.
    fn in_token(&mut self, rest: &[u8], tally: &mut Tally) -> usize {
        let (taken, ends) = match self.state {
            State::Key | State::Text => self.text_run(rest),
            State::Scalar => {
                let ends =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                match rest.iter().position(ends) {
                    Some(end) => (end, true),
                    None => (rest.len(), false),
                }
            }
            _ => self.nested_run(rest),
        };
        self.keep(rest.get(..taken).unwrap_or_default(), tally);
        if ends {
            self.token_ended(tally);
        }
        taken
    }

    /// Bytes of a text up to and with its closing quote.
    fn text_run(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut at = usize::from(self.text == Text::Escaped);
        self.text = Text::Inside;
        while let Some(tail) = rest.get(at..) {
            let Some(found) = memchr::memchr2(b'"', b'\\', tail) else {
                break;
            };
            let place = at.saturating_add(found);
            at = place.saturating_add(1);
            if rest.get(place) == Some(&b'"') {
                self.text = Text::Outside;
                return (at, true);
            }
            if at >= rest.len() {
                self.text = Text::Escaped;
                break;
            }
            at = at.saturating_add(1);
        }
        (rest.len(), false)
    }

    /// Bytes of a nested value up to and with its closing bracket.
    fn nested_run(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut at = 0_usize;
        while let Some(tail) = rest.get(at..)
            && !tail.is_empty()
        {
            if self.text != Text::Outside {
                let (taken, _) = self.text_run(tail);
                at = at.saturating_add(taken);
                continue;
            }
            let structural = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
            let Some(found) = tail.iter().position(structural) else {
                break;
            };
            at = at.saturating_add(found).saturating_add(1);
            match tail.get(found) {
                Some(b'"') => self.text = Text::Inside,
                Some(b'{' | b'[') => self.depth = self.depth.saturating_add(1),
                _ => self.depth = self.depth.saturating_sub(1),
            }
            if self.depth == 0 {
                return (at, true);
            }
        }
        (rest.len(), false)
    }

    fn begin(&mut self, field: Field) {
        self.field = field;
        self.kept.get_or_insert_default().clear();
    }

    fn keep(&mut self, bytes: &[u8], tally: &mut Tally) {
        let limit = match (self.state, self.field) {
            (State::Key, _) => KEY_BYTES,
            (_, Field::Content) => {
                tally.document_content(bytes);
                return;
            }
            (_, Field::Other) => return,
            _ => VALUE_BYTES,
        };
        let Some(kept) = &mut self.kept else {
            return;
        };
        if kept.len().saturating_add(bytes.len()) > limit {
            self.kept = None;
        } else {
            kept.extend_from_slice(bytes);
        }
    }

    fn token_ended(&mut self, tally: &mut Tally) {
        if self.state == State::Key {
            self.begin(self.kept.as_deref().map_or(Field::Other, Field::of_key));
            self.state = State::Colon;
            return;
        }
        self.state = State::AfterValue;
        if matches!(self.field, Field::Other | Field::Content) {
            return;
        }
        let parsed = self.kept.as_deref().and_then(read_lossless);
        let Some(value) = parsed else {
            tally.unread();
            return;
        };
        match self.field {
            Field::Type => self.kind = value.as_str().map(str::to_owned),
            Field::Model => tally.model(Some(&value)),
            Field::StopReason => tally.stop_reason(Some(&value)),
            Field::Usage => {
                self.usage_seen |= value.is_object();
                tally.usage(Some(value), UsageSource::Document);
            }
            Field::Error => {
                self.error_is_typed = value.get("type").is_some_and(Value::is_string);
                tally.error(Some(&value));
            }
            Field::Content | Field::Other => {}
        }
    }

    /// The document is whole.
    fn ended(&mut self, tally: &mut Tally) {
        match self.kind.as_deref() {
            Some("error") if self.error_is_typed => tally.provider_error(),
            Some("error") => {}
            Some("message") => {
                tally.started();
                tally.finished();
            }
            _ if self.usage_seen => {
                tally.started();
                tally.finished();
            }
            _ => {}
        }
    }
}
