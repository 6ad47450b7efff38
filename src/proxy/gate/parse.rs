//! The reader of [`super::json`]: one pass, no recursion.

use super::json::{Fault, JsonError, Kind, MAX_DEPTH, MAX_VALUES, Node, Tape, shown, wide};
use super::scan;

/// A reader that stands somewhere in a text.
pub(super) struct Parser<'a> {
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
    /// A reader at the start of a text that 32-bit offsets reach.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
            tape: Tape {
                text,
                // A value takes about 40 bytes in the bodies of real clients.
                nodes: Vec::with_capacity(text.len().min(MAX_VALUES) / 32),
            },
            open: Vec::new(),
        }
    }

    /// Reads the whole text.
    pub(super) fn run(mut self) -> Result<Tape<'a>, JsonError> {
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
        let keys = || {
            let keys = object.children().filter_map(|(key, _)| key);
            keys.map(|key| key.node)
        };
        if keys().nth(PAIRS).is_some() {
            let mut all: Vec<_> = keys().map(|key| (self.tape.decoded(key), key)).collect();
            all.sort_unstable_by(|left, right| {
                left.0.cmp(&right.0).then(left.1.start.cmp(&right.1.start))
            });
            let twice = all.array_windows().find(|[left, right]| left.0 == right.0);
            return twice.map_or(Ok(()), |[_, again]| self.twice(again.1));
        }
        for (position, key) in keys().enumerate().skip(1) {
            if keys()
                .take(position)
                .any(|before| self.tape.same(before, key))
            {
                return self.twice(key);
            }
        }
        Ok(())
    }

    fn twice(&self, key: Node) -> Result<(), JsonError> {
        Err(JsonError {
            at: wide(key.start),
            fault: Fault::DuplicateKey(shown(&self.tape.decoded(key))),
        })
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
