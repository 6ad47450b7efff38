//! Contents that were received and not yet put anywhere: one file of our own, outside the tree.
//!
//! Each content stands there behind its id and its size, and is known only when all of it came and
//! has that id. A later run of the same mirror finds what an earlier one, that was cut, has staged.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::tree::content::ContentId;

/// Bytes before each content: its id, its size.
const HEAD: u64 = 40;
/// So much is read at once when what is staged is looked through.
const PART: usize = 256 * 1024;

/// The staged contents of one root.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    file: File,
    /// Where each content's bytes begin, and how many there are.
    known: HashMap<ContentId, (u64, u64)>,
    /// Where the next content's head will stand.
    end: u64,
    filling: Option<Filling>,
}

/// A content that is coming.
#[derive(Debug)]
struct Filling {
    content: ContentId,
    size: u64,
    came: u64,
    hasher: blake3::Hasher,
}

/// Why a content is not staged.
#[derive(Debug, thiserror::Error)]
pub(super) enum StagingError {
    /// What came is no content that was announced, or more of it than was.
    #[error("a part of a content that was not announced")]
    Unannounced,
    /// It has not the hash that it was announced with.
    #[error("a content that has another hash than was announced")]
    AnotherHash,
    /// The disk says no.
    #[error("contents cannot be staged in {0}: {1}")]
    Disk(PathBuf, io::Error),
}

