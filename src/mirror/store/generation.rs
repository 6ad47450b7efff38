//! Generations: whole trees, numbered, never changed.
//!
//! A generation's file is a mark of 16 bytes, the length of its head (4 bytes), the head, the
//! head's BLAKE3, and the tree ([`encoding`]). The head has the tree's hash, and the BLAKE3 of its
//! bytes, which also cover what was only seen; both are computed again when it is read.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::{BadGeneration, StoreError};
use super::{Complete, Store};
use crate::mirror::{durable, encoding};
use crate::plain_file::{self, Links, PlainFileError};
use crate::tree::directory::{Directory, Totals, TreeHash};
use crate::tree::mirror_id::MirrorId;

/// Longest file of a generation, bytes: a million entries with the longest names.
pub const GENERATION_MAX: u64 = 512 * 1024 * 1024;
/// What of it is left for the tree: what is longer would never be read back.
const TREE_BYTES_MAX: u64 = GENERATION_MAX - 64 * 1024;
/// Longest head, bytes: it has no part of free length.
const HEAD_MAX: u32 = 4_096;
const MARK: &[u8; 16] = b"labproxy tree 1\n";
const PREFIX: &str = "generation-";
const DIGITS: usize = 10;

/// Which generation of its mirror: 1 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GenerationNumber(pub u64);

impl fmt::Display for GenerationNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a generation's file says before its tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationHead {
    /// Which one.
    pub number: GenerationNumber,
    /// Of which mirror.
    pub mirror: MirrorId,
    /// When it was published.
    #[serde(with = "nanoseconds")]
    pub time: Timestamp,
    /// The hash of its tree.
    pub tree: TreeHash,
    /// How much the tree holds.
    pub totals: Totals,
    /// The BLAKE3 of the tree's bytes, what was seen included: the hash of the manifest.
    pub manifest: [u8; 32],
}

/// A time as whole nanoseconds since 1970.
mod nanoseconds {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        time.as_nanosecond().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let time = i128::deserialize(from)?;
        Timestamp::from_nanosecond(time).map_err(serde::de::Error::custom)
    }
}

fn number_of(name: &str) -> Option<GenerationNumber> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_one = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_one).map(GenerationNumber)
}

impl Complete<'_> {
    /// Publishes the tree as the next generation. It is durable once this returns.
    ///
    /// # Errors
    /// When its file cannot be written; no generation is there then.
    pub fn publish(self, time: Timestamp) -> Result<GenerationHead, StoreError> {
        let last = self.store.numbers()?.last().map_or(0, |number| number.0);
        let mut tree = Vec::new();
        encoding::encode(self.tree, &mut tree);
        if u64::try_from(tree.len()).unwrap_or(u64::MAX) > TREE_BYTES_MAX {
            return Err(StoreError::TooLong);
        }
        let head = GenerationHead {
            number: GenerationNumber(last.saturating_add(1)),
            mirror: self.store.mirror,
            time,
            tree: self.tree.hash(),
            totals: self.tree.totals(),
            manifest: *blake3::hash(&tree).as_bytes(),
        };
        let path = self.store.generation_path(head.number);
        let form = || StoreError::Generation {
            path: path.clone(),
            why: BadGeneration::Form,
        };
        let encoded = postcard::to_allocvec(&head).map_err(|_| form())?;
        let length = u32::try_from(encoded.len()).map_err(|_| form())?;
        let hash = blake3::hash(&encoded);
        let parts: [&[u8]; 5] = [
            MARK,
            &length.to_le_bytes(),
            &encoded,
            hash.as_bytes(),
            &tree,
        ];
        durable::write_parts(&path, &parts)
            .map_err(|error| StoreError::io("written", &path, error))?;
        Ok(head)
    }
}

impl Store {
    fn generation_path(&self, number: GenerationNumber) -> PathBuf {
        self.directory
            .join(format!("{PREFIX}{:0DIGITS$}", number.0))
    }

