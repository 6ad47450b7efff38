//! Contents from the other end and to it.

use std::io::Read;

use super::{Older, Peer, PeerError, Rule, declined, unasked};
use crate::mirror::store::StoreError;
use crate::tree::content::ContentId;
pub use crate::wire::mirror::Wish as Wanted;
use crate::wire::mirror::{ASKED_BYTES_MAX, ASKED_MAX, FromMirror, ToMirror};
use crate::wire::pieces::{self, Packer};

/// Where a content that is sent comes from.
pub struct Source<'a> {
    /// Its bytes.
    pub bytes: Box<dyn Read + 'a>,
    /// What the other end has of it.
    pub older: Option<Older>,
}

/// Told of bytes that are at the other end, and of those that were sent for them.
pub type Sent<'a> = &'a mut dyn FnMut(u64, u64);

/// A file that is sent ended early.
pub(super) fn shorter() -> PeerError {
    let text = "a file became shorter while it was sent; run it again";
    PeerError::Here(std::io::Error::other(text))
}

/// Keeps what comes.
pub trait Sink {
    /// Bytes of the part `index`, which follow those that came of it before. All bytes of a part
    /// come before any of the next.
    ///
    /// # Errors
    /// When they cannot be kept: the fetch ends.
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), StoreError>;

    /// The part is whole.
    ///
    /// # Errors
    /// As [`Self::take`].
    fn whole(&mut self, index: usize) -> Result<(), StoreError>;

    /// The other end has it no more; what came of it is worth nothing.
    ///
    /// # Errors
    /// As [`Self::take`].
    fn gone(&mut self, index: usize) -> Result<(), StoreError>;
}

impl Peer {
    /// Fetches parts of contents, in order.
    ///
    /// # Errors
    /// When other parts come than were asked for, or `sink` cannot keep them.
    pub fn fetch(&mut self, wanted: &[Wanted], sink: &mut dyn Sink) -> Result<(), PeerError> {
        let mut first = 0;
        while let Some(rest) = wanted.get(first..).filter(|rest| !rest.is_empty()) {
            let mut bytes = 0;
            let count = rest
                .iter()
                .take(ASKED_MAX)
                .take_while(|wanted| {
                    bytes += wanted.path.as_bytes().len();
                    bytes < ASKED_BYTES_MAX
                })
                .count()
                .max(1);
            let batch = rest.get(..count).unwrap_or(rest);
            self.fetch_batch(batch, first, sink)?;
            first += batch.len();
        }
        Ok(())
    }

    fn fetch_batch(
        &mut self,
        batch: &[Wanted],
        first: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), PeerError> {
        let (wishes, packs) = (batch.to_vec(), self.packs);
        self.line.say(&ToMirror::Fetch { wishes, packs })?;
        let mut at = Coming {
            batch,
            first,
            index: 0,
            came: 0,
        };
        loop {
            match self.line.hear()? {
                FromMirror::Pieces(came) => {
                    if came.parts.is_empty() {
                        return Err(Rule::Endless.into());
                    }
                    let bytes = pieces::open(&came).map_err(|_| Rule::Parts)?;
                    let mut rest = &*bytes;
                    for (index, length) in &came.parts {
                        let length = usize::try_from(*length).unwrap_or(usize::MAX);
                        let (part, after) = rest.split_at_checked(length).ok_or(Rule::Parts)?;
                        rest = after;
                        at.part(*index, part, sink)?;
                    }
                }
                FromMirror::Gone { wish } => at.gone(wish, sink)?,
                FromMirror::Done => return at.end(),
                other => return Err(unasked(other)),
            }
        }
    }

