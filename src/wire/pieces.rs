//! Contents on their way: parts of many files in one frame, packed where that pays.

use std::borrow::Cow;

use super::mirror::{PIECES_MAX, Pieces};

/// The level of packing: 400 MiB/s on text, and twice as much on nothing else.
const LEVEL: i32 = 1;
/// Packing that saves less than an eighth costs more than it saves on a fast line.
const WORTH_NUMERATOR: usize = 7;
const WORTH_DENOMINATOR: usize = 8;
/// After packing was not worth it, so many frames go as they are before it is tried again: random
/// bytes come in long runs.
const UNPACKED_RUN: u32 = 16;

/// Bytes at the beginning of a frame that tell whether to pack all of it.
const SAMPLE: usize = 32 * 1024;

/// Gathers parts of contents into frames.
#[derive(Debug)]
pub struct Packer {
    parts: Vec<(u32, u32)>,
    /// As long as a frame may be, or nothing before the first part: making it longer part by part
    /// would write zeros over all of it first.
    bytes: Vec<u8>,
    /// Bytes that the parts fill.
    filled: usize,
    packs: bool,
    unpacked: u32,
}

/// Why a frame of pieces is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPieces {
    /// Longer than a sender may make it.
    #[error("more than {PIECES_MAX} bytes of contents in one frame")]
    TooLong,
    /// Its parts are not as long as it says.
    #[error("parts of another length than the frame that holds them")]
    Lengths,
    /// It does not unpack to what it says.
    #[error("a packed frame that does not unpack to its length")]
    Packing,
}

impl Packer {
    /// One that packs, or that sends everything as it is (within one machine).
    pub const fn new(packs: bool) -> Self {
        Self {
            parts: Vec::new(),
            bytes: Vec::new(),
            filled: 0,
            packs,
            unpacked: 0,
        }
    }

    /// Room for so many bytes in the frame that is being filled.
    pub fn room(&self) -> usize {
        PIECES_MAX.saturating_sub(self.filled)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds a part of the content `index`, of at most [`Self::room`] bytes, by what `fill` reads
    /// into a buffer of that length; gives how many bytes it read.
    ///
    /// # Errors
    /// What `fill` gives; nothing is added then.
    pub fn add<E>(
        &mut self,
        index: u32,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; PIECES_MAX];
        }
        let end = self.filled.saturating_add(length.min(self.room()));
        let buffer = self.bytes.get_mut(self.filled..end).unwrap_or_default();
        let most = buffer.len();
        let count = fill(buffer)?.min(most);
        self.filled = self.filled.saturating_add(count);
        self.parts
            .push((index, u32::try_from(count).unwrap_or(u32::MAX)));
        Ok(count)
    }

    /// The frame, packed or not; the next one begins empty.
    pub fn take(&mut self) -> Pieces<'_> {
        let parts = std::mem::take(&mut self.parts);
        let filled = std::mem::take(&mut self.filled);
        let length = u32::try_from(filled).unwrap_or(u32::MAX);
        let less = self.packed(filled);
        Pieces {
            parts,
            length,
            packed: less.is_some(),
            bytes: match less {
                Some(less) => Cow::Owned(less),
                None => Cow::Borrowed(self.bytes.get(..filled).unwrap_or_default()),
            },
        }
    }

    /// The first bytes of the buffer, packed; nothing where that is not worth it.
    fn packed(&mut self, filled: usize) -> Option<Vec<u8>> {
        let bytes = self.bytes.get(..filled).unwrap_or_default();
        if !self.packs || bytes.is_empty() {
            return None;
        }
        if self.unpacked > 0 {
            self.unpacked -= 1;
            return None;
        }
        let sample = bytes.get(..SAMPLE).filter(|_| bytes.len() > 2 * SAMPLE);
        let less = match sample.map(worth_packing) {
            Some(None) => None,
            Some(Some(_)) | None => worth_packing(bytes),
        };
        if less.is_none() {
            self.unpacked = UNPACKED_RUN;
        }
        less
    }
}

