//! A pack: a file to which records are appended, and beside it an index of those that are durable.
//!
//! The index is batches, each written after the records that it lists were synced: from which byte
//! to which the records reach (8 bytes each), how many (4), each record's kind (1), hash (32),
//! place (8) and length (4), and the BLAKE3 of all this (32). What the index does not reach was
//! never promised to anybody: a torn end there is cut off.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::mirror::durable;
use crate::tree::write_back::WriteBack;

use super::error::StoreError;
use super::record::{HEADER, Header, Key};

/// Bytes after which the next pack begins: the largest tree stays within 128 open files.
pub const PACK_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of records that are written at once: small ones are gathered, since a call for each costs
/// more than the bytes.
pub const GATHERED: usize = 1024 * 1024;
/// A record from this many bytes on is written from where it lies, without gathering.
const DIRECT: usize = 128 * 1024;
/// Longest index, bytes: of a pack full of the shortest records.
const INDEX_MAX: u64 = 512 * 1024 * 1024;
/// What every pack begins with.
const BEGINNING: &[u8; 16] = b"labproxy pack 1\n";
const ENTRY: usize = 45;
const BATCH_HEAD: usize = 20;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Which pack.
    pub(super) pack: u32,
    /// Bytes behind the header.
    pub(super) length: u32,
    /// First byte of the header.
    pub(super) offset: u64,
}

impl Place {
    /// Bytes of the record.
    pub(super) fn total(&self) -> u64 {
        u64::from(self.length).saturating_add(size(HEADER))
    }

    /// First byte behind the header.
    pub(super) fn payload(&self) -> u64 {
        self.offset.saturating_add(size(HEADER))
    }

    /// First byte behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.total())
    }
}

/// A file that is appended to, as far as it is whole.
#[derive(Debug)]
pub(super) struct Pack {
    pub(super) number: u32,
    pub(super) file: Arc<File>,
    path: PathBuf,
    /// Bytes of whole records in the file.
    written: u64,
    /// Records that come behind, not written yet.
    gathered: Vec<u8>,
    /// Bytes of the pack that its index covers.
    indexed: u64,
    /// Bytes of the index that are whole.
    index_length: u64,
    /// Records that are not in the index.
    fresh: Vec<(Key, Place)>,
    /// Nothing more is appended: what stands behind `written` is not known.
    closed: bool,
    write_back: WriteBack,
}

/// A pack as it was found, with the records of its index.
pub(super) struct Found {
    pub(super) pack: Pack,
    pub(super) indexed: Vec<(Key, Place)>,
}

pub(super) fn path_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("pack-{number:08}"))
}

pub(super) fn index_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("pack-{number:08}.index"))
}

pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("pack-")?;
    let is_one = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_one)
}

fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Pack {
    /// Makes a pack with nothing in it.
    pub(super) fn create(directory: &Path, number: u32) -> Result<Self, StoreError> {
        let path = path_of(directory, number);
        let failed = |error| StoreError::io("made", &path, error);
        let file = durable::create(&path).map_err(failed)?;
        if let Err(error) = file.write_all_at(BEGINNING, 0) {
            let _gone = fs::remove_file(&path);
            return Err(failed(error));
        }
        Ok(Self {
            number,
            file: Arc::new(file),
            path,
            written: size(BEGINNING.len()),
            gathered: Vec::new(),
            indexed: 0,
            index_length: 0,
            fresh: Vec::new(),
            closed: false,
            write_back: WriteBack::default(),
        })
    }

    /// Opens a pack, reads its index and the records behind it, and cuts off a torn end.
    pub(super) fn open(directory: &Path, number: u32) -> Result<Found, StoreError> {
        let path = path_of(directory, number);
        let failed = |error| StoreError::io("read", &path, error);
        let mut options = OpenOptions::new();
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).write(true).custom_flags(no_link);
        let file = options.open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let index_path = index_of(directory, number);
        let index = durable::read(&index_path, INDEX_MAX)
            .map_err(|error| StoreError::io("read", &index_path, error))?
            .unwrap_or_default();
        let mut batches = Batches::read(&index, number);
        if batches.reaches > length {
            // It is of another file: everything is looked at instead.
            batches = Batches::default();
        }
        let mut pack = Self {
            number,
            file: Arc::new(file),
            path,
            written: batches.reaches,
            gathered: Vec::new(),
            indexed: batches.reaches,
            index_length: batches.length,
            fresh: Vec::new(),
            closed: false,
            write_back: WriteBack::default(),
        };
        let intact = batches.length > 0 && batches.length == size(index.len());
        pack.read_behind_index(length, intact)?;
        pack.write_back = WriteBack::behind(pack.written);
        Ok(Found {
            pack,
            indexed: batches.entries,
        })
    }

    /// Takes in the records that no index names: each is believed when its bytes prove it.
    fn read_behind_index(&mut self, length: u64, intact: bool) -> Result<(), StoreError> {
        let mut at = self.indexed;
        if at == 0 {
            let mut beginning = [0; BEGINNING.len()];
            let whole = self.file.read_exact_at(&mut beginning, 0);
            if whole.is_ok() && beginning == *BEGINNING {
                at = size(BEGINNING.len());
            } else {
                // Made, and not even begun before a crash.
                self.closed = true;
                return Ok(());
            }
        }
        let mut payload = Vec::new();
        let mut header = [0; HEADER];
        while self.read_whole(&mut header, at)? {
            let Some(header) = Header::parse(&header) else {
                break;
            };
            let place = Place {
                pack: self.number,
                length: header.length,
                offset: at,
            };
            payload.resize(usize::try_from(header.length).unwrap_or(usize::MAX), 0);
            if !self.read_whole(&mut payload, at.saturating_add(size(HEADER)))? {
                break;
            }
            if header.is_of(&payload) {
                self.fresh.push((header.key, place));
            }
            at = place.end();
        }
        self.written = at;
        if at < length {
            // With a whole index nothing behind it was promised. Where there is none, or a damaged
            // one, what stands there may be good: it stays, and nothing is written behind it.
            let cut = intact && self.file.set_len(at).is_ok();
            self.closed = !cut;
        }
        Ok(())
    }

    /// Whether the file has so many bytes there.
    fn read_whole(&self, bytes: &mut [u8], offset: u64) -> Result<bool, StoreError> {
        match self.file.read_exact_at(bytes, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(StoreError::io("read", &self.path, error)),
        }
    }

    /// Bytes, those not written yet included.
    pub(super) fn length(&self) -> u64 {
        self.written.saturating_add(size(self.gathered.len()))
    }

    /// Whether more may be appended.
    pub(super) fn takes_more(&self) -> bool {
        !self.closed && self.length() < PACK_MAX
    }

    /// Whether the record is in the file.
    pub(super) const fn has_written(&self, place: &Place) -> bool {
        place.offset < self.written
    }

    /// Whether a sync would do something.
    pub(super) fn is_behind(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Records that are not in the index.
    pub(super) fn fresh(&self) -> &[(Key, Place)] {
        &self.fresh
    }

    /// Appends a record. After an error the pack is as it was, and [`Self::take_lost`] has what it
    /// could not keep of earlier ones.
    pub(super) fn append(&mut self, header: &Header, payload: &[u8]) -> Result<Place, StoreError> {
        let place = Place {
            pack: self.number,
            length: header.length,
            offset: self.length(),
        };
        self.gathered.extend_from_slice(&header.encode());
        if payload.len() >= DIRECT {
            self.flush()?;
            // The header is written by now, and counts only once what it announces is.
            let behind = self.written;
            self.written = place.offset;
            if let Err(error) = self.file.write_all_at(payload, behind) {
                return Err(self.retreat(error));
            }
            self.written = place.end();
            self.write_back.reached(&self.file, self.written);
        } else {
            self.gathered.extend_from_slice(payload);
            if self.gathered.len() >= GATHERED {
                self.flush()?;
            }
        }
        self.fresh.push((header.key, place));
        Ok(place)
    }

    /// Writes what was gathered.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all_at(&self.gathered, self.written) {
            return Err(self.retreat(error));
        }
        self.written = self.length();
        self.gathered.clear();
        Ok(())
    }

    /// Gives up what could not be written, so that the next record stands behind a whole one.
    fn retreat(&mut self, error: io::Error) -> StoreError {
        self.gathered.clear();
        self.closed |= self.file.set_len(self.written).is_err();
        StoreError::io("written", &self.path, error)
    }

    /// The records that are not in the file and will never be, after an error.
    pub(super) fn take_lost(&mut self) -> Vec<(Key, Place)> {
        let end = self.written;
        self.fresh
            .extract_if(.., |(_, place)| place.offset >= end)
            .collect()
    }

    /// Everything that the index does not have, after a sync that failed: whether it is on the
    /// disk is not known, and asking again would not tell.
    pub(super) fn give_up(&mut self) -> Vec<(Key, Place)> {
        self.closed = true;
        self.gathered.clear();
        std::mem::take(&mut self.fresh)
    }

    /// Makes all records durable, then lists them in the index.
    pub(super) fn sync(&mut self, directory: &Path) -> Result<(), StoreError> {
        self.flush()?;
        if self.fresh.is_empty() {
            return Ok(());
        }
        let failed = |error| StoreError::io("written", &self.path, error);
        self.file.sync_data().map_err(failed)?;
        let path = index_of(directory, self.number);
        let batch = encode_batch(self.indexed, self.written, &self.fresh);
        write_batch(&path, self.index_length, &batch)
            .map_err(|error| StoreError::io("written", &path, error))?;
        self.index_length = self.index_length.saturating_add(size(batch.len()));
        self.indexed = self.written;
        self.fresh.clear();
        Ok(())
    }
}