    /// What a part has that the bytes of a signature have not: nothing when most of it is new, or the
    /// other end has it no more. It is not proven.
    ///
    /// # Errors
    /// When the other end is lost or says something else.
    pub fn delta(
        &mut self,
        wanted: &Wanted,
        signature: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, PeerError> {
        self.line.say(&ToMirror::Delta {
            wish: wanted.clone(),
            signature: signature.into(),
        })?;
        match self.line.hear()? {
            FromMirror::Delta { delta } => Ok(Some(delta.into_owned())),
            other => declined(other),
        }
    }

    /// Sends contents that are wanted there, each by its id and size; what the other end has
    /// staged already is not sent. `source` gives a content's bytes, and may name an older version there:
    /// then only what is new is sent. Tells `progress` of bytes that are there, and how many were sent
    /// for them.
    ///
    /// # Errors
    /// When a content cannot be read or has another size, or the other end is lost.
    pub fn stage<'a>(
        &mut self,
        contents: &[(ContentId, u64)],
        source: &mut dyn FnMut(ContentId) -> std::io::Result<Source<'a>>,
        progress: Sent<'_>,
    ) -> Result<(), PeerError> {
        for batch in contents.chunks(ASKED_MAX) {
            self.line.say(&ToMirror::Stage {
                contents: batch.to_vec(),
            })?;
            let have = match self.line.hear()? {
                FromMirror::Staged { have } => have,
                other => return Err(unasked(other)),
            };
            let mut packer = Packer::new(self.packs);
            for ((content, size), index) in batch.iter().zip(0..) {
                if have.binary_search(&index).is_ok() {
                    continue;
                }
                let Source { mut bytes, older } = source(*content)?;
                match older {
                    Some(older) => {
                        let content = (index, *size, &older);
                        self.patch(&mut packer, content, &mut bytes, progress)?;
                    }
                    None => self.send(&mut packer, index, &mut bytes, *size, progress)?,
                }
            }
            self.flush(&mut packer, progress)?;
            self.line.say(&ToMirror::StageEnd)?;
            match self.line.hear()? {
                FromMirror::Done => {}
                other => return Err(unasked(other)),
            }
        }
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        packer: &mut Packer,
        index: u32,
        from: &mut dyn Read,
        size: u64,
        progress: Sent<'_>,
    ) -> Result<(), PeerError> {
        let mut left = size;
        loop {
            if packer.room() == 0 {
                self.flush(packer, progress)?;
            }
            let part = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(packer.room());
            let count = packer.add(index, part, |buffer| from.read(buffer))?;
            if count == 0 && left > 0 {
                return Err(shorter());
            }
            left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            if left == 0 {
                return Ok(());
            }
        }
    }

    pub(super) fn flush(
        &mut self,
        packer: &mut Packer,
        progress: Sent<'_>,
    ) -> Result<(), PeerError> {
        if packer.is_empty() {
            return Ok(());
        }
        let pieces = packer.take();
        let length = u64::from(pieces.length);
        self.line.say(&ToMirror::Pieces(pieces))?;
        progress(length, length);
        Ok(())
    }

    /// What was staged is not needed any more.
    ///
    /// # Errors
    /// When the other end is lost.
    pub fn unstage(&mut self) -> Result<(), PeerError> {
        self.line.say(&ToMirror::Unstage)?;
        match self.line.hear()? {
            FromMirror::Done => Ok(()),
            other => Err(unasked(other)),
        }
    }
}

/// Where in a batch the other end is.
struct Coming<'a> {
    batch: &'a [Wanted],
    /// The number of the batch's first part among all.
    first: usize,
    index: usize,
    came: u64,
}

impl Coming<'_> {
    fn part(&mut self, index: u32, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), PeerError> {
        let wanted = self.batch.get(self.index).ok_or(Rule::Parts)?;
        if usize::try_from(index) != Ok(self.index) {
            return Err(Rule::Parts.into());
        }
        self.came = self
            .came
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.came > wanted.length || (bytes.is_empty() && wanted.length > 0) {
            return Err(Rule::Parts.into());
        }
        let number = self.first + self.index;
        sink.take(number, bytes)?;
        if self.came == wanted.length {
            sink.whole(number)?;
            (self.index, self.came) = (self.index + 1, 0);
        }
        Ok(())
    }

    fn gone(&mut self, index: u32, sink: &mut dyn Sink) -> Result<(), PeerError> {
        if usize::try_from(index) != Ok(self.index) || self.index >= self.batch.len() {
            return Err(Rule::Index.into());
        }
        sink.gone(self.first + self.index)?;
        (self.index, self.came) = (self.index + 1, 0);
        Ok(())
    }

    fn end(&self) -> Result<(), PeerError> {
        if self.index == self.batch.len() {
            Ok(())
        } else {
            Err(Rule::Parts.into())
        }
    }
}
