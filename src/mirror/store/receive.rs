//! How contents come into the store: proven by their hash before anything can find them.

use std::fmt;
use std::io::{self, Read, Write};

use blake3::hazmat::ChainingValue;

use crate::tree::content::{ContentId, GROUP, GROUPED_ABOVE, Groups, group_value, span_value};

use super::Store;
use super::content::Content;
use super::error::StoreError;
use super::record::{self, CHUNK, Header, Key};

/// Bytes that are read at once.
const READ: usize = 256 * 1024;

/// Takes in one content whose bytes come in order.
pub struct Writer<'a> {
    store: &'a Store,
    id: ContentId,
    size: u64,
    /// Bytes taken.
    taken: u64,
    /// Of the chunk that is not whole yet; of a small content all of it.
    gathered: Vec<u8>,
    values: Vec<ChainingValue>,
}

/// Takes in a large content whose groups are known: chunks in any order, and only those that the
/// store does not have.
pub struct Large<'a> {
    store: &'a Store,
    id: ContentId,
    groups: Groups,
    values: Vec<ChainingValue>,
    /// The content that a part was last taken from.
    held: Option<Content<'a>>,
}

/// What became of a content that was read.
#[derive(Debug)]
pub enum TakenIn {
    /// It is in the store.
    Whole,
    /// It was another one.
    Another,
    /// It could not be read.
    Unreadable(io::Error),
}

/// A piece of a chunk.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// Bytes that came.
    New(&'a [u8]),
    /// Bytes of a content that is in the store.
    Held {
        /// Which content.
        content: ContentId,
        /// Its first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl Store {
    /// Takes in a content that is in memory.
    ///
    /// # Errors
    /// When the bytes are another content, or cannot be written.
    pub fn put(&self, id: ContentId, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer(id, length_of(bytes));
        writer.take(bytes)?;
        writer.finish()
    }

    /// Takes in a content from where it is read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take_in(
        &self,
        id: ContentId,
        size: u64,
        mut from: impl Read,
    ) -> Result<TakenIn, StoreError> {
        let mut writer = self.writer(id, size);
        let mut buffer = vec![0; READ];
        let finished = loop {
            let count = match from.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(TakenIn::Unreadable(error)),
            };
            let part = buffer.get(..count).unwrap_or_default();
            if part.is_empty() {
                break writer.finish();
            }
            match writer.take(part) {
                Ok(()) => {}
                failed => break failed,
            }
        };
        match finished {
            Err(StoreError::NotTheContent(_)) => Ok(TakenIn::Another),
            finished => finished.map(|()| TakenIn::Whole),
        }
    }

    /// Takes in a content of `size` bytes that come in order.
    pub fn writer(&self, id: ContentId, size: u64) -> Writer<'_> {
        Writer {
            store: self,
            id,
            size,
            taken: 0,
            gathered: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Takes in a large content that has these groups.
    ///
    /// # Errors
    /// When the groups are those of another content, or the content is a small one.
    pub fn large(&self, id: ContentId, groups: Groups) -> Result<Large<'_>, StoreError> {
        if groups.size() <= GROUPED_ABOVE || groups.content() != id {
            return Err(StoreError::NotTheContent(id));
        }
        Ok(Large {
            store: self,
            id,
            values: record::chunk_values(&groups).collect(),
            groups,
            held: None,
        })
    }

    fn put_small(&self, id: ContentId, bytes: &[u8]) -> Result<(), StoreError> {
        if ContentId::of(bytes) != id {
            return Err(StoreError::NotTheContent(id));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.put_record(Key::Small(id), 0, bytes)
    }

    fn put_list(&self, id: ContentId, groups: &Groups) -> Result<(), StoreError> {
        self.put_record(Key::Large(id), 0, &record::encode_list(groups))
    }

    /// Appends a record that is proven.
    fn put_record(&self, key: Key, chunk: u32, payload: &[u8]) -> Result<(), StoreError> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header { key, chunk, length };
        let put = self.shelves.append(&header, payload);
        if put.is_err() {
            self.doubt();
        }
        put
    }
}