/// Cuts a pack that takes no more behind its last record that stays: this needs no room. `stays`
/// are in the order of their places.
pub(super) fn cut(
    directory: &Path,
    number: u32,
    file: &File,
    stays: &[(Key, Place)],
) -> Result<(), StoreError> {
    let (path, index) = (path_of(directory, number), index_of(directory, number));
    let end = stays
        .last()
        .map_or(size(BEGINNING.len()), |(_, place)| place.end());
    // Without an index the pack is read through: so it is whole at every instant.
    durable::remove(&index).map_err(|error| StoreError::io("removed", &index, error))?;
    file.set_len(end)
        .and_then(|()| file.sync_all())
        .map_err(|error| StoreError::io("cut", &path, error))?;
    write_batch(&index, 0, &encode_batch(0, end, stays))
        .and_then(|()| durable::sync_parent(&index))
        .map_err(|error| StoreError::io("written", &index, error))
}

fn write_batch(path: &Path, at: u64, batch: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(no_link).open(path)?;
    // What stands behind is of a batch that a crash cut.
    file.set_len(at)?;
    file.write_all_at(batch, at)?;
    file.sync_data()
}

fn encode_batch(from: u64, to: u64, entries: &[(Key, Place)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len().saturating_mul(ENTRY).saturating_add(64));
    bytes.extend_from_slice(&from.to_le_bytes());
    bytes.extend_from_slice(&to.to_le_bytes());
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&count.to_le_bytes());
    for (key, place) in entries {
        bytes.push(key.letter());
        bytes.extend_from_slice(key.hash());
        bytes.extend_from_slice(&place.offset.to_le_bytes());
        bytes.extend_from_slice(&place.length.to_le_bytes());
    }
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

/// The batches of an index, up to the first that is not whole.
#[derive(Default)]
struct Batches {
    entries: Vec<(Key, Place)>,
    /// Bytes of the pack that they cover.
    reaches: u64,
    /// Bytes of the index that they are.
    length: u64,
}

impl Batches {
    fn read(index: &[u8], pack: u32) -> Self {
        let mut batches = Self::default();
        let mut rest = index;
        while let Some(behind) = batches.take(rest, pack) {
            batches.length = size(index.len() - behind.len());
            rest = behind;
        }
        batches
    }

    /// Takes one batch in, and gives what is behind it.
    fn take<'a>(&mut self, bytes: &'a [u8], pack: u32) -> Option<&'a [u8]> {
        let (from, rest) = bytes.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let length = count.checked_mul(ENTRY)?;
        let (listed, rest) = rest.split_at_checked(length)?;
        let (hash, rest) = rest.split_first_chunk::<32>()?;
        let hashed = bytes.get(..BATCH_HEAD.checked_add(length)?)?;
        let continues = u64::from_le_bytes(*from) == self.reaches;
        if !continues || blake3::hash(hashed) != *hash {
            return None;
        }
        self.reaches = u64::from_le_bytes(*to);
        for entry in listed.as_chunks::<ENTRY>().0 {
            let (letter, entry) = entry.split_first()?;
            let (hash, entry) = entry.split_first_chunk()?;
            let (offset, length) = entry.split_first_chunk()?;
            let place = Place {
                pack,
                length: u32::from_le_bytes(*length.first_chunk()?),
                offset: u64::from_le_bytes(*offset),
            };
            self.entries.push((Key::of(*letter, *hash)?, place));
        }
        Some(rest)
    }
}