impl Staging {
    /// Opens the file, and knows what is whole in it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn open(path: &Path) -> Result<Self, StagingError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let disk = |error: io::Error| StagingError::Disk(path.to_owned(), error);
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| disk(error.into()))?;
        rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| disk(error.into()))?;
        let mut staging = Self {
            path: path.to_owned(),
            file: opened.into(),
            known: HashMap::new(),
            end: 0,
            filling: None,
        };
        staging.look_through().map_err(disk)?;
        Ok(staging)
    }

    /// Reads what an earlier run left; what is not whole is cut off.
    fn look_through(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut reader = BufReader::with_capacity(PART, &self.file);
        let mut known = HashMap::new();
        let mut end = 0;
        while let Some((content, size)) = head(&mut reader)? {
            let start = end + HEAD;
            let next = start.checked_add(size).filter(|next| *next <= length);
            let Some(next) = next else { break };
            let mut hasher = blake3::Hasher::new();
            io::copy(&mut (&mut reader).take(size), &mut hasher)?;
            if hasher.finalize().as_bytes() != content.as_bytes() {
                break;
            }
            known.insert(content, (start, size));
            end = next;
        }
        self.file.set_len(end)?;
        (self.known, self.end) = (known, end);
        Ok(())
    }

    /// Whether a content is staged, whole.
    pub(super) fn has(&self, content: ContentId) -> bool {
        self.known.contains_key(&content)
    }

    /// A content comes now.
    ///
    /// # Errors
    /// When the one before it is not whole, or the disk says no.
    pub(super) fn begin(&mut self, content: ContentId, size: u64) -> Result<(), StagingError> {
        if self.filling.is_some() {
            return Err(StagingError::Unannounced);
        }
        let mut head = Vec::with_capacity(40);
        head.extend_from_slice(content.as_bytes());
        head.extend_from_slice(&size.to_le_bytes());
        self.write(&head, self.end)?;
        self.filling = Some(Filling {
            content,
            size,
            came: 0,
            hasher: blake3::Hasher::new(),
        });
        self.end_if_whole()
    }

    /// A part of the content that is coming.
    ///
    /// # Errors
    /// When none is coming or it is longer than it was announced, when the whole has another hash,
    /// or the disk says no.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), StagingError> {
        let filling = self.filling.as_mut().ok_or(StagingError::Unannounced)?;
        let at = self.end + HEAD + filling.came;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        filling.came = filling.came.saturating_add(length);
        if filling.came > filling.size {
            return Err(StagingError::Unannounced);
        }
        filling.hasher.update(bytes);
        self.write(bytes, at)?;
        self.end_if_whole()
    }

    /// Whether a content is coming that is not whole yet.
    pub(super) const fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    fn end_if_whole(&mut self) -> Result<(), StagingError> {
        let Some(filling) = self.filling.take_if(|filling| filling.came == filling.size) else {
            return Ok(());
        };
        if filling.hasher.finalize().as_bytes() != filling.content.as_bytes() {
            return Err(StagingError::AnotherHash);
        }
        let start = self.end + HEAD;
        self.known.insert(filling.content, (start, filling.size));
        self.end = start + filling.size;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<(), StagingError> {
        let mut write = || {
            self.file.seek(SeekFrom::Start(at))?;
            self.file.write_all(bytes)
        };
        write().map_err(|error| StagingError::Disk(self.path.clone(), error))
    }

    /// A staged content's bytes.
    pub(super) fn read(&self, content: ContentId) -> Option<Staged<'_>> {
        let (start, size) = *self.known.get(&content)?;
        Some(Staged {
            file: &self.file,
            at: start,
            left: size,
        })
    }

    /// Removes everything: it has been put where it belongs.
    ///
    /// # Errors
    /// When the disk says no.
    pub(super) fn remove(path: &Path) -> Result<(), StagingError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StagingError::Disk(path.to_owned(), error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn head(reader: &mut impl Read) -> io::Result<Option<(ContentId, u64)>> {
    let (mut content, mut size) = ([0; 32], [0; 8]);
    let read = reader
        .read_exact(&mut content)
        .and_then(|()| reader.read_exact(&mut size));
    match read {
        Ok(()) => Ok(Some((ContentId(content), u64::from_le_bytes(size)))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a staged content; several may be read at once.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Staged<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let count = self.file.read_at(buffer, self.at)?;
        let counted = u64::try_from(count).unwrap_or(u64::MAX);
        self.at = self.at.saturating_add(counted);
        self.left = self.left.saturating_sub(counted);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(staging: &Staging, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut read = Vec::new();
        let mut staged = staging.read(ContentId::of(bytes))?;
        staged.read_to_end(&mut read).unwrap();
        Some(read)
    }

    fn put(staging: &mut Staging, bytes: &[u8]) {
        let size = u64::try_from(bytes.len()).unwrap();
        staging.begin(ContentId::of(bytes), size).unwrap();
        for part in bytes.chunks(3) {
            staging.add(part).unwrap();
        }
    }

    /// What was whole is found again after a cut at any byte, and what was not is sent again.
    #[test]
    fn m64_a_cut_keeps_what_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("staged");
        let mut staging = Staging::open(&path).unwrap();
        for text in [&b"first"[..], b"", b"the second"] {
            put(&mut staging, text);
            assert_eq!(all(&staging, text).unwrap(), text);
        }
        drop(staging);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut staging = Staging::open(&path).unwrap();
            assert_eq!(staging.has(ContentId::of(b"first")), cut >= 45, "{cut}");
            assert!(!staging.has(ContentId::of(b"the second")), "{cut}");
            put(&mut staging, b"the second");
            assert_eq!(all(&staging, b"the second").unwrap(), b"the second");
        }
        let mut bent = whole.clone();
        bent[42] ^= 1;
        std::fs::write(&path, &bent).unwrap();
        let staging = Staging::open(&path).unwrap();
        assert!(!staging.has(ContentId::of(b"first")));
        drop(staging);
        Staging::remove(&path).unwrap();
        Staging::remove(&path).unwrap();
        assert!(!path.exists());
    }

    /// A sender that lies is found out before anything has a name in the tree.
    #[test]
    fn what_was_not_announced_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("staged");
        let mut staging = Staging::open(&path).unwrap();
        assert!(matches!(staging.add(b"x"), Err(StagingError::Unannounced)));
        staging.begin(ContentId::of(b"abc"), 3).unwrap();
        let again = staging.begin(ContentId::of(b"d"), 1);
        assert!(matches!(again, Err(StagingError::Unannounced)));
        let longer = staging.add(b"abcd");
        assert!(matches!(longer, Err(StagingError::Unannounced)));
        drop(staging);
        let mut staging = Staging::open(&path).unwrap();
        staging.begin(ContentId::of(b"abc"), 3).unwrap();
        let other = staging.add(b"abd");
        assert!(matches!(other, Err(StagingError::AnotherHash)));
        assert!(!staging.has(ContentId::of(b"abc")));
    }
}
