//! Deltas: what a part of a large content has that an older version does not have anywhere near.
//!
//! Groups find what stayed at its place. Where something was inserted or taken out, everything behind
//! it has moved: then the end that has an older version sends a signature of it, and the other one
//! answers with what is new. The library computes both, by MD4, which proves nothing: whoever applies a
//! delta compares the result with a hash that it trusts, and has the bytes sent where they differ.

use std::io::{self, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use fast_rsync::{Signature, SignatureOptions, apply_limited, diff};

/// Most bytes that one delta gives: so a round trip to the far side of the world moves enough of them,
/// and what has nothing in common is told in a twentieth of a second.
pub const SEGMENT: u64 = 4 * 1024 * 1024;
/// Bytes below which asking for a delta costs more than sending them.
pub const WORTH: u64 = 4 * 64 * 1024;
/// Longest delta: with its head within a frame. What has more that is new is sent as it is.
pub const DELTA_MAX: usize = 768 * 1024;
/// Most bytes of the older version that are looked at for one segment.
pub const BASE_MAX: u64 = 16 * 1024 * 1024;
/// So far from where they should be bytes are looked for.
const SLACK: u64 = 1024 * 1024;
/// Bytes of a block, and of its MD4: the whole of it, so that nobody finds other bytes that have it.
const OPTIONS: SignatureOptions = SignatureOptions {
    block_size: 4096,
    crypto_hash_size: 16,
};
/// Bytes of a block's two sums.
const SUMS: usize = 4 + 16;
/// So many bytes are compared at a time, and then the clock is looked at. What lies across two of them comes
/// as it is: a hundredth.
const PIECE: usize = 512 * 1024;
/// After so long a delta is given up: honest bytes take a hundredth of it. Whoever chooses both the sums and the
/// bytes can have each position compared in full, which takes some seconds for a piece; the other end must
/// answer before it counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// A delta begins with four bytes that say so, and ends with one that ends it.
const BEGIN: usize = 4;
const END: usize = 1;

/// Where in an older version of `older` bytes the bytes are looked for that a newer one of `newer` has
/// at `offset`: there, and as far away as the version became longer or shorter. Nothing where there is no
/// such place.
pub fn base(offset: u64, length: u64, newer: u64, older: u64) -> Option<Range<u64>> {
    let moved = offset.saturating_add(older).checked_sub(newer);
    let moved = moved.unwrap_or(0);
    let (first, last) = (offset.min(moved), offset.max(moved));
    let around = |first: u64, last: u64| {
        let end = last.saturating_add(length).saturating_add(SLACK);
        first.saturating_sub(SLACK)..end.min(older)
    };
    let mut range = around(first, last);
    if range.end.saturating_sub(range.start) > BASE_MAX {
        range = around(moved, moved);
    }
    (range.start < range.end).then_some(range)
}

/// The signature of bytes of an older version.
pub fn signature(base: &[u8]) -> Vec<u8> {
    Signature::calculate(base, OPTIONS).into_serialized()
}

/// What `data` has that the signature's bytes do not have; nothing when that is most of it or takes too
/// long to find out, and for a signature that is none of ours: a length of blocks of somebody else's choice
/// may keep the library busy for ever.
pub fn delta(signature: Vec<u8>, data: &[u8]) -> Option<Vec<u8>> {
    delta_within(PATIENCE, signature, data)
}

fn delta_within(patience: Duration, signature: Vec<u8>, data: &[u8]) -> Option<Vec<u8>> {
    let head = self::signature(&[]);
    let sums = signature.strip_prefix(head.as_slice())?;
    let blocks = usize::try_from(BASE_MAX).ok()? / usize::try_from(OPTIONS.block_size).ok()?;
    if sums.len() % SUMS != 0 || sums.len() / SUMS > blocks {
        return None;
    }
    let signature = Signature::deserialize(signature).ok()?;
    let index = signature.index();
    let begun = Instant::now();
    let mut all = Bounded(Vec::new());
    let mut pieces = data.chunks(PIECE);
    // Of no bytes there is a delta, too.
    diff(&index, pieces.next().unwrap_or_default(), &mut all).ok()?;
    for piece in pieces {
        if begun.elapsed() >= patience {
            return None;
        }
        let mut delta = Bounded(Vec::new());
        diff(&index, piece, &mut delta).ok()?;
        all.0.truncate(all.0.len().saturating_sub(END));
        all.write_all(delta.0.get(BEGIN..)?).ok()?;
    }
    Some(all.0)
}

/// The bytes that a delta makes of those of the older version; nothing when it is none, or makes another
/// number of bytes. They are what the other end says: not proven.
pub fn apply(base: &[u8], delta: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut made = Vec::new();
    apply_limited(base, delta, &mut made, length).ok()?;
    (made.len() == length).then_some(made)
}

/// Takes no more than a delta may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > DELTA_MAX - self.0.len().min(DELTA_MAX) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a period.
    fn bytes(count: u32) -> Vec<u8> {
        let words = (0..count / 4).flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes());
        words.collect()
    }

    /// Bytes that moved are found, and only what is new is in the delta.
    #[test]
    fn what_moved_is_found() {
        let old = bytes(3 << 20);
        let mut new = old[..1 << 20].to_vec();
        new.extend_from_slice(b"some more");
        new.extend_from_slice(&old[1 << 20..]);
        let delta = delta(signature(&old), &new).unwrap();
        assert!(delta.len() < 60_000, "{}", delta.len());
        assert!(apply(&old, &delta, new.len()).unwrap() == new);
        assert!(apply(&old, &delta, new.len() - 1).is_none());
        assert!(apply(&old, &delta, new.len() + 1).is_none());
        assert!(apply(&old[..9], &delta, new.len()).is_none());
        assert!(apply(&old, &delta[..delta.len() - 1], new.len()).is_none());
    }

    /// Bytes that have nothing in common give no delta.
    #[test]
    fn what_is_new_gives_no_delta() {
        let old = vec![0; 1 << 20];
        assert!(delta(signature(&old), &bytes(1 << 20)).is_none());
        assert!(delta(signature(&[]), &bytes(1 << 20)).is_none());
        let short = bytes(1 << 10);
        let all = delta(signature(&[]), &short).unwrap();
        assert!(apply(&[], &all, short.len()).unwrap() == short);
    }

    /// One that takes too long is given up between two pieces.
    #[test]
    fn patience_ends() {
        let data = bytes(2 << 20);
        let none = Duration::ZERO;
        assert!(delta_within(none, signature(&data), &data).is_none());
        let one = &data[..PIECE];
        assert!(delta_within(none, signature(&data), one).is_some());
    }

    /// M-11: a signature of blocks of no length, of other hashes, with half a block or of too many is refused
    /// before the library sees it.
    #[test]
    fn m11_a_signature_of_other_blocks_is_refused() {
        let data = bytes(1 << 16);
        let good = signature(&data);
        assert!(delta(good.clone(), &data).is_some());
        for (at, value) in [
            (0, 0),
            (3, 0x37),
            (6, 0),
            (7, 1),
            (11, 0),
            (11, 8),
            (11, 17),
        ] {
            let mut bad = good.clone();
            if bad[at] == value {
                bad[at] ^= 1;
            } else {
                bad[at] = value;
            }
            assert!(delta(bad, &data).is_none(), "{at} {value}");
        }
        let mut zero = good.clone();
        zero[4..8].fill(0);
        assert!(delta(zero, &data).is_none());
        assert!(delta(good[..good.len() - 1].to_vec(), &data).is_none());
        assert!(delta(good[..11].to_vec(), &data).is_none());
        assert!(delta(Vec::new(), &data).is_none());
        let most = usize::try_from(BASE_MAX).unwrap() / 4096 * SUMS;
        let head = signature(&[]);
        let of = |sums: usize| [head.as_slice(), &vec![7; sums]].concat();
        assert!(delta(of(most), &data[..1_000]).is_some());
        assert!(delta(of(most + SUMS), &data[..1_000]).is_none());
    }

    /// Bytes are looked for at their place and where they would be after one insertion, within bounds.
    #[test]
    fn the_older_bytes_lie_near() {
        let mib = |count: u64| count << 20;
        assert_eq!(base(0, mib(1), mib(9), mib(9)), Some(0..mib(2)));
        assert_eq!(base(mib(8), mib(1), mib(9), mib(9)), Some(mib(7)..mib(9)));
        // One more at the beginning, one less.
        assert_eq!(base(mib(8), mib(1), mib(9), mib(8)), Some(mib(6)..mib(8)));
        assert_eq!(base(mib(7), mib(1), mib(8), mib(9)), Some(mib(6)..mib(9)));
        // Far away: only where it would be.
        let far = base(mib(500), mib(4), mib(600), mib(500)).unwrap();
        assert_eq!(far, mib(399)..mib(405));
        assert_eq!(base(0, 1, 1, 0), None);
        assert_eq!(base(mib(50), 1, mib(51), mib(1)), Some(0..mib(1)));
        assert_eq!(base(u64::MAX, u64::MAX, 0, 0), None);
    }
}
