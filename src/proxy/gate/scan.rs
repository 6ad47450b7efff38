//! Scanning of JSON strings and numbers, eight bytes at a time where nothing happens.

use super::json::Fault;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks, in the high bit of each byte, the bytes that end a run of plain string content: a quote,
/// a backslash or a control character. Only the lowest mark is exact.
const fn stops(word: u64) -> u64 {
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    let marks = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    marks & HIGH
}

/// The first offset from `at` on that ends a run of plain string content, or the length.
fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    let (words, rest) = bytes.get(at..).unwrap_or_default().as_chunks::<8>();
    for word in words {
        let marks = stops(u64::from_le_bytes(*word));
        if marks != 0 {
            let byte = usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0);
            return at.saturating_add(byte);
        }
        at = at.saturating_add(8);
    }
    let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    at.saturating_add(rest.iter().position(stop).unwrap_or(rest.len()))
}

/// Reads the string that begins with the quote at `start`: the offset after its closing quote and
/// whether it has escapes.
///
/// # Errors
/// The offset of what is wrong, and what it is.
pub(super) fn string(bytes: &[u8], start: usize) -> Result<(usize, bool), (usize, Fault)> {
    let mut at = start.saturating_add(1);
    let mut escaped = false;
    loop {
        at = plain_end(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok((at.saturating_add(1), escaped)),
            Some(b'\\') => {
                escaped = true;
                at = escape(bytes, at)?;
            }
            Some(_) => return Err((at, Fault::Control)),
            None => return Err((at, Fault::End)),
        }
    }
}

/// The offset after the escape that begins with the backslash at `at`.
fn escape(bytes: &[u8], at: usize) -> Result<usize, (usize, Fault)> {
    match bytes.get(at.saturating_add(1)) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at.saturating_add(2)),
        Some(b'u') => {
            let unit = hex(bytes, at).ok_or((at, Fault::Escape))?;
            let after = at.saturating_add(6);
            match unit {
                0xd800..=0xdbff => match hex(bytes, after) {
                    Some(0xdc00..=0xdfff) => Ok(after.saturating_add(6)),
                    _ => Err((at, Fault::LoneSurrogate)),
                },
                0xdc00..=0xdfff => Err((at, Fault::LoneSurrogate)),
                _ => Ok(after),
            }
        }
        Some(_) => Err((at, Fault::Escape)),
        None => Err((at, Fault::End)),
    }
}

/// The unit of an escape `\uXXXX` at `at`.
fn hex(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at.saturating_add(6))?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit: u32, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(unit.saturating_mul(16).saturating_add(digit))
    })
}

/// Decodes the inside of a string that [`string`] has accepted.
pub(super) fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut characters = escape.chars();
        let decoded = match characters.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let (character, length) = unicode(raw, raw.len() - rest.len() + plain.len());
                rest = raw
                    .get(raw.len() - rest.len() + plain.len() + length..)
                    .unwrap_or_default();
                out.push(character);
                continue;
            }
            Some(same) => same,
            None => break,
        };
        out.push(decoded);
        rest = characters.as_str();
    }
    out.push_str(rest);
    out
}

/// The character of the escape `\uXXXX` at `at`, with its second half where it has one, and the
/// escape's length.
fn unicode(raw: &str, at: usize) -> (char, usize) {
    let bytes = raw.as_bytes();
    let unit = hex(bytes, at).unwrap_or(0xfffd);
    let second = hex(bytes, at.saturating_add(6)).unwrap_or(0);
    if (0xd800..=0xdbff).contains(&unit) && (0xdc00..=0xdfff).contains(&second) {
        let scalar = 0x1_0000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
        (char::from_u32(scalar).unwrap_or('\u{fffd}'), 12)
    } else {
        (char::from_u32(unit).unwrap_or('\u{fffd}'), 6)
    }
}

/// The offset after the number that begins at `at`, or `None` when it is malformed.
pub(super) fn number(bytes: &[u8], mut at: usize) -> Option<usize> {
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then(|| from.saturating_add(count))
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits(at)?,
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(at)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_plain_content_end_at_the_right_byte() {
        for length in 0..40 {
            for stop in [b'"', b'\\', 0x00, 0x1f, b'\n'] {
                let mut text = vec![b'a'; length];
                text.push(stop);
                text.extend_from_slice(b"\x80\xff trailing bytes that do not matter");
                assert_eq!(plain_end(&text, 0), length, "{stop:#x} after {length}");
            }
            for plain in [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                let text = vec![plain; length];
                assert_eq!(plain_end(&text, 0), length, "{plain:#x} × {length}");
            }
        }
    }

    #[test]
    fn escapes_decode_to_what_serde_json_decodes() {
        for raw in [
            r"\u0041\u00e9\u20ac",
            r"\ud83d\ude00 and \\ and \/ \b\f\n\r\t\u0000",
            r#"\"\uffff\ufffe"#,
            "plain",
        ] {
            let quoted = format!("\"{raw}\"");
            let ours = unescape(raw);
            let theirs: String = serde_json::from_str(&quoted).unwrap();
            assert_eq!(ours, theirs);
        }
    }
}
