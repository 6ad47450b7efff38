//! Finding a credential where it must not be: its bytes as they are, and as base64, percent signs,
//! JSON and hexadecimal digits write them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::secret::Credential;
use crate::wire::digits::Digits;

/// A shorter encoded form could stand somewhere by chance: 48 bits.
const ENCODED_MIN: usize = 8;

/// What credentials may look like in a text.
pub struct Watch(Vec<Forms>);

/// What one credential may look like.
struct Forms {
    plain: Zeroizing<Vec<u8>>,
    encoded: Vec<Zeroizing<Vec<u8>>>,
    /// Bytes of the longest form.
    longest: usize,
}

impl Watch {
    /// Of one credential.
    pub fn of(credential: &Credential) -> Self {
        Self(vec![Forms::of(credential)])
    }

    /// Looks for another one too, when it is another.
    #[must_use]
    pub fn and(mut self, credential: &Credential) -> Self {
        if !self
            .0
            .iter()
            .any(|forms| *forms.plain == credential.expose())
        {
            self.0.push(Forms::of(credential));
        }
        self
    }

    /// Whether `text` holds one of them in one of its forms.
    pub fn finds(&self, text: &[u8]) -> bool {
        self.0.iter().any(|forms| forms.stand_in(text))
    }

    /// Bytes of the longest form.
    fn longest(&self) -> usize {
        let longest = self.0.iter().map(|forms| forms.longest);
        longest.max().unwrap_or(0)
    }
}

impl Forms {
    fn of(credential: &Credential) -> Self {
        let plain = Zeroizing::new(credential.expose().to_vec());
        let mut encoded = base64_forms(&plain);
        let digits = hexadecimal(&plain);
        encoded.push(Zeroizing::new(digits.to_ascii_uppercase()));
        encoded.push(digits);
        encoded.extend(json_forms(&plain));
        encoded.retain(|form| form.len() >= ENCODED_MIN && **form != *plain);
        // Each byte as `%XX` is the longest way to write it.
        let longest = plain.len().saturating_mul(3);
        Self {
            plain,
            encoded,
            longest,
        }
    }

    fn stand_in(&self, text: &[u8]) -> bool {
        holds(text, &self.plain)
            || self.encoded.iter().any(|form| holds(text, form))
            || (text.contains(&b'%') && holds(&Zeroizing::new(without_percent(text)), &self.plain))
    }
}

/// Looks through a stream that comes in pieces: what completes the credential is found before it is
/// passed on.
#[derive(Default)]
pub struct Rolling {
    /// The end of what came, as long as a form without its last byte.
    tail: Zeroizing<Vec<u8>>,
}

impl Rolling {
    /// Whether the stream holds the credential, with this piece at its end.
    pub fn finds(&mut self, watch: &Watch, piece: &[u8]) -> bool {
        let mut joined = Zeroizing::new(Vec::with_capacity(self.tail.len() + piece.len()));
        joined.extend_from_slice(&self.tail);
        joined.extend_from_slice(piece);
        let found = watch.finds(&joined);
        let kept = joined
            .len()
            .saturating_sub(watch.longest().saturating_sub(1));
        self.tail = Zeroizing::new(joined.get(kept..).unwrap_or_default().to_vec());
        found
    }
}

fn holds(text: &[u8], form: &[u8]) -> bool {
    memchr::memmem::find(text, form).is_some()
}

/// What base64 makes of the bytes inside a longer text: one form for each place that they can have in a
/// group of three, without the digits that their neighbours share.
fn base64_forms(plain: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = Vec::new();
    for (before, shared) in [(0, 0), (1, 2), (2, 3)] {
        let mut bytes = Zeroizing::new(vec![0; before]);
        bytes.extend_from_slice(plain);
        let whole = bytes.len().saturating_mul(8) / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let digits = Zeroizing::new(engine.encode(&*bytes));
            let own = digits.as_bytes().get(shared..whole).unwrap_or_default();
            forms.push(Zeroizing::new(own.to_vec()));
        }
    }
    forms
}

fn hexadecimal(plain: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut digits = Zeroizing::new(String::with_capacity(plain.len().saturating_mul(2)));
    // Writing to a string cannot fail.
    let _written = write!(digits, "{}", Digits(plain));
    Zeroizing::new(digits.as_bytes().to_vec())
}

/// What a JSON string makes of the bytes, with slashes escaped and without.
fn json_forms(plain: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut escaped = Zeroizing::new(Vec::with_capacity(plain.len()));
    let mut with_slashes = Zeroizing::new(Vec::with_capacity(plain.len()));
    for byte in plain {
        if matches!(byte, b'"' | b'\\') {
            escaped.push(b'\\');
            with_slashes.push(b'\\');
        } else if *byte == b'/' {
            with_slashes.push(b'\\');
        }
        escaped.push(*byte);
        with_slashes.push(*byte);
    }
    vec![escaped, with_slashes]
}

/// The text with every `%XX` as the byte that it stands for.
fn without_percent(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let pair = after.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = pair
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::CredentialKind;

    fn watch(secret: &str) -> Watch {
        let bytes = Zeroizing::new(secret.as_bytes().to_vec());
        Watch::of(&Credential::new(CredentialKind::ApiKey, bytes).unwrap())
    }

    /// Every byte written by a function.
    fn each(secret: &str, write: fn(u8) -> String) -> String {
        secret.bytes().map(write).collect()
    }

    /// The credential is found as it is and as every common encoding writes it, whatever stands
    /// beside it; texts that only resemble it are not taken for it.
    #[test]
    fn t05_a_credential_is_found_in_every_form() {
        let secret = "sk-ant/api03+canary=\"4f7d\\2c9e";
        let watch = watch(secret);
        let mut texts = vec![
            format!("x-api-key: {secret}\n"),
            serde_json::json!({ "h": secret }).to_string(),
            serde_json::json!({ "h": secret })
                .to_string()
                .replace('/', "\\/"),
            each(secret, |byte| format!("{byte:02x}")),
            each(secret, |byte| format!("{byte:02X}")),
            each(secret, |byte| format!("%{byte:02X}")),
            secret.replace('/', "%2f").replace('+', "%2B"),
        ];
        for before in ["", "u", "us", "user:", "user::"] {
            for after in ["", "\n", ";;", "xyz"] {
                let text = format!("{before}{secret}{after}");
                texts.push(base64::engine::general_purpose::STANDARD.encode(&text));
                texts.push(base64::engine::general_purpose::URL_SAFE.encode(&text));
            }
        }
        for text in &texts {
            assert!(watch.finds(text.as_bytes()), "{text}");
        }
        for text in &texts {
            let (first, last) = text.as_bytes().split_at(text.len() / 2);
            let mut rolling = Rolling::default();
            let found = [first, b"", last].map(|piece| rolling.finds(&watch, piece));
            assert_eq!(found, [false, false, true], "{text}");
        }
        let cut = secret.get(1..).unwrap();
        for text in ["", "%", "%4", "sk-ant", "100%zz", cut] {
            assert!(!watch.finds(text.as_bytes()), "{text}");
        }
    }
}
