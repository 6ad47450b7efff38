//! One record of a pack: a header of 64 bytes, then what it holds.
//!
//! The header: a mark (4 bytes), the kind (1), zeros (3), bytes that follow (4), the number of the
//! chunk in its content (4), the hash (32), and the beginning of the BLAKE3 of all this (16).
//! Numbers are little-endian. The hash proves what follows, so that a record is believed whoever
//! wrote it:
//!
//! - `s`, a content of at most [`GROUPED_ABOVE`] bytes: the hash is its id;
//! - `c`, a chunk of a larger content: the hash is its value as a node of that content's BLAKE3;
//! - `l`, a larger content: its size (8 bytes) and the values of its groups, which merge to the
//!   hash, its id.

use blake3::hazmat::ChainingValue;

use crate::tree::content::{ContentId, GROUP, GROUPED_ABOVE, Groups, group_value, span_value};

/// Bytes of a header.
pub(super) const HEADER: usize = 64;
/// Bytes of a chunk: an edit in a large file writes one. 16 groups, so that a chunk is one node of
/// the content's BLAKE3 tree; a smaller one would cost a record for less than a disk writes at once.
pub const CHUNK: u64 = 16 * GROUP;
/// Longest list of groups, bytes: of a file of 128 GiB, more than any limit on a file allows.
pub(super) const LIST_MAX: u32 = 64 * 1024 * 1024 + 8;

const MARK: [u8; 4] = *b"lpr1";
const CHECKED: usize = 48;

/// What a record is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// A whole content.
    Small(ContentId),
    /// A chunk of contents.
    Chunk(ChainingValue),
    /// The list of a content's chunks.
    Large(ContentId),
}

/// What a record says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: Key,
    /// Which chunk of its content; 0 for others.
    pub(super) chunk: u32,
    /// Bytes that follow.
    pub(super) length: u32,
}

impl Key {
    pub(super) const fn letter(&self) -> u8 {
        match self {
            Self::Small(_) => b's',
            Self::Chunk(_) => b'c',
            Self::Large(_) => b'l',
        }
    }

    pub(super) const fn hash(&self) -> &[u8; 32] {
        match self {
            Self::Small(ContentId(hash)) | Self::Large(ContentId(hash)) | Self::Chunk(hash) => hash,
        }
    }

    pub(super) const fn of(letter: u8, hash: [u8; 32]) -> Option<Self> {
        match letter {
            b's' => Some(Self::Small(ContentId(hash))),
            b'c' => Some(Self::Chunk(hash)),
            b'l' => Some(Self::Large(ContentId(hash))),
            _ => None,
        }
    }

    /// Most bytes of a record of the kind.
    fn most(&self) -> u64 {
        match self {
            Self::Small(_) => GROUPED_ABOVE,
            Self::Chunk(_) => CHUNK,
            Self::Large(_) => u64::from(LIST_MAX),
        }
    }
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut rest = bytes.as_mut_slice();
        let mut put = |part: &[u8]| {
            if let Some((here, behind)) = std::mem::take(&mut rest).split_at_mut_checked(part.len())
            {
                here.copy_from_slice(part);
                rest = behind;
            }
        };
        put(&MARK);
        put(&[self.key.letter(), 0, 0, 0]);
        put(&self.length.to_le_bytes());
        put(&self.chunk.to_le_bytes());
        put(self.key.hash());
        let (said, check) = bytes.split_at_mut(CHECKED);
        let hash = blake3::hash(said);
        for (place, byte) in check.iter_mut().zip(hash.as_bytes()) {
            *place = *byte;
        }
        bytes
    }

    /// Nothing when the bytes are no header.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let (said, check) = bytes.split_first_chunk::<CHECKED>()?;
        if !blake3::hash(said).as_bytes().starts_with(check) {
            return None;
        }
        let (mark, rest) = said.split_first_chunk::<4>()?;
        let ([letter, 0, 0, 0], rest) = rest.split_first_chunk::<4>()? else {
            return None;
        };
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (chunk, hash) = rest.split_first_chunk::<4>()?;
        let header = Self {
            key: Key::of(*letter, *hash.first_chunk::<32>()?)?,
            chunk: u32::from_le_bytes(*chunk),
            length: u32::from_le_bytes(*length),
        };
        let fits = u64::from(header.length) <= header.key.most();
        (*mark == MARK && fits).then_some(header)
    }

    /// Whether these bytes are what the record is found by.
    pub(super) fn is_of(&self, payload: &[u8]) -> bool {
        if u32::try_from(payload.len()) != Ok(self.length) {
            return false;
        }
        match &self.key {
            Key::Small(id) => ContentId::of(payload) == *id,
            Key::Chunk(value) => chunk_value(self.chunk, payload) == *value,
            Key::Large(id) => parse_list(payload).is_some_and(|groups| groups.content() == *id),
        }
    }
}

