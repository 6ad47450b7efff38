//! A large content to the other end, which has an older version of it: segment by segment as deltas of
//! that, where they are short.

use std::io::{ErrorKind, Read};

use super::contents::{Sent, shorter};
use super::{Peer, PeerError, declined};
use crate::tree::content::{ContentId, GROUP, Groups};
use crate::tree::path::RelPath;
use crate::wire::delta::{self, SEGMENT};
use crate::wire::mirror::{FromMirror, Patch, ToMirror, Wish};
use crate::wire::pieces::Packer;

/// An older version that the other end has, of a content that is sent.
#[derive(Debug, Clone)]
pub struct Older {
    /// The file that had it in the other end's last scan.
    pub path: RelPath,
    /// Which content.
    pub content: ContentId,
    /// Its bytes.
    pub size: u64,
    /// The groups of the content that is sent.
    pub newer: Groups,
}

impl Peer {
    /// Sends a content; after a segment of which a delta is long, or gives other bytes there, the rest
    /// goes as it is.
    pub(super) fn patch(
        &mut self,
        packer: &mut Packer,
        (index, size, older): (u32, u64, &Older),
        from: &mut dyn Read,
        progress: Sent<'_>,
    ) -> Result<(), PeerError> {
        self.flush(packer, progress)?;
        let mut there = self.groups(older.content, older.size)?;
        let mut data = Vec::new();
        let mut at = 0;
        while at < size {
            let length = SEGMENT.min(size - at);
            data.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            from.read_exact(&mut data)
                .map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => shorter(),
                    _ => PeerError::Here(error),
                })?;
            let sent = match &there {
                Some(there) => self.patch_segment((index, at, &data), older, there)?,
                None => None,
            };
            if let Some(sent) = sent {
                progress(length, sent);
            } else {
                there = None;
                self.send(packer, index, &mut data.as_slice(), length, progress)?;
            }
            at += length;
        }
        Ok(())
    }

    /// Sends one segment as a delta; how many bytes that took, or nothing when it was not taken.
    fn patch_segment(
        &mut self,
        (index, offset, data): (u32, u64, &[u8]),
        older: &Older,
        there: &Groups,
    ) -> Result<Option<u64>, PeerError> {
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let part = |offset, length| Wish {
            path: older.path.clone(),
            offset,
            length,
        };
        let (base, signature) = if is_there(&older.newer, there, offset, length) {
            (part(offset, length), delta::signature(data))
        } else {
            let base = delta::base(offset, length, older.newer.size(), older.size);
            let Some(base) = base else { return Ok(None) };
            let base = part(base.start, base.end.saturating_sub(base.start));
            match self.sign(base.clone())? {
                Some(signature) => (base, signature),
                None => return Ok(None),
            }
        };
        let Some(delta) = delta::delta(signature, data) else {
            return Ok(None);
        };
        let sent = u64::try_from(delta.len()).unwrap_or(u64::MAX);
        self.line.say(&ToMirror::Patch(Patch {
            content: index,
            base,
            delta: delta.into(),
            length: u32::try_from(length).unwrap_or(u32::MAX),
            hash: ContentId::of(data),
        }))?;
        match self.line.hear()? {
            FromMirror::Done => Ok(Some(sent)),
            other => declined(other),
        }
    }

    /// The signature of a part of a file there.
    fn sign(&mut self, wish: Wish) -> Result<Option<Vec<u8>>, PeerError> {
        self.line.say(&ToMirror::Sign(wish))?;
        match self.line.hear()? {
            FromMirror::Signature { signature } => Ok(Some(signature.into_owned())),
            other => declined(other),
        }
    }
}

/// Whether the older version has the same groups at the same place.
fn is_there(newer: &Groups, older: &Groups, offset: u64, length: u64) -> bool {
    let range = || {
        let first = usize::try_from(offset / GROUP).ok()?;
        let end = offset.saturating_add(length).div_ceil(GROUP);
        Some(first..usize::try_from(end).ok()?)
    };
    let in_full = offset.saturating_add(length) <= older.size();
    let groups =
        range().map(|range| (newer.values().get(range.clone()), older.values().get(range)));
    in_full && groups.is_some_and(|(newer, older)| newer.is_some() && newer == older)
}