/// Bytes packed, where that makes them enough fewer.
fn worth_packing(bytes: &[u8]) -> Option<Vec<u8>> {
    let less = zstd::bulk::compress(bytes, LEVEL).ok()?;
    (less.len() <= bytes.len() / WORTH_DENOMINATOR * WORTH_NUMERATOR).then_some(less)
}

/// Takes a frame apart: the bytes of all parts, one behind the other, as long as `parts` say.
///
/// # Errors
/// When the frame is not as it says; what a hostile sender makes it say costs at most
/// [`PIECES_MAX`] bytes.
pub fn open<'a>(pieces: &'a Pieces<'_>) -> Result<Cow<'a, [u8]>, BadPieces> {
    let length = usize::try_from(pieces.length).unwrap_or(usize::MAX);
    if length > PIECES_MAX {
        return Err(BadPieces::TooLong);
    }
    let all = pieces.parts.iter().map(|(_, length)| u64::from(*length));
    if all.sum::<u64>() != u64::from(pieces.length) {
        return Err(BadPieces::Lengths);
    }
    let bytes = if pieces.packed {
        let bytes = zstd::bulk::decompress(&pieces.bytes, length);
        Cow::Owned(bytes.map_err(|_| BadPieces::Packing)?)
    } else {
        Cow::Borrowed(&*pieces.bytes)
    };
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(BadPieces::Packing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(texts: &[&[u8]], packs: bool) -> Pieces<'static> {
        let mut packer = Packer::new(packs);
        for (text, index) in texts.iter().zip(0..) {
            let filled = packer.add(index, text.len(), |buffer| {
                buffer.copy_from_slice(text);
                Ok::<_, ()>(text.len())
            });
            assert_eq!(filled, Ok(text.len()));
        }
        let pieces = packer.take();
        Pieces {
            parts: pieces.parts.clone(),
            bytes: pieces.bytes.to_vec().into(),
            ..pieces
        }
    }

    /// What is packed comes out as it went in, and what does not get smaller is not packed.
    #[test]
    fn parts_come_out_as_they_went_in() {
        let text = b"one line and another line\n".repeat(100);
        for packs in [true, false] {
            let pieces = packed(&[&text, b"", b"x"], packs);
            assert_eq!(pieces.packed, packs);
            assert_eq!(pieces.parts, [(0, 2600), (1, 0), (2, 1)]);
            assert_eq!(open(&pieces).unwrap().len(), 2601);
            assert!(open(&pieces).unwrap().starts_with(&text));
        }
        assert!(!packed(&[b"abc"], true).packed);
    }

    /// M-23, M-26: lengths that do not add up, and frames that unpack to more than they say, end
    /// before more than a frame's memory is used.
    #[test]
    fn m23_m26_lengths_that_lie_are_refused() {
        let good = packed(&[&[7; 1000], &[8; 1000]], true);
        assert!(good.packed);
        let lie = |change: &dyn Fn(&mut Pieces<'static>)| {
            let mut bad = good.clone();
            change(&mut bad);
            open(&bad).map(Cow::into_owned).unwrap_err()
        };
        assert_eq!(lie(&|bad| bad.length = u32::MAX), BadPieces::TooLong);
        assert_eq!(lie(&|bad| bad.length = 2001), BadPieces::Lengths);
        let overflow = |bad: &mut Pieces<'static>| bad.parts = vec![(0, u32::MAX); 3];
        assert_eq!(lie(&overflow), BadPieces::Lengths);
        let short = |bad: &mut Pieces<'static>| (bad.length, bad.parts) = (10, vec![(0, 10)]);
        assert_eq!(lie(&short), BadPieces::Packing);
        let long = |bad: &mut Pieces<'static>| (bad.length, bad.parts) = (2001, vec![(0, 2001)]);
        assert_eq!(lie(&long), BadPieces::Packing);
        assert_eq!(lie(&|bad| bad.packed = false), BadPieces::Packing);
        assert_eq!(
            lie(&|bad| bad.bytes = vec![1; 99].into()),
            BadPieces::Packing
        );
    }
}
