//! A strict JSON reader: RFC 8259 to the letter, and nothing that two parsers could read differently.
//!
//! One pass makes a flat tape of spans into the text; no string is copied. Refused beyond what the
//! grammar refuses: a byte order mark, duplicate keys at any level (compared after decoding), lone
//! surrogates, invalid UTF-8, nesting deeper than [`MAX_DEPTH`] and more than [`MAX_VALUES`] values.

use std::borrow::Cow;
use std::ops::Range;

use super::scan;

/// Containers inside one another. Real tool inputs and schemas stay below 40; many parsers stop
/// between 128 and 1,000.
pub const MAX_DEPTH: usize = 256;

/// Values and keys of one body. The tape takes 16 bytes for each, so this bounds it at 32 MiB; a
/// prompt that fills a window of a million tokens has fewer.
pub const MAX_VALUES: usize = 2_000_000;

/// What is wrong with a text that should be JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct JsonError {
    /// Offset of the first byte that is wrong.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// Ways in which a text is not strict JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A byte order mark stands in front.
    #[error("byte order mark")]
    ByteOrderMark,
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8")]
    NotUtf8,
    /// The text is longer than offsets of 32 bits reach.
    #[error("text too long")]
    TooLong,
    /// The text ends inside a value, or is empty.
    #[error("unexpected end")]
    End,
    /// No value, or another byte than the grammar has there.
    #[error("unexpected byte")]
    Unexpected,
    /// Something follows the value.
    #[error("data after the value")]
    Trailing,
    /// A number that the grammar does not have.
    #[error("malformed number")]
    Number,
    /// A control character inside a string.
    #[error("control character in a string")]
    Control,
    /// An escape that the grammar does not have.
    #[error("malformed escape in a string")]
    Escape,
    /// A surrogate without its other half.
    #[error("lone surrogate in a string")]
    LoneSurrogate,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    Depth,
    /// More than [`MAX_VALUES`] values.
    #[error("more than {MAX_VALUES} values")]
    Values,
    /// A key that the object already has.
    #[error("duplicate key '{0}'")]
    DuplicateKey(String),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string, or a key.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    end: u32,
    /// Index after the whole subtree.
    next: u32,
    kind: Kind,
    escaped: bool,
}

/// A text and where each of its values stands.
#[derive(Debug)]
pub struct Tape<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

/// One value of a tape.
#[derive(Clone, Copy, Debug)]
pub struct Value<'t> {
    tape: &'t Tape<'t>,
    index: u32,
    node: Node,
}

fn wide(narrow: u32) -> usize {
    usize::try_from(narrow).unwrap_or(usize::MAX)
}

impl<'a> Tape<'a> {
    /// Reads one JSON text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its offset.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let fail = |at, fault| Err(JsonError { at, fault });
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return fail(0, Fault::ByteOrderMark);
        }
        if u32::try_from(bytes.len()).is_err() {
            return fail(0, Fault::TooLong);
        }
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return fail(error.valid_up_to(), Fault::NotUtf8),
        };
        let parser = Parser {
            bytes,
            at: 0,
            tape: Tape {
                text,
                // A value takes about 40 bytes in the bodies of real clients.
                nodes: Vec::with_capacity(bytes.len().min(MAX_VALUES) / 32),
            },
            open: Vec::new(),
        };
        parser.run()
    }

    /// The outermost value.
    pub fn root(&self) -> Option<Value<'_>> {
        self.value(0)
    }

    fn value(&self, index: u32) -> Option<Value<'_>> {
        let node = *self.nodes.get(wide(index))?;
        Some(Value {
            tape: self,
            index,
            node,
        })
    }

    /// Where a value stands, such as `messages[2].content[0].type`; empty for the outermost.
    pub fn path(&self, target: Value<'_>) -> String {
        let mut path = String::new();
        let mut here = self.root();
        while let Some(value) = here {
            here = None;
            for (position, (key, child)) in value.children().enumerate() {
                let first = key.map_or(child.index, |key| key.index);
                if (first..child.node.next).contains(&target.index) {
                    match key {
                        Some(key) if path.is_empty() => path = key.shown(),
                        Some(key) => path = format!("{path}.{}", key.shown()),
                        None => path = format!("{path}[{position}]"),
                    }
                    here = Some(child);
                    break;
                }
            }
        }
        path
    }

    /// Whether two keys say the same after decoding.
    fn same(&self, left: Node, right: Node) -> bool {
        if left.escaped || right.escaped {
            self.decoded(left) == self.decoded(right)
        } else {
            self.inside(left) == self.inside(right)
        }
    }

    /// The text between a string's quotes, escapes as written.
    fn inside(&self, node: Node) -> &str {
        let inside = wide(node.start).saturating_add(1)..wide(node.end).saturating_sub(1);
        self.text.get(inside).unwrap_or_default()
    }

    fn decoded(&self, node: Node) -> Cow<'_, str> {
        let raw = self.inside(node);
        if node.escaped {
            Cow::Owned(scan::unescape(raw))
        } else {
            Cow::Borrowed(raw)
        }
    }
}

