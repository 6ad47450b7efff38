//! What of a large content is not at its place in the older version: by deltas where it only moved, else
//! as it is.

use std::ops::Range;

use super::large::Assembly;
use crate::mirror::peer::{Peer, PeerError, Sink, Wanted};
use crate::mirror::store::{Content, StoreError};
use crate::tree::content::{GROUP, Groups, group_value};
use crate::tree::path::RelPath;
use crate::wire::delta::{self, SEGMENT, WORTH};

/// Fetches the parts into the assembly. `older` is a version of the content that the store has;
/// `groups` prove what a delta gives before the assembly sees it. After a segment of which a delta gave
/// nothing the rest comes as it is.
///
/// # Errors
/// When the other end breaks a rule, or the store cannot keep what comes.
pub(super) fn fetch(
    peer: &mut Peer,
    mut older: Option<Content<'_>>,
    groups: &Groups,
    wanted: &[Wanted],
    assembly: &mut Assembly<'_, '_, '_>,
) -> Result<(), PeerError> {
    // From `first` to `at` parts come as they are.
    let (mut first, mut at) = (0, 0);
    while let Some(content) = &mut older
        && let Some(rest) = wanted.get(at..).filter(|rest| !rest.is_empty())
    {
        let Segment { parts, whole } = segment(rest);
        if whole.length < WORTH {
            at += parts;
            continue;
        }
        as_they_are(peer, wanted, first..at, assembly)?;
        first = at;
        match derive(peer, content, groups, &whole)? {
            Some(derived) => {
                at += parts;
                put(assembly, wanted, first..at, &derived)?;
                first = at;
            }
            None => older = None,
        }
        if assembly.is_gone() {
            return Ok(());
        }
    }
    as_they_are(peer, wanted, first..wanted.len(), assembly)
}

/// Parts that lie one behind the other.
struct Segment {
    parts: usize,
    whole: Wanted,
}

/// The first parts that lie one behind the other, as many as one delta may give.
fn segment(wanted: &[Wanted]) -> Segment {
    let mut segment = Segment {
        parts: 0,
        whole: Wanted {
            path: RelPath::ROOT,
            offset: 0,
            length: 0,
        },
    };
    for next in wanted {
        let Segment { parts, whole } = &mut segment;
        if *parts == 0 {
            *whole = next.clone();
        } else {
            let length = whole.length.saturating_add(next.length);
            if whole.offset.saturating_add(whole.length) != next.offset || length > SEGMENT {
                break;
            }
            whole.length = length;
        }
        *parts += 1;
    }
    segment
}

/// Bytes that a delta gave, proven.
struct Derived {
    bytes: Vec<u8>,
    /// Bytes that came for them.
    came: u64,
}

fn derive(
    peer: &mut Peer,
    older: &mut Content<'_>,
    groups: &Groups,
    wanted: &Wanted,
) -> Result<Option<Derived>, PeerError> {
    let base = delta::base(wanted.offset, wanted.length, groups.size(), older.size());
    let Some(base) = base else { return Ok(None) };
    let mut had = vec![0; usize_of(base.end.saturating_sub(base.start))];
    match older.read_exact_at(base.start, &mut had) {
        Ok(()) => {}
        // It is damaged: then nothing is made of it.
        Err(StoreError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let Some(delta) = peer.delta(wanted, delta::signature(&had))? else {
        return Ok(None);
    };
    let made = delta::apply(&had, &delta, usize_of(wanted.length));
    let proven = made.filter(|made| is_of(groups, wanted.offset, made));
    Ok(proven.map(|bytes| Derived {
        bytes,
        came: u64::try_from(delta.len()).unwrap_or(u64::MAX),
    }))
}

/// Whether these are the content's bytes from an offset on.
fn is_of(groups: &Groups, mut offset: u64, bytes: &[u8]) -> bool {
    bytes.chunks(usize_of(GROUP)).all(|group| {
        let value = groups.values().get(usize_of(offset / GROUP));
        let same = value.is_some_and(|value| *value == group_value(offset, group));
        offset = offset.saturating_add(GROUP);
        same
    })
}

/// Gives derived bytes to the assembly, part by part.
fn put(
    assembly: &mut Assembly<'_, '_, '_>,
    wanted: &[Wanted],
    parts: Range<usize>,
    derived: &Derived,
) -> Result<(), StoreError> {
    let (mut rest, mut came) = (derived.bytes.as_slice(), derived.came);
    for (part, index) in wanted
        .get(parts.clone())
        .unwrap_or_default()
        .iter()
        .zip(parts)
    {
        let (now, after) = rest.split_at(usize_of(part.length).min(rest.len()));
        // All of it is counted with the first part.
        assembly.derive(index, now, std::mem::take(&mut came))?;
        rest = after;
    }
    Ok(())
}

/// Fetches parts as they are.
fn as_they_are(
    peer: &mut Peer,
    wanted: &[Wanted],
    parts: Range<usize>,
    assembly: &mut Assembly<'_, '_, '_>,
) -> Result<(), PeerError> {
    let first = parts.start;
    let parts = wanted.get(parts).unwrap_or_default();
    peer.fetch(parts, &mut Behind { first, assembly })
}

/// Takes parts that are counted from another one on.
struct Behind<'a> {
    first: usize,
    assembly: &'a mut dyn Sink,
}

impl Sink for Behind<'_> {
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        self.assembly.take(self.first.saturating_add(index), bytes)
    }

    fn whole(&mut self, index: usize) -> Result<(), StoreError> {
        self.assembly.whole(self.first.saturating_add(index))
    }

    fn gone(&mut self, index: usize) -> Result<(), StoreError> {
        self.assembly.gone(self.first.saturating_add(index))
    }
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
