//! Recognises the one event that makes up nearly all of a stream, a plain content delta, without
//! parsing JSON.
//!
//! The match is strict from the first byte to the last: an event that is accepted here has no key
//! beside the expected ones, so it cannot hide usage. Everything else takes the long way.

/// What a plain delta adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeltaKind {
    /// Text, tool input.
    Visible,
    /// Thinking.
    Thinking,
    /// The signature of thinking that may not have been shown.
    Signature,
}

/// A delta that only adds content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlainDelta {
    /// What it adds to.
    pub(super) kind: DeltaKind,
    /// Bytes of the text it adds, as UTF-8, escapes resolved.
    pub(super) bytes: u64,
}

/// The type of a delta, its one key, and what it adds to.
const KINDS: [(&[u8], &[u8], DeltaKind); 4] = [
    (b"\"text_delta\"", b"\"text\"", DeltaKind::Visible),
    (
        b"\"input_json_delta\"",
        b"\"partial_json\"",
        DeltaKind::Visible,
    ),
    (b"\"thinking_delta\"", b"\"thinking\"", DeltaKind::Thinking),
    (
        b"\"signature_delta\"",
        b"\"signature\"",
        DeltaKind::Signature,
    ),
];

/// Reads `block`, the lines of one event without the blank one, as a plain content delta.
pub(super) fn plain_delta(block: &[u8]) -> Option<PlainDelta> {
    let mut at = Cursor { rest: block };
    if at.eat(b"event:") {
        at.eat(b" ");
        at.expect(b"content_block_delta")?;
        at.line_end()?;
    }
    at.expect(b"data:")?;
    at.sequence(&[b"{", b"\"type\"", b":", b"\"content_block_delta\"", b","])?;
    at.sequence(&[b"\"index\"", b":"])?;
    at.digits()?;
    at.sequence(&[b",", b"\"delta\"", b":", b"{", b"\"type\"", b":"])?;
    at.spaces();
    let (_, key, kind) = KINDS.into_iter().find(|(name, _, _)| at.eat(name))?;
    at.sequence(&[b",", key, b":", b"\""])?;
    let bytes = at.text()?;
    at.sequence(&[b"}", b"}"])?;
    at.spaces();
    if !at.rest.is_empty() {
        at.line_end()?;
    }
    at.rest.is_empty().then_some(PlainDelta { kind, bytes })
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn eat(&mut self, word: &[u8]) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, word: &[u8]) -> Option<()> {
        self.eat(word).then_some(())
    }

    fn spaces(&mut self) {
        while self.eat(b" ") {}
    }

    /// Words with any spaces before each.
    fn sequence(&mut self, words: &[&[u8]]) -> Option<()> {
        words.iter().try_for_each(|word| {
            self.spaces();
            self.expect(word)
        })
    }

    fn digits(&mut self) -> Option<()> {
        self.spaces();
        let count = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.rest = self.rest.get(count..)?;
        (count > 0).then_some(())
    }

    fn line_end(&mut self) -> Option<()> {
        (self.eat(b"\r\n") || self.eat(b"\n") || self.eat(b"\r")).then_some(())
    }

    /// The rest of a string whose opening quote was taken: its length with escapes resolved.
    fn text(&mut self) -> Option<u64> {
        let whole = self.rest;
        let mut bytes: usize = 0;
        let mut used: usize = 0;
        loop {
            let run = memchr::memchr2(b'"', b'\\', self.rest)?;
            bytes = bytes.checked_add(run)?;
            used = used.checked_add(run)?;
            let ends = self.rest.get(run) == Some(&b'"');
            if ends {
                std::str::from_utf8(whole.get(..used)?).ok()?;
                self.rest = self.rest.get(run.checked_add(1)?..)?;
                return u64::try_from(bytes).ok();
            }
            let escape = self.rest.get(run.checked_add(1)?..)?;
            let (length, adds) = escaped(escape)?;
            let taken = length.checked_add(1)?;
            bytes = bytes.checked_add(adds)?;
            used = used.checked_add(taken)?;
            self.rest = self.rest.get(run.checked_add(taken)?..)?;
        }
    }
}

/// Length of what follows a backslash, and the UTF-8 bytes that it stands for.
fn escaped(after: &[u8]) -> Option<(usize, usize)> {
    match after.first()? {
        b'u' => {
            let digits = std::str::from_utf8(after.get(1..5)?).ok()?;
            let bytes = match u16::from_str_radix(digits, 16).ok()? {
                0..0x80 => 1,
                // Two bytes, or half of a pair that takes four.
                0x80..0x800 | 0xD800..0xE000 => 2,
                _ => 3,
            };
            Some((5, bytes))
        }
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some((1, 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(bytes: u64) -> PlainDelta {
        PlainDelta {
            kind: DeltaKind::Visible,
            bytes,
        }
    }

    #[test]
    fn the_usual_delta_is_counted_without_parsing() {
        let block = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}      }\n";
        assert_eq!(plain_delta(block), Some(visible(5)));
        let spaced = b"data:{\"type\": \"content_block_delta\", \"index\": 12, \"delta\": {\"type\": \"input_json_delta\", \"partial_json\": \"{\\\"a\\\": \\u00e9\\ud83d\\ude00\\n\"}}\r\n";
        assert_eq!(plain_delta(spaced), Some(visible(13)));
    }

    #[test]
    fn a_delta_with_any_other_key_takes_the_long_way() {
        for block in [
            &b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"},\"usage\":{\"output_tokens\":9}}\n"[..],
            b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"},\"type\":\"message_delta\"}\n",
            b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\ndata: {}\n",
            b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xff\"}}\n",
            b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\x\"}}\n",
            b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a",
            b"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n",
            b"",
        ] {
            assert_eq!(plain_delta(block), None, "{:?}", String::from_utf8_lossy(block));
        }
    }
}
