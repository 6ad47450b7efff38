//! Reading a content: every byte that is given out was proven just before.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

use blake3::hazmat::ChainingValue;

use crate::tree::apply::{Contents, Parts};
use crate::tree::content::{ContentId, Groups};
use crate::tree::entry::File;

use super::Store;
use super::error::StoreError;
use super::record::{self, CHUNK, Key};

/// A content of the store, open for reading. It holds at most one chunk in memory.
pub struct Content<'a> {
    store: &'a Store,
    id: ContentId,
    size: u64,
    /// Where [`Read`] goes on.
    at: u64,
    /// The chunks' values; none for a small content, which is in `piece` as a whole.
    chunks: Option<Vec<ChainingValue>>,
    /// The piece in memory.
    piece: Vec<u8>,
    /// First byte of it in the content; nothing when none was read.
    from: Option<u64>,
}

impl Store {
    /// Opens a content.
    ///
    /// # Errors
    /// When it is not here, cannot be read, or was changed on the disk.
    pub fn open_content(&self, id: &ContentId) -> Result<Content<'_>, StoreError> {
        let mut piece = Vec::new();
        let is_small =
            *id == ContentId::of(b"") || self.shelves.read(&Key::Small(*id), &mut piece)?.is_some();
        if is_small {
            return Ok(Content {
                store: self,
                id: *id,
                size: u64::try_from(piece.len()).unwrap_or(u64::MAX),
                at: 0,
                chunks: None,
                piece,
                from: Some(0),
            });
        }
        let list = self.shelves.read(&Key::Large(*id), &mut piece)?;
        list.ok_or(StoreError::Missing(*id))?;
        let groups = record::parse_list(&piece).ok_or(StoreError::Missing(*id))?;
        piece.clear();
        Ok(Content {
            store: self,
            id: *id,
            size: groups.size(),
            at: 0,
            chunks: Some(record::chunk_values(&groups).collect()),
            piece,
            from: None,
        })
    }
}

impl Content<'_> {
    /// Which content.
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Its bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Reads bytes from `offset` on, as many as one piece has; 0 only for no bytes or at the end.
    ///
    /// # Errors
    /// When a chunk is gone or was changed on the disk.
    pub fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, StoreError> {
        if offset >= self.size || bytes.is_empty() {
            return Ok(0);
        }
        let inside = self.load(offset)?;
        let there = self.piece.get(inside..).unwrap_or_default();
        let length = there.len().min(bytes.len());
        if let (Some(from), Some(to)) = (there.get(..length), bytes.get_mut(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// As [`Self::read_at`], and when the content ends before.
    pub fn read_exact_at(&mut self, offset: u64, mut bytes: &mut [u8]) -> Result<(), StoreError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let end = offset.saturating_add(length);
        if end > self.size {
            return Err(StoreError::Range {
                content: self.id,
                offset,
                end,
            });
        }
        let mut at = offset;
        while !bytes.is_empty() {
            let read = self.read_at(at, bytes)?;
            at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
            bytes = bytes.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Fills `bytes`, which lie within one chunk, with what is kept from `offset` on, for a reader
    /// who proves it; false when that does not work as it should.
    pub(super) fn read_unproven_at(
        &self,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<bool, StoreError> {
        let number = usize::try_from(offset / CHUNK).ok();
        let value = self
            .chunks
            .as_ref()
            .zip(number)
            .and_then(|(chunks, number)| chunks.get(number));
        match value {
            Some(value) => {
                let shelves = &self.store.shelves;
                shelves.read_part(&Key::Chunk(*value), offset % CHUNK, bytes)
            }
            None => Ok(false),
        }
    }

    /// Reads everything and proves it.
    pub(super) fn read_through(&mut self) -> Result<(), StoreError> {
        let mut at = 0;
        while at < self.size {
            self.load(at)?;
            at = at.saturating_add(CHUNK);
        }
        Ok(())
    }

    /// Brings the piece with this byte into memory, and says where in it the byte is.
    fn load(&mut self, offset: u64) -> Result<usize, StoreError> {
        let Some(chunks) = &self.chunks else {
            return Ok(usize::try_from(offset).unwrap_or(usize::MAX));
        };
        let number = offset / CHUNK;
        let from = number.saturating_mul(CHUNK);
        if self.from != Some(from) {
            self.from = None;
            let value = usize::try_from(number).ok().and_then(|at| chunks.get(at));
            let missing = StoreError::Missing(self.id);
            let value = value.ok_or(missing)?;
            let read = self
                .store
                .shelves
                .read(&Key::Chunk(*value), &mut self.piece);
            if !matches!(read, Ok(Some(_))) {
                self.store.doubt();
            }
            read?.ok_or(StoreError::Missing(self.id))?;
            self.from = Some(from);
        }
        Ok(usize::try_from(offset.saturating_sub(from)).unwrap_or(usize::MAX))
    }
}

/// What a workspace's files are made of.
impl Contents for Store {
    /// A small content as it is kept: the applier proves it before it makes a file of it.
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        let mut bytes = Vec::new();
        let small = Key::Small(file.content);
        let kept = self.shelves.read_unproven(&small, &mut bytes);
        if kept.map_err(io::Error::other)? && u64::try_from(bytes.len()) == Ok(file.size) {
            return Ok(Box::new(io::Cursor::new(bytes)));
        }
        let content = self.open_content(&file.content).map_err(io::Error::other)?;
        if content.size() != file.size {
            return Err(io::Error::other(StoreError::Missing(file.content)));
        }
        Ok(Box::new(content))
    }

    /// Proves it once more: what is damaged is named, and forgotten.
    fn doubt(&self, file: &File) -> io::Result<()> {
        let content = self.open_content(&file.content);
        let proven = content.and_then(|mut content| content.read_through());
        proven.map_err(io::Error::other)
    }

    fn parts(&self, file: &File) -> io::Result<Option<Box<dyn Parts + '_>>> {
        let Some(groups) = self.groups(&file.content).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let content = self.open_content(&file.content).map_err(io::Error::other)?;
        Ok(Some(Box::new(Large { content, groups })))
    }
}

/// A content with its groups.
struct Large<'a> {
    content: Content<'a>,
    groups: Groups,
}

impl Parts for Large<'_> {
    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn read_exact_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let read = self.content.read_unproven_at(offset, bytes);
        if read.map_err(io::Error::other)? {
            return Ok(());
        }
        self.read_again_at(offset, bytes)
    }

    fn read_again_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let read = self.content.read_exact_at(offset, bytes);
        read.map_err(io::Error::other)
    }
}

impl Read for Content<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(self.at, bytes).map_err(io::Error::other)?;
        self.at = self
            .at
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

impl Seek for Content<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Contents may be anything: they are not printed.
impl fmt::Debug for Content<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Content")
            .field("id", &self.id)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
