//! The name of a mirror: what binds a root on one end to its state on the other.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PREFIX: &str = "mir_";
/// Two digits a byte.
const DIGITS: usize = 32;

/// 128 random bits that one pair of roots has and no other. Both ends record it beside the
/// root's identity, outside of the root; a directory made anew in a root's place does not get it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MirrorId([u8; 16]);

/// Why a text names no mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no mirror's id: one is 'mir_' and 32 hexadecimal digits")]
pub struct ParseMirrorIdError;

impl MirrorId {
    /// Of bytes that the caller took from the system's randomness.
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// `mir_` and 32 hexadecimal digits: safe in a path and in a log line.
impl fmt::Display for MirrorId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for MirrorId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for MirrorId {
    type Err = ParseMirrorIdError;

    fn from_str(text: &str) -> Result<Self, ParseMirrorIdError> {
        let digits = text.strip_prefix(PREFIX).ok_or(ParseMirrorIdError)?;
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() != DIGITS || !digits.bytes().all(lower) {
            return Err(ParseMirrorIdError);
        }
        u128::from_str_radix(digits, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_| ParseMirrorIdError)
    }
}

impl Serialize for MirrorId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MirrorId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_nothing_else_does() {
        let id = MirrorId::from_random(*b"\x00\x01\xff456789abcdef0");
        let text = id.to_string();
        assert!(text.starts_with("mir_0001ff34"), "{text}");
        assert_eq!(text.parse(), Ok(id));
        let sent = postcard::to_allocvec(&id).unwrap();
        assert_eq!(postcard::from_bytes::<MirrorId>(&sent).unwrap(), id);
        let upper = text.to_uppercase();
        let long = format!("{text}0");
        let bare = text.trim_start_matches("mir_");
        for bad in ["", "mir_", "mir_+1", "../x", &upper, &long, bare] {
            assert!(bad.parse::<MirrorId>().is_err(), "{bad}");
        }
    }
}
