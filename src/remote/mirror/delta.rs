//! Deltas between what the tree has and what the controller has, both ways.

use std::borrow::Cow;
use std::os::unix::fs::FileExt as _;

use super::{Line, sending};
use crate::tree::content::ContentId;
use crate::tree::root::Root;
use crate::tree::stamp::Stamps;
use crate::wire::delta::{self, BASE_MAX, SEGMENT};
use crate::wire::mirror::{FromMirror, Patch, Wish};

/// A tree as the last scan saw it.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) root: &'a Root,
    pub(super) stamps: &'a Stamps,
}

/// Sends what a part of a content has that the signature's bytes have not.
pub(super) fn send(
    line: &mut Line,
    seen: Seen<'_>,
    wish: &Wish,
    signature: Vec<u8>,
) -> Result<(), String> {
    let data = seen.read(wish, SEGMENT)?;
    line.say(
        &match data.and_then(|data| delta::delta(signature, &data)) {
            Some(delta) => FromMirror::Delta {
                delta: Cow::Owned(delta),
            },
            None => FromMirror::Gone { wish: 0 },
        },
    )
}

/// Sends the signature of a part of a file.
pub(super) fn sign(line: &mut Line, seen: Seen<'_>, wish: &Wish) -> Result<(), String> {
    line.say(&match seen.read(wish, BASE_MAX)? {
        Some(base) => FromMirror::Signature {
            signature: Cow::Owned(delta::signature(&base)),
        },
        None => FromMirror::Gone { wish: 0 },
    })
}

/// The bytes that a patch gives; nothing when they are not those that it says.
pub(super) fn patched(seen: Seen<'_>, patch: &Patch<'_>) -> Result<Option<Vec<u8>>, String> {
    if u64::from(patch.length) > SEGMENT {
        return Err(TOO_LONG.to_owned());
    }
    let length = usize::try_from(patch.length).unwrap_or(usize::MAX);
    let base = seen.read(&patch.base, BASE_MAX)?;
    let made = base.and_then(|base| delta::apply(&base, &patch.delta, length));
    Ok(made.filter(|made| ContentId::of(made) == patch.hash))
}

const TOO_LONG: &str = "a delta of too many bytes";

impl Seen<'_> {
    /// A part of a file, when it still is what the scan saw.
    fn read(self, wish: &Wish, most: u64) -> Result<Option<Vec<u8>>, String> {
        if wish.length > most {
            return Err(TOO_LONG.to_owned());
        }
        let Some(file) = sending::open(self.root, self.stamps, wish) else {
            return Ok(None);
        };
        let mut data = vec![0; usize::try_from(wish.length).unwrap_or(usize::MAX)];
        let read = file.read_exact_at(&mut data, wish.offset);
        Ok(read.is_ok().then_some(data))
    }
}