/// The value of a chunk that stands as the `chunk`th of its content.
pub(super) fn chunk_value(chunk: u32, bytes: &[u8]) -> ChainingValue {
    group_value(u64::from(chunk).saturating_mul(CHUNK), bytes)
}

/// The values of a content's chunks.
pub(super) fn chunk_values(groups: &Groups) -> impl Iterator<Item = ChainingValue> {
    let each = usize::try_from(CHUNK / GROUP).unwrap_or(1);
    groups.values().chunks(each).map(span_value)
}

pub(super) fn encode_list(groups: &Groups) -> Vec<u8> {
    let mut bytes = groups.size().to_le_bytes().to_vec();
    bytes.extend(groups.values().iter().flatten());
    bytes
}

/// Nothing when the bytes are no list of a content that has chunks.
pub(super) fn parse_list(bytes: &[u8]) -> Option<Groups> {
    let (size, rest) = bytes.split_first_chunk()?;
    let (values, rest) = rest.as_chunks::<32>();
    let size = u64::from_le_bytes(*size);
    let groups = Groups::new(size, values.to_vec())?;
    (rest.is_empty() && size > GROUPED_ABOVE).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header reads back, and every changed bit of it is found.
    #[test]
    fn t31_a_changed_header_is_no_header() {
        let header = Header {
            key: Key::Small(ContentId::of(b"x")),
            chunk: 0,
            length: 1,
        };
        let bytes = header.encode();
        assert_eq!(Header::parse(&bytes), Some(header));
        assert!(header.is_of(b"x"));
        assert!(!header.is_of(b"y") && !header.is_of(b"xx"));
        for bit in 0..HEADER * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&changed), None, "bit {bit}");
        }
        let long = Header {
            length: u32::MAX,
            ..header
        };
        assert_eq!(Header::parse(&long.encode()), None);
    }

    /// A chunk is one only where it stands: the same bytes elsewhere have another value.
    #[test]
    fn chunks_merge_to_their_content() {
        let bytes: Vec<u8> = (0..=250).cycle().take((5 << 20) + 77).collect();
        let group = usize::try_from(GROUP).unwrap();
        let values: Vec<ChainingValue> = bytes
            .chunks(group)
            .zip(0..)
            .map(|(part, index)| group_value(index * GROUP, part))
            .collect();
        let groups = Groups::new(u64::try_from(bytes.len()).unwrap(), values).unwrap();
        let chunks = bytes.chunks(usize::try_from(CHUNK).unwrap()).zip(0..);
        let direct: Vec<_> = chunks
            .map(|(part, index)| chunk_value(index, part))
            .collect();
        assert_eq!(chunk_values(&groups).collect::<Vec<_>>(), direct);
        assert_eq!(parse_list(&encode_list(&groups)), Some(groups.clone()));
        assert_eq!(parse_list(&encode_list(&groups)[..40]), None);
        let header = Header {
            key: Key::Chunk(direct[1]),
            chunk: 1,
            length: u32::try_from(CHUNK).unwrap(),
        };
        assert!(header.is_of(&bytes[1 << 20..2 << 20]));
        assert!(!Header { chunk: 2, ..header }.is_of(&bytes[1 << 20..2 << 20]));
    }
}