    /// The numbers of all generations, oldest first.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn numbers(&self) -> Result<Vec<GenerationNumber>, StoreError> {
        let failed = |error| StoreError::io("read", &self.directory, error);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            numbers.extend(name.to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The heads of all generations, oldest first, each proven by its own hash; the trees are not
    /// read.
    ///
    /// # Errors
    /// When one cannot be read or is damaged.
    pub fn generations(&self) -> Result<Vec<GenerationHead>, StoreError> {
        let numbers = self.numbers()?;
        let head = |number| self.open_generation(number).map(|(head, ..)| head);
        numbers.into_iter().map(head).collect()
    }

    /// The newest generation; nothing when none was published.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn latest(&self) -> Result<Option<GenerationHead>, StoreError> {
        let last = self.numbers()?.last().copied();
        last.map(|number| self.open_generation(number).map(|(head, ..)| head))
            .transpose()
    }

    /// Reads a generation. Its hashes are computed anew from what was read.
    ///
    /// # Errors
    /// When it is not there, or not what was published.
    pub fn load(
        &self,
        number: GenerationNumber,
    ) -> Result<(GenerationHead, Directory), StoreError> {
        let (head, mut file, path) = self.open_generation(number)?;
        let bad = |why| StoreError::Generation {
            path: path.clone(),
            why,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| StoreError::io("read", &path, error))?;
        if *blake3::hash(&bytes).as_bytes() != head.manifest {
            return Err(bad(BadGeneration::Hash("manifest")));
        }
        let tree = encoding::decode(&bytes, &self.limits).map_err(|why| bad(why.into()))?;
        if tree.hash() != head.tree {
            return Err(bad(BadGeneration::Hash("tree")));
        }
        if tree.totals() != head.totals {
            return Err(bad(BadGeneration::Other("size")));
        }
        Ok((head, tree))
    }

    /// Removes a generation; its contents stay until they are collected.
    pub(super) fn remove_generation(&self, number: GenerationNumber) -> Result<(), StoreError> {
        let path = self.generation_path(number);
        durable::remove(&path).map_err(|error| StoreError::io("removed", &path, error))
    }

    /// Opens a generation's file and reads its head; the tree comes next in the file.
    fn open_generation(
        &self,
        number: GenerationNumber,
    ) -> Result<(GenerationHead, impl std::io::Read + use<>, PathBuf), StoreError> {
        let path = self.generation_path(number);
        let (mut file, length) = match plain_file::open(&path, Links::Refuse) {
            Ok((file, about)) => (file, about.len()),
            Err(PlainFileError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::NoGeneration(number));
            }
            Err(PlainFileError::Io(error)) => return Err(StoreError::io("read", &path, error)),
            Err(PlainFileError::NotPlain) => {
                let why = BadGeneration::Form;
                return Err(StoreError::Generation { path, why });
            }
        };
        let bad = |why| StoreError::Generation {
            path: path.clone(),
            why,
        };
        if length > GENERATION_MAX {
            return Err(bad(BadGeneration::Form));
        }
        let head = read_head(&mut file, &path)?;
        if head.number != number {
            return Err(bad(BadGeneration::Other("number")));
        }
        if head.mirror != self.mirror {
            return Err(bad(BadGeneration::Other("mirror")));
        }
        Ok((head, file.take(GENERATION_MAX), path))
    }
}

fn read_head(file: &mut File, path: &Path) -> Result<GenerationHead, StoreError> {
    let bad = |why| StoreError::Generation {
        path: path.to_owned(),
        why,
    };
    let mut exact = |bytes: &mut [u8]| match file.read_exact(bytes) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(bad(BadGeneration::Form))
        }
        Err(error) => Err(StoreError::io("read", path, error)),
    };
    let mut mark = [0; MARK.len()];
    exact(&mut mark)?;
    let mut length = [0; 4];
    exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if mark != *MARK || length > HEAD_MAX {
        return Err(bad(BadGeneration::Form));
    }
    let mut head = vec![0; usize::try_from(length).unwrap_or(0)];
    exact(&mut head)?;
    let mut hash = [0; 32];
    exact(&mut hash)?;
    if *blake3::hash(&head).as_bytes() != hash {
        return Err(bad(BadGeneration::Hash("head")));
    }
    match postcard::take_from_bytes(&head) {
        Ok((head, [])) => Ok(head),
        Ok(_) | Err(_) => Err(bad(BadGeneration::Form)),
    }
}