impl<'t> Value<'t> {
    /// What it is.
    pub fn kind(self) -> Kind {
        self.node.kind
    }

    /// Where it stands in the text, quotes and brackets included.
    pub fn span(self) -> Range<usize> {
        wide(self.node.start)..wide(self.node.end)
    }

    /// The text of the value as it stands.
    pub fn raw(self) -> &'t str {
        self.tape.text.get(self.span()).unwrap_or_default()
    }

    /// The decoded string; `None` when it is none.
    pub fn string(self) -> Option<Cow<'t, str>> {
        (self.node.kind == Kind::String).then(|| self.tape.decoded(self.node))
    }

    /// Whether it is this string, after decoding.
    pub fn is(self, text: &str) -> bool {
        if self.node.kind != Kind::String {
            false
        } else if self.node.escaped {
            self.tape.decoded(self.node) == text
        } else {
            self.tape.inside(self.node) == text
        }
    }

    /// The number, when it is written as plain digits that fit.
    pub fn plain_integer(self) -> Option<u64> {
        let digits = self.raw();
        (self.node.kind == Kind::Number && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())
            .flatten()
    }

    /// The decoded string made fit for a message: printable ASCII, at most 60 characters.
    pub fn shown(self) -> String {
        shown(&self.string().unwrap_or(Cow::Borrowed(self.raw())))
    }

    /// Members of an object or items of an array; nothing else has children.
    pub fn children(self) -> Children<'t> {
        let first = match self.node.kind {
            Kind::Array | Kind::Object => self.index.saturating_add(1),
            _ => self.node.next,
        };
        Children {
            tape: self.tape,
            next: first,
            end: self.node.next,
            keyed: self.node.kind == Kind::Object,
        }
    }

    /// The member of that name.
    pub fn member(self, name: &str) -> Option<Value<'t>> {
        if self.node.kind != Kind::Object {
            return None;
        }
        self.children()
            .find(|(key, _)| key.is_some_and(|key| key.is(name)))
            .map(|(_, value)| value)
    }
}

/// Iterates over the children of a value, each with its key where there is one.
#[derive(Clone, Debug)]
pub struct Children<'t> {
    tape: &'t Tape<'t>,
    next: u32,
    end: u32,
    keyed: bool,
}

impl<'t> Iterator for Children<'t> {
    type Item = (Option<Value<'t>>, Value<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let key = if self.keyed {
            let key = self.tape.value(self.next)?;
            self.next = key.node.next;
            Some(key)
        } else {
            None
        };
        let value = self.tape.value(self.next)?;
        self.next = value.node.next;
        Some((key, value))
    }
}

/// Makes a foreign text fit for a message: printable ASCII, at most 60 characters.
pub fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut out = String::new();
    for character in text.chars() {
        if out.len() >= MOST {
            out.push_str("...");
            break;
        }
        if character.is_ascii_graphic() || character == ' ' {
            out.push(character);
        } else {
            out.extend(character.escape_unicode());
        }
    }
    out
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    tape: Tape<'a>,
    /// Containers that are not closed yet.
    open: Vec<Open>,
}

