//! A strict JSON reader: RFC 8259 to the letter, and nothing that two parsers could read differently.
//!
//! One pass makes a flat tape of spans into the text; no string is copied. Refused beyond what the
//! grammar refuses: a byte order mark, duplicate keys at any level (compared after decoding), lone
//! surrogates, invalid UTF-8, nesting deeper than [`MAX_DEPTH`] and more than [`MAX_VALUES`] values.

use std::borrow::Cow;
use std::ops::Range;

use super::parse::Parser;
use super::scan;

/// Containers inside one another. Real tool inputs and schemas stay below 40; many parsers stop
/// between 128 and 1,000.
pub const MAX_DEPTH: usize = 256;

/// Values and keys of one body. The tape takes 16 bytes for each, so this bounds it at 16 MB; a
/// prompt that fills a window of a million tokens has fewer.
pub const MAX_VALUES: usize = 1_000_000;

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

/// A value or a key, in the order of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub start: u32,
    pub end: u32,
    /// Index after the whole subtree.
    pub next: u32,
    pub kind: Kind,
    pub escaped: bool,
}

/// A text and where each of its values stands.
#[derive(Debug)]
pub struct Tape<'a> {
    pub(super) text: &'a str,
    pub(super) nodes: Vec<Node>,
}

/// One value of a tape.
#[derive(Clone, Copy, Debug)]
pub struct Value<'t> {
    tape: &'t Tape<'t>,
    index: u32,
    pub(super) node: Node,
}

pub(super) fn wide(narrow: u32) -> usize {
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
        Parser::new(text).run()
    }

    /// The outermost value.
    pub fn root(&self) -> Option<Value<'_>> {
        self.value(0)
    }

    pub(super) fn value(&self, index: u32) -> Option<Value<'_>> {
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
    pub(super) fn same(&self, left: Node, right: Node) -> bool {
        if left.escaped || right.escaped {
            return self.decoded(left) == self.decoded(right);
        }
        let bytes = |node: Node| self.text.as_bytes().get(wide(node.start)..wide(node.end));
        let lengths = [left, right].map(|node| node.end.saturating_sub(node.start));
        lengths.first() == lengths.last() && bytes(left) == bytes(right)
    }

    /// The text between a string's quotes, escapes as written.
    fn inside(&self, node: Node) -> &str {
        let inside = wide(node.start).saturating_add(1)..wide(node.end).saturating_sub(1);
        self.text.get(inside).unwrap_or_default()
    }

    pub(super) fn decoded(&self, node: Node) -> Cow<'_, str> {
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
