//! A file in the mirror's directory that holds two trees: whole, or none.
//!
//! It is a mark, a head of a fixed length that the user of the file chooses, the length of the first
//! tree (8 bytes), both trees, and the BLAKE3 of all this.

use std::io;
use std::path::{Path, PathBuf};

use super::durable;
use super::encoding;
use super::state::StateError;
use crate::tree::directory::Directory;
use crate::tree::limits::Limits;

const HASH: usize = 32;
/// Longest file, bytes: two trees of the greatest size.
const TWO_TREES_MAX: u64 = 1024 * 1024 * 1024;

/// What a file holds: its head and both trees.
pub(super) type Held<const HEAD: usize> = ([u8; HEAD], [Directory; 2]);

/// Which file.
#[derive(Debug)]
pub(super) struct TwoTrees {
    /// Its name in the mirror's directory.
    pub(super) name: &'static str,
    /// Its first bytes: a file of another form is none.
    pub(super) mark: &'static [u8],
}

impl TwoTrees {
    /// Where it is.
    pub(super) fn path_in(&self, directory: &Path) -> PathBuf {
        directory.join(self.name)
    }

    /// Reads its head and both trees; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was written.
    pub(super) fn read<const HEAD: usize>(
        &self,
        directory: &Path,
        limits: &Limits,
    ) -> Result<Option<Held<HEAD>>, StateError> {
        let path = self.path_in(directory);
        let read = durable::read(&path, TWO_TREES_MAX);
        let Some(bytes) = read.map_err(|error| failed("read", &path, error))? else {
            return Ok(None);
        };
        let decoded = self
            .decode(&bytes, limits)
            .ok_or_else(|| StateError::Damaged {
                path,
                why: "its bytes are not those that were written".to_owned(),
            })?;
        Ok(Some(decoded))
    }

    /// Writes it; durable once this returns.
    ///
    /// # Errors
    /// When it cannot be written; what was there before stands then.
    pub(super) fn write(
        &self,
        directory: &Path,
        head: &[u8],
        trees: [&Directory; 2],
    ) -> Result<(), StateError> {
        let path = self.path_in(directory);
        let [first, second] = trees.map(|tree| {
            let mut bytes = Vec::new();
            encoding::encode(tree, &mut bytes);
            bytes
        });
        let length = u64::try_from(first.len()).unwrap_or(u64::MAX).to_le_bytes();
        let parts = [self.mark, head, &length, &first, &second];
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        let hash = hasher.finalize();
        let [mark, head, length, first, second] = parts;
        durable::write_parts(&path, &[mark, head, length, first, second, hash.as_bytes()])
            .map_err(|error| failed("written", &path, error))
    }

    /// Removes it.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(super) fn remove(&self, directory: &Path) -> Result<(), StateError> {
        let path = self.path_in(directory);
        durable::remove(&path).map_err(|error| failed("removed", &path, error))
    }

    fn decode<const HEAD: usize>(&self, bytes: &[u8], limits: &Limits) -> Option<Held<HEAD>> {
        let (said, hash) = bytes.split_last_chunk::<HASH>()?;
        if blake3::hash(said) != *hash {
            return None;
        }
        let (head, rest) = said.strip_prefix(self.mark)?.split_first_chunk()?;
        let (length, trees) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (first, second) = trees.split_at_checked(length)?;
        let first = encoding::decode(first, limits).ok()?;
        Some((*head, [first, encoding::decode(second, limits).ok()?]))
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}
