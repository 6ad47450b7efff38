//! The hash chain: each entry's hash covers the one before it, so the last hash stands for all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::digits::Digits;

/// Separates the chain's hashes from every other use of BLAKE3.
const CONTEXT: &str = "labproxy 2026-11 ledger chain v1";

/// The hash of one entry and of all before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryHash([u8; 32]);

impl EntryHash {
    /// The hash before the first entry of the ledger named `ledger_id`.
    pub(super) fn genesis(ledger_id: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, ledger_id))
    }

    /// The hash of an entry that follows this one.
    pub(super) fn next(&self, seq: u64, session: &str, at_nanos: i64, body: &[u8]) -> Self {
        // Every part but the last has a fixed or a stated length: no two entries hash alike.
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(&seq.to_le_bytes());
        hasher.update(&at_nanos.to_le_bytes());
        hasher.update(&[u8::try_from(session.len()).unwrap_or(u8::MAX)]);
        hasher.update(session.as_bytes());
        hasher.update(body);
        Self(*hasher.finalize().as_bytes())
    }

    /// The 32 bytes.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hash read back.
    pub(super) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digits(&self.0).fmt(f)
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not an entry's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry's hash is 64 lower-case hexadecimal digits")]
pub struct ParseHashError;

impl FromStr for EntryHash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(ParseHashError),
        };
        let mut bytes = [0u8; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(ParseHashError);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for EntryHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A place in the chain: entry `seq` and its hash. Entry 0 is the beginning, before any entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The entry's number.
    pub seq: u64,
    /// Its hash.
    pub hash: EntryHash,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash reads back from its own text, and from no other.
    #[test]
    fn hashes_read_back_and_nothing_else_does() {
        let hash = EntryHash::genesis(b"x");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for bad in [String::new(), "ab".into(), "g".repeat(64), "A".repeat(64)] {
            assert_eq!(bad.parse::<EntryHash>(), Err(ParseHashError));
        }
    }

    /// Each part of an entry changes its hash.
    #[test]
    fn every_part_of_an_entry_is_hashed() {
        let zero = EntryHash::genesis(b"x");
        let plain = zero.next(1, "ses_a", 5, b"{}");
        for other in [
            EntryHash::genesis(b"y").next(1, "ses_a", 5, b"{}"),
            zero.next(2, "ses_a", 5, b"{}"),
            zero.next(1, "ses_", 5, b"a{}"),
            zero.next(1, "ses_a", 6, b"{}"),
            zero.next(1, "ses_a", 5, b"{ }"),
        ] {
            assert_ne!(plain, other);
        }
    }
}
