//! The one escaper: every string that somebody else made passes here before a terminal, a log line
//! or a table shows it.
//!
//! What could move the cursor, change colours, set a title, turn the reading direction, hide or
//! break a line is written out as `\x1b`, `\n` or `\u{202e}`; what is not UTF-8 is written out as
//! `\xff`. Text that needs none of this is shown as it is, and escaping twice is the same as once.

use std::fmt::Write as _;

/// Most characters of one foreign string that are shown: enough for any name, id or path that means
/// something, too few to push a screen away.
pub const MAX_SHOWN: usize = 512;

/// Most characters of one line of ours that holds foreign strings.
pub const MAX_LINE: usize = 4_096;

/// The text in a form that a terminal can only print, at most [`MAX_SHOWN`] characters of it.
pub fn escape(text: impl AsRef<[u8]>) -> String {
    escape_capped(text.as_ref(), MAX_SHOWN)
}

/// A whole line of ours that may hold foreign strings, at most [`MAX_LINE`] characters of it.
pub fn escape_line(line: impl AsRef<[u8]>) -> String {
    escape_capped(line.as_ref(), MAX_LINE)
}

/// The bytes in a form that a terminal can only print, cut after `cap` characters with a note of
/// how many bytes are missing.
pub fn escape_capped(bytes: &[u8], cap: usize) -> String {
    let mut shown = Shown {
        text: String::with_capacity(bytes.len().min(cap)),
        room: cap,
    };
    let mut read = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if !shown.push_char(character) {
                return shown.cut(bytes.len() - read);
            }
            read += character.len_utf8();
        }
        for byte in chunk.invalid() {
            if !shown.push(&format!("\\x{byte:02x}")) {
                return shown.cut(bytes.len() - read);
            }
            read += 1;
        }
    }
    shown.text
}

/// JSON text with the same meaning in which risky characters are written as `\u…`: what JSON itself
/// leaves as it is, such as C1 and bidi controls, cannot act on a terminal either.
pub fn json_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        // Outside strings JSON has no risky characters but white space.
        if matches!(character, '\n' | '\r' | '\t') || !is_risky(character) {
            safe.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _written = write!(safe, "\\u{unit:04x}");
        }
    }
    safe
}

/// Text that is already safe, and how many more characters fit.
struct Shown {
    text: String,
    room: usize,
}

impl Shown {
    /// Adds a character, written out where it must be; false when it does not fit.
    fn push_char(&mut self, character: char) -> bool {
        match character {
            '\n' => self.push("\\n"),
            '\r' => self.push("\\r"),
            '\t' => self.push("\\t"),
            _ if !is_risky(character) => {
                let mut utf8 = [0; 4];
                self.push(character.encode_utf8(&mut utf8))
            }
            _ if u32::from(character) <= 0xff => {
                self.push(&format!("\\x{:02x}", u32::from(character)))
            }
            _ => self.push(&format!("\\u{{{:x}}}", u32::from(character))),
        }
    }

    /// Adds text that is safe; false when it does not fit.
    fn push(&mut self, safe: &str) -> bool {
        let length = safe.chars().count();
        if length > self.room {
            return false;
        }
        self.room -= length;
        self.text.push_str(safe);
        true
    }

    /// The text with a note that `missing` bytes of it are not shown.
    fn cut(mut self, missing: usize) -> String {
        // Writing to a string cannot fail.
        let _written = write!(self.text, "… ({missing} more bytes)");
        self.text
    }
}

/// Whether a character can do something other than be printed where it stands.
fn is_risky(character: char) -> bool {
    // C0, DEL and C1.
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' // soft hyphen, grapheme joiner, Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // fillers without a face
            | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // isolates, invisible operators
            | '\u{fe00}'..='\u{fe0f}' // variation selectors
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' // tags and more variation selectors
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is harmless is shown as it is, in any script.
    #[test]
    fn plain_text_is_shown_as_it_is() {
        for text in [
            "",
            "claude-sonnet-4-5",
            "C:\\n no newline",
            "Prüfung 价格 🦀",
        ] {
            assert_eq!(escape(text), text);
        }
    }

    /// Each family of threat 37 is written out, whichever encoding it comes in.
    #[test]
    fn t37_nothing_that_a_terminal_acts_on_survives() {
        for (source, raw, shown) in [
            ("ESC", &b"a\x1b7b"[..], "a\\x1b7b"),
            ("CSI", b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            ("OSC", b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("DCS", b"\x1bPq\x1b\\", "\\x1bPq\\x1b\\"),
            ("C0", b"\x00\x08\x0c\x7f", "\\x00\\x08\\x0c\\x7f"),
            ("lines", b"a\r\nerror: fake\tb", "a\\r\\nerror: fake\\tb"),
            ("C1 in UTF-8", "\u{9b}31m".as_bytes(), "\\x9b31m"),
            ("C1 as a byte", b"\x9b31m", "\\x9b31m"),
            (
                "not UTF-8",
                b"\xff\xfe ok \xe2\x82",
                "\\xff\\xfe ok \\xe2\\x82",
            ),
            (
                "bidi override",
                "\u{202e}gpj.exe".as_bytes(),
                "\\u{202e}gpj.exe",
            ),
            (
                "bidi isolate",
                "\u{2066}x\u{2069}".as_bytes(),
                "\\u{2066}x\\u{2069}",
            ),
            (
                "marks",
                "\u{200e}\u{200f}\u{61c}".as_bytes(),
                "\\u{200e}\\u{200f}\\u{61c}",
            ),
            ("separator", "a\u{2028}b".as_bytes(), "a\\u{2028}b"),
            (
                "zero width",
                "a\u{200b}b\u{feff}".as_bytes(),
                "a\\u{200b}b\\u{feff}",
            ),
            ("tag", "\u{e0041}".as_bytes(), "\\u{e0041}"),
        ] {
            assert_eq!(escape(raw), shown, "{source}");
        }
    }

    /// Escaping what was escaped changes nothing, so two careful layers do no harm.
    #[test]
    fn escaping_twice_is_escaping_once() {
        let once = escape(b"\x1b]8;;http://x\x07\xff\n\\");
        assert_eq!(escape(&once), once);
    }

    /// A long string is cut at the cap, never inside an escape, and says how much is missing.
    #[test]
    fn a_long_string_is_cut_with_a_note() {
        assert_eq!(escape_capped(b"abcdef", 6), "abcdef");
        assert_eq!(escape_capped(b"abcdefg", 6), "abcdef… (1 more bytes)");
        assert_eq!(escape_capped(b"abc\x1bdefg", 6), "abc… (5 more bytes)");
        let flood = "a".repeat(10_000_000);
        assert_eq!(
            escape(&flood).chars().count(),
            512 + "… (9999488 more bytes)".chars().count()
        );
    }

    /// JSON keeps its meaning and loses what a terminal would act on.
    #[test]
    fn t37_json_is_escaped_without_changing_its_meaning() {
        let value = serde_json::json!({ "a\u{9b}": "\u{202e}x\u{e0041}\x7f\u{1b}é" });
        let safe = json_safe(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(
            safe,
            "{\n  \"a\\u009b\": \"\\u202ex\\udb40\\udc41\\u007f\\u001bé\"\n}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }
}
