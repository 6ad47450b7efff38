//! The bytes of files, by hash.
//!
//! A content's id is the BLAKE3 of all its bytes. BLAKE3 is a tree, and the values of its inner
//! nodes at every [`GROUP`] bytes cost nothing to keep while a file is hashed: two versions of a
//! large file are compared by them, and a content that is put together from parts is proven by
//! merging them, without reading it again.

use std::fmt;

use blake3::hazmat::{ChainingValue, HasherExt as _, Mode};
use serde::{Deserialize, Serialize};

/// Bytes of a group: 64 BLAKE3 chunks. An edit costs at least one group of traffic; a value of 32
/// bytes for each group is a two-thousandth of the content.
pub const GROUP: u64 = 64 * 1024;
/// Contents above this keep their groups; smaller ones move whole.
pub const GROUPED_ABOVE: u64 = 1024 * 1024;

/// Names the bytes of a file: their BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContentId(pub [u8; 32]);

impl ContentId {
    /// Of bytes that are in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The hash's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for ContentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The values of a content's groups, in order: the last may stand for fewer than [`GROUP`] bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Groups {
    size: u64,
    values: Vec<ChainingValue>,
}

impl Groups {
    /// Takes the values of a content of `size` bytes; nothing when their number is not the
    /// content's, or when it has fewer than two groups (its id says all there is).
    pub fn new(size: u64, values: Vec<ChainingValue>) -> Option<Self> {
        let fits = u64::try_from(values.len()) == Ok(size.div_ceil(GROUP)) && values.len() > 1;
        fits.then_some(Self { size, values })
    }

    /// Bytes of the content.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// One value a group.
    pub fn values(&self) -> &[ChainingValue] {
        &self.values
    }

    /// The id of the content that has these groups: what came as groups is checked by it.
    pub fn content(&self) -> ContentId {
        let (left, right) = halves(&self.values);
        let root = blake3::hazmat::merge_subtrees_root(&merged(left), &merged(right), Mode::Hash);
        ContentId(*root.as_bytes())
    }
}

/// The value of one group: `bytes` stand at `offset`, a multiple of [`GROUP`], of a content that
/// has more than this group.
pub fn group_value(offset: u64, bytes: &[u8]) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The value of neighbouring groups as one node of the content's tree: a power of two of them that
/// stand at a multiple of their number, or the last ones of the content, and not the whole content.
pub fn span_value(values: &[ChainingValue]) -> ChainingValue {
    merged(values)
}

/// BLAKE3 gives the left side the largest power of two that leaves something for the right.
fn halves(values: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    let half = values.len().div_ceil(2).next_power_of_two();
    values.split_at(half.min(values.len()))
}

fn merged(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [] => [0; 32],
        [one] => *one,
        more => {
            let (left, right) = halves(more);
            blake3::hazmat::merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of(bytes: &[u8]) -> Option<Groups> {
        let group = usize::try_from(GROUP).unwrap();
        let values = bytes
            .chunks(group)
            .zip(0..)
            .map(|(part, index)| group_value(index * GROUP, part))
            .collect();
        Groups::new(u64::try_from(bytes.len()).unwrap(), values)
    }

    /// The groups merge to the hash that the whole content has, for every shape of tree.
    #[test]
    fn groups_prove_a_content() {
        let group = usize::try_from(GROUP).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(40 * group).collect();
        for length in [
            group + 1,
            2 * group - 1,
            2 * group,
            3 * group,
            4 * group + 17,
            5 * group,
            31 * group + 1023,
            40 * group,
        ] {
            let bytes = &bytes[..length];
            let groups = groups_of(bytes).unwrap();
            assert_eq!(groups.content(), ContentId::of(bytes), "{length}");
        }
    }

    /// A list of another length is no list of this content.
    #[test]
    fn a_wrong_number_of_groups_is_refused() {
        assert!(Groups::new(GROUP, vec![[0; 32]]).is_none());
        assert!(Groups::new(GROUP + 1, vec![[0; 32]; 3]).is_none());
        assert!(Groups::new(u64::MAX, vec![[0; 32]; 2]).is_none());
        assert!(Groups::new(0, Vec::new()).is_none());
        assert!(Groups::new(GROUP + 1, vec![[0; 32]; 2]).is_some());
    }
}