impl Writer<'_> {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When there are more than the content has, or they cannot be written.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        self.taken = self.taken.saturating_add(length_of(bytes));
        if self.taken > self.size {
            return Err(StoreError::NotTheContent(self.id));
        }
        if self.size <= GROUPED_ABOVE {
            self.gathered.extend_from_slice(bytes);
            return Ok(());
        }
        let chunk = usize_of(CHUNK);
        while !bytes.is_empty() {
            if self.gathered.is_empty()
                && let Some((whole, rest)) = bytes.split_at_checked(chunk)
            {
                self.put_chunk(whole)?;
                bytes = rest;
                continue;
            }
            let room = chunk.saturating_sub(self.gathered.len()).min(bytes.len());
            let (now, rest) = bytes.split_at(room);
            self.gathered.extend_from_slice(now);
            bytes = rest;
            if self.gathered.len() == chunk {
                self.put_gathered()?;
            }
        }
        Ok(())
    }

    fn put_gathered(&mut self) -> Result<(), StoreError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let put = self.put_chunk(&gathered);
        gathered.clear();
        self.gathered = gathered;
        put
    }

    fn put_chunk(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let first = self.values.len();
        let mut offset = length_of_groups(first);
        let number = u32::try_from(offset / CHUNK).unwrap_or(u32::MAX);
        for group in bytes.chunks(usize_of(GROUP)) {
            self.values.push(group_value(offset, group));
            offset = offset.saturating_add(GROUP);
        }
        let value = span_value(self.values.get(first..).unwrap_or_default());
        self.store.put_record(Key::Chunk(value), number, bytes)
    }

    /// Says that all bytes came: the content is in the store.
    ///
    /// # Errors
    /// When they are another content, or cannot be written.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if self.taken != self.size {
            return Err(StoreError::NotTheContent(self.id));
        }
        if self.size <= GROUPED_ABOVE {
            return self.store.put_small(self.id, &self.gathered);
        }
        if !self.gathered.is_empty() {
            self.put_gathered()?;
        }
        let wrong = StoreError::NotTheContent(self.id);
        let groups = Groups::new(self.size, self.values)
            .filter(|groups| groups.content() == self.id)
            .ok_or(wrong)?;
        self.store.put_list(self.id, &groups)
    }
}

/// Bytes of so many whole groups.
fn length_of_groups(count: usize) -> u64 {
    u64::try_from(count)
        .unwrap_or(u64::MAX)
        .saturating_mul(GROUP)
}

/// For whoever copies from a reader.
impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Large<'_> {
    /// The content's groups.
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The numbers of the chunks that the store lacks; the `n`th has the bytes from `n` times
    /// [`CHUNK`] on.
    pub fn missing(&self) -> Vec<u32> {
        let lacking = self.values.iter().zip(0..).filter(|(value, _)| {
            let key = Key::Chunk(**value);
            self.store.shelves.place(&key).is_none()
        });
        lacking.map(|(_, number)| number).collect()
    }

    /// Takes in one chunk, put together from its parts in order.
    ///
    /// # Errors
    /// When they are not the chunk that the content has there, a part is not in the store, or it
    /// cannot be written.
    pub fn put(&mut self, chunk: u32, parts: &[Part<'_>]) -> Result<(), StoreError> {
        let wanted = usize::try_from(chunk)
            .ok()
            .and_then(|chunk| self.values.get(chunk))
            .copied()
            .ok_or(StoreError::NotTheContent(self.id))?;
        let together;
        let bytes = if let [Part::New(bytes)] = parts {
            bytes
        } else {
            together = self.join(parts, false)?;
            together.as_slice()
        };
        if length_of(bytes) <= CHUNK && record::chunk_value(chunk, bytes) == wanted {
            return self.store.put_record(Key::Chunk(wanted), chunk, bytes);
        }
        // What was held may be damaged: read as proven it says so.
        let held = |part: &Part<'_>| matches!(part, Part::Held { .. });
        if parts.iter().any(held) {
            self.join(parts, true)?;
        }
        Err(StoreError::NotTheContent(self.id))
    }

    /// Puts parts together; the whole is proven by whoever asked, what is held by itself or not.
    fn join(&mut self, parts: &[Part<'_>], proven: bool) -> Result<Vec<u8>, StoreError> {
        let mut joined = Vec::new();
        for part in parts {
            let length = match part {
                Part::New(bytes) => length_of(bytes),
                Part::Held { length, .. } => *length,
            };
            if length_of(&joined).saturating_add(length) > CHUNK {
                return Err(StoreError::NotTheContent(self.id));
            }
            match part {
                Part::New(bytes) => joined.extend_from_slice(bytes),
                Part::Held {
                    content,
                    offset,
                    length,
                } => self.append_held(*content, (*offset, *length), proven, &mut joined)?,
            }
        }
        Ok(joined)
    }

    fn append_held(
        &mut self,
        id: ContentId,
        (offset, length): (u64, u64),
        proven: bool,
        joined: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let held = self.held.take().filter(|held| held.id() == id);
        let mut held = held.map_or_else(|| self.store.open_content(&id), Ok)?;
        let first = joined.len();
        joined.resize(first.saturating_add(usize_of(length)), 0);
        let place = joined.get_mut(first..).unwrap_or_default();
        let read = if proven {
            Ok(false)
        } else {
            held.read_unproven_at(offset, place)
        };
        let read = read.and_then(|done| {
            if done {
                return Ok(());
            }
            held.read_exact_at(offset, place)
        });
        self.held = Some(held);
        read
    }

    /// Says that no chunk is missing any more: the content is in the store.
    ///
    /// # Errors
    /// When chunks are missing, or the list of them cannot be written.
    pub fn finish(self) -> Result<(), StoreError> {
        if !self.missing().is_empty() {
            return Err(StoreError::Missing(self.id));
        }
        self.store.put_list(self.id, &self.groups)
    }
}

/// Contents may be anything: they are not printed.
impl fmt::Debug for Writer<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Writer")
            .field("id", &self.id)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Large<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Large")
            .field("id", &self.id)
            .field("size", &self.groups.size())
            .finish_non_exhaustive()
    }
}
