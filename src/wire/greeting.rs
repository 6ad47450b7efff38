//! The host side's first bytes: they prove that the right program runs, and end whatever a login
//! shell printed before it.

use std::fmt;
use std::str::FromStr;

use super::digits::Digits;

/// What stands before every greeting. No text begins so.
const MAGIC: &[u8; 8] = b"\x00lproxy\x01";
/// Both ends must be of this version: messages carry no versions of their own. Raised with every
/// change to a message.
pub const VERSION: u16 = 5;
/// Bytes of a nonce.
const NONCE_BYTES: usize = 16;
/// Bytes of a greeting: magic, nonce, version.
pub const GREETING_BYTES: usize = 8 + NONCE_BYTES + 2;
/// So much may stand before it: banners and start-up files print a screenful, not more.
pub const NOISE_MAX: usize = 64 * 1024;

/// Random bytes that the controller gives and the greeting repeats, so that no recorded output can
/// be taken for a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// From random bytes.
    pub const fn new(random: [u8; NONCE_BYTES]) -> Self {
        Self(random)
    }
}

/// 32 hexadecimal digits: safe as an argument in every shell.
impl fmt::Display for Nonce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digits(&self.0).fmt(out)
    }
}

/// A text that is not a nonce.
#[derive(Debug, thiserror::Error)]
#[error("a nonce has 32 hexadecimal digits")]
pub struct ParseNonceError;

impl FromStr for Nonce {
    type Err = ParseNonceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 2 * NONCE_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ParseNonceError);
        }
        let mut bytes = [0; NONCE_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ParseNonceError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseNonceError)?;
        }
        Ok(Self(bytes))
    }
}

/// The greeting that answers `nonce`.
pub fn greeting(nonce: Nonce) -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    let all = MAGIC
        .iter()
        .chain(&nonce.0)
        .copied()
        .chain(VERSION.to_le_bytes());
    for (at, byte) in greeting.iter_mut().zip(all) {
        *at = byte;
    }
    greeting
}

/// What the first bytes of a channel are.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// No greeting yet; more bytes are needed.
    Waiting,
    /// The greeting ends before this position; frames begin there.
    Greeted(usize),
    /// A greeting of another version.
    OtherVersion(u16),
    /// So much came that is no greeting.
    TooMuchNoise,
}

/// Looks for the greeting in everything that came so far.
pub fn find(received: &[u8], nonce: Nonce) -> Opening {
    let wanted = greeting(nonce);
    let (start, _) = wanted.split_at(GREETING_BYTES - 2);
    let Some(at) = received
        .windows(start.len())
        .position(|window| window == start)
    else {
        return if received.len() >= NOISE_MAX + GREETING_BYTES {
            Opening::TooMuchNoise
        } else {
            Opening::Waiting
        };
    };
    let end = at + GREETING_BYTES;
    match received.get(end - 2..end) {
        Some(&[low, high]) if u16::from_le_bytes([low, high]) == VERSION => Opening::Greeted(end),
        Some(&[low, high]) => Opening::OtherVersion(u16::from_le_bytes([low, high])),
        None | Some(_) => Opening::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = Nonce::new([7; NONCE_BYTES]);

    #[test]
    fn a_nonce_is_read_as_it_is_written() {
        assert_eq!(NONCE.to_string().parse::<Nonce>().unwrap(), NONCE);
        for bad in [
            "",
            "07",
            &"g".repeat(32),
            &"0".repeat(33),
            "++++++++++++++++++++++++++++++++",
        ] {
            assert!(bad.parse::<Nonce>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_greeting_is_found_behind_noise_and_only_whole() {
        let mut received = b"Welcome!\n\x00lproxy\x01 not yet\n".to_vec();
        assert_eq!(find(&received, NONCE), Opening::Waiting);
        for byte in greeting(NONCE) {
            assert_eq!(find(&received, NONCE), Opening::Waiting);
            received.push(byte);
        }
        let end = received.len();
        received.extend_from_slice(b"frames");
        assert_eq!(find(&received, NONCE), Opening::Greeted(end));
    }

    #[test]
    fn another_nonce_or_version_is_not_taken() {
        let other = Nonce::new([8; NONCE_BYTES]);
        assert_eq!(find(&greeting(other), NONCE), Opening::Waiting);
        let mut newer = greeting(NONCE);
        newer[GREETING_BYTES - 2] ^= 0xff;
        assert!(matches!(find(&newer, NONCE), Opening::OtherVersion(_)));
        let noise = vec![b'x'; NOISE_MAX + GREETING_BYTES];
        assert_eq!(find(&noise, NONCE), Opening::TooMuchNoise);
    }
}