#[derive(Clone, Copy)]
struct Open {
    node: u32,
    object: bool,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<Tape<'a>, JsonError> {
        loop {
            self.space();
            if self.value()? {
                continue;
            }
            // A value is whole: go on to the next one of the same container, or leave it.
            loop {
                self.space();
                let Some(open) = self.open.last().copied() else {
                    return match self.peek() {
                        None => Ok(self.tape),
                        Some(_) => self.fail(Fault::Trailing),
                    };
                };
                match (self.peek(), open.object) {
                    (Some(b','), object) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        self.close(open)?;
                    }
                    (None, _) => return self.fail(Fault::End),
                    _ => return self.fail(Fault::Unexpected),
                }
            }
        }
    }

    /// Reads one value, or opens a container and gives `true` when a value must follow.
    fn value(&mut self) -> Result<bool, JsonError> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(opening @ (b'{' | b'[')) => return self.container(opening == b'{'),
            Some(b'-' | b'0'..=b'9') => {
                let Some(end) = scan::number(self.bytes, start) else {
                    return self.fail(Fault::Number);
                };
                self.at = end;
                self.push(start, Kind::Number, false)?;
            }
            Some(b't') => self.word(b"true", Kind::Bool)?,
            Some(b'f') => self.word(b"false", Kind::Bool)?,
            Some(b'n') => self.word(b"null", Kind::Null)?,
            Some(_) => return self.fail(Fault::Unexpected),
            None => return self.fail(Fault::End),
        }
        Ok(false)
    }

    fn container(&mut self, object: bool) -> Result<bool, JsonError> {
        if self.open.len() >= MAX_DEPTH {
            return self.fail(Fault::Depth);
        }
        let start = self.at;
        self.at += 1;
        let node = self.push(
            start,
            if object { Kind::Object } else { Kind::Array },
            false,
        )?;
        let open = Open { node, object };
        self.open.push(open);
        self.space();
        match (self.peek(), object) {
            (Some(b'}'), true) | (Some(b']'), false) => {
                self.at += 1;
                self.close(open)?;
                Ok(false)
            }
            (_, true) => {
                self.key()?;
                Ok(true)
            }
            (_, false) => Ok(true),
        }
    }

    fn close(&mut self, open: Open) -> Result<(), JsonError> {
        self.open.pop();
        let end = narrow(self.at);
        let next = narrow(self.tape.nodes.len());
        if let Some(node) = self.tape.nodes.get_mut(wide(open.node)) {
            node.end = end;
            node.next = next;
        }
        if open.object {
            self.duplicates(open.node)?;
        }
        Ok(())
    }

    /// Refuses an object that has one key twice.
    fn duplicates(&self, object: u32) -> Result<(), JsonError> {
        /// Up to here comparing each pair is cheaper than sorting.
        const PAIRS: usize = 12;
        let Some(object) = self.tape.value(object) else {
            return Ok(());
        };
        let fail = |key: Node| {
            Err(JsonError {
                at: wide(key.start),
                fault: Fault::DuplicateKey(shown(&self.tape.decoded(key))),
            })
        };
        let keys = || {
            object
                .children()
                .filter_map(|(key, _)| key.map(|key| key.node))
        };
        let mut seen = [None::<Node>; PAIRS];
        let mut count = 0;
        for (key, place) in keys().zip(&mut seen) {
            *place = Some(key);
            count += 1;
        }
        for (position, key) in seen.iter().flatten().enumerate() {
            let mut earlier = seen.iter().take(position).flatten();
            if earlier.any(|before| self.tape.same(*before, *key)) {
                return fail(*key);
            }
        }
        if count == PAIRS {
            let mut all: Vec<_> = keys().map(|key| (self.tape.decoded(key), key)).collect();
            all.sort_unstable_by(|left, right| {
                left.0.cmp(&right.0).then(left.1.start.cmp(&right.1.start))
            });
            let twice = all.array_windows().find(|[left, right]| left.0 == right.0);
            if let Some([_, again]) = twice {
                return fail(again.1);
            }
        }
        Ok(())
    }

    fn key(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(_) => return self.fail(Fault::Unexpected),
            None => return self.fail(Fault::End),
        }
        self.space();
        match self.peek() {
            Some(b':') => {
                self.at += 1;
                Ok(())
            }
            Some(_) => self.fail(Fault::Unexpected),
            None => self.fail(Fault::End),
        }
    }

    fn string(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        match scan::string(self.bytes, start) {
            Ok((end, escaped)) => {
                self.at = end;
                self.push(start, Kind::String, escaped)?;
                Ok(())
            }
            Err((at, fault)) => Err(JsonError { at, fault }),
        }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<(), JsonError> {
        let start = self.at;
        let end = start.saturating_add(word.len());
        if self.bytes.get(start..end) != Some(word) {
            return self.fail(Fault::Unexpected);
        }
        self.at = end;
        self.push(start, kind, false)?;
        Ok(())
    }

    fn push(&mut self, start: usize, kind: Kind, escaped: bool) -> Result<u32, JsonError> {
        if self.tape.nodes.len() >= MAX_VALUES {
            return self.fail(Fault::Values);
        }
        let index = narrow(self.tape.nodes.len());
        self.tape.nodes.push(Node {
            start: narrow(start),
            end: narrow(self.at),
            next: index.saturating_add(1),
            kind,
            escaped,
        });
        Ok(index)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn fail<T>(&self, fault: Fault) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, fault })
    }
}

/// Offsets fit: the text was measured before.
fn narrow(wide: usize) -> u32 {
    u32::try_from(wide).unwrap_or(u32::MAX)
}
