//! What makes a workspace's way to another tree safe against a crash: written and synced before the
//! first change, removed after the last one.
//!
//! It says from which tree to which tree, never how: the plan between them is a pure function, so
//! what of it is done is seen by looking ([`super::way`]). It is kept in the mirror's directory, and bound
//! to the mirror and the root; what lies in a workspace under its name is a file like others.
//!
//! The file is a mark of 20 bytes, the length of its head (4 bytes), the head, the trees that are
//! no generations, and the BLAKE3 of all this.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable;
use super::encoding;
use super::store::{GENERATION_MAX, GenerationNumber};
use crate::tree::directory::{Directory, TreeHash};
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::root::RootIdentity;

const MARK: &[u8; 20] = b"labproxy journal  1\n";
/// Longest journal, bytes: two trees.
const JOURNAL_MAX: u64 = 2 * GENERATION_MAX + 4_096;
const HASH: usize = 32;

/// Why a journal cannot be written, or one that is there cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("the journal {path} cannot be {what}")]
    Io {
        /// `read`, `written`, …
        what: &'static str,
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what was written.
    #[error(
        "the journal {path} is damaged, so what an interrupted run had left to do is not known; \
         compare the workspace with the last generation, then move the journal away"
    )]
    Damaged {
        /// Its file.
        path: PathBuf,
    },
    /// It is of another mirror or another root.
    #[error(
        "the journal {path} is of another {what}; nothing was changed. If the workspace was moved \
         or made anew, compare it with the last generation, then move the journal away"
    )]
    Foreign {
        /// Its file.
        path: PathBuf,
        /// `mirror`, `root`.
        what: &'static str,
    },
    /// One that was not followed stands there.
    #[error("the journal {path} of an interrupted run is there: it must be followed first")]
    Unfinished {
        /// Its file.
        path: PathBuf,
    },
}

/// A tree that a journal speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeOf {
    /// That of a generation.
    Generation {
        /// Which one.
        number: GenerationNumber,
        /// Its hash.
        tree: TreeHash,
    },
    /// One that is no generation: the workspace had edits of its own, or parts are held back.
    Here(Directory),
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The mirror that it belongs to.
    pub mirror: MirrorId,
    /// The workspace.
    pub root: RootIdentity,
    /// The generation that the workspace is being brought to.
    pub generation: GenerationNumber,
    /// What the workspace was.
    pub old: TreeOf,
    /// What it shall be.
    pub new: TreeOf,
}

/// A journal that is on the disk: the workspace may be changed. Dropping it leaves the file there,
/// for [`Journal::read`] of a later run.
#[derive(Debug)]
#[must_use = "the journal stays until it is finished"]
pub struct OpenJournal {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Head {
    mirror: MirrorId,
    root: RootIdentity,
    generation: GenerationNumber,
    old: Where,
    new: Where,
}

#[derive(Serialize, Deserialize)]
enum Where {
    Generation(GenerationNumber, TreeHash),
    /// So many bytes behind the head.
    Here(u64),
}

impl Journal {
    /// Writes the journal into a mirror's directory. The workspace may be changed once this
    /// returns, and not before.
    ///
    /// # Errors
    /// When one is there already, or it cannot be written.
    pub fn begin(&self, directory: &Path) -> Result<OpenJournal, JournalError> {
        let path = path_in(directory);
        if Self::is_there(directory) {
            return Err(JournalError::Unfinished { path });
        }
        let io = |source| JournalError::Io {
            what: "written",
            path: path.clone(),
            source,
        };
        let bytes = self.encode().map_err(|error| io(io::Error::other(error)))?;
        durable::write(&path, &bytes).map_err(io)?;
        Ok(OpenJournal { path })
    }

    /// Whether an interrupted run left one.
    pub(super) fn is_there(directory: &Path) -> bool {
        path_in(directory).symlink_metadata().is_ok()
    }

    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        let mut trees = Vec::new();
        let mut place = |tree: &TreeOf| match tree {
            TreeOf::Generation { number, tree } => Where::Generation(*number, *tree),
            TreeOf::Here(tree) => {
                let before = trees.len();
                encoding::encode(tree, &mut trees);
                let length = trees.len().saturating_sub(before);
                Where::Here(u64::try_from(length).unwrap_or(u64::MAX))
            }
        };
        let head = Head {
            mirror: self.mirror,
            root: self.root,
            generation: self.generation,
            old: place(&self.old),
            new: place(&self.new),
        };
        let head = postcard::to_allocvec(&head)?;
        let mut bytes = MARK.to_vec();
        bytes.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&trees);
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        Ok(bytes)
    }

    /// Reads the journal that an interrupted run left in a mirror's directory; nothing when there
    /// is none.
    ///
    /// # Errors
    /// When it is damaged, or of another mirror or root: nothing may be done then.
    pub fn read(
        directory: &Path,
        mirror: MirrorId,
        root: RootIdentity,
        limits: &Limits,
    ) -> Result<Option<(Self, OpenJournal)>, JournalError> {
        let path = path_in(directory);
        let bytes = durable::read(&path, JOURNAL_MAX).map_err(|source| JournalError::Io {
            what: "read",
            path: path.clone(),
            source,
        })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let damaged = || JournalError::Damaged { path: path.clone() };
        let journal = Self::decode(&bytes, limits).ok_or_else(damaged)?;
        let foreign = |what| JournalError::Foreign {
            path: path.clone(),
            what,
        };
        if journal.mirror != mirror {
            return Err(foreign("mirror"));
        }
        if journal.root != root {
            return Err(foreign("root"));
        }
        Ok(Some((journal, OpenJournal { path })))
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        let (said, hash) = bytes.split_last_chunk::<HASH>()?;
        if blake3::hash(said) != *hash {
            return None;
        }
        let (length, rest) = said.strip_prefix(MARK)?.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (head, mut trees) = rest.split_at_checked(length)?;
        let (head, []) = postcard::take_from_bytes::<Head>(head).ok()? else {
            return None;
        };
        let mut tree = |place| match place {
            Where::Generation(number, tree) => Some(TreeOf::Generation { number, tree }),
            Where::Here(length) => {
                let (tree, rest) = trees.split_at_checked(usize::try_from(length).ok()?)?;
                trees = rest;
                encoding::decode(tree, limits).ok().map(TreeOf::Here)
            }
        };
        let journal = Self {
            mirror: head.mirror,
            root: head.root,
            generation: head.generation,
            old: tree(head.old)?,
            new: tree(head.new)?,
        };
        trees.is_empty().then_some(journal)
    }
}

impl OpenJournal {
    /// Removes the journal: the workspace is what it shall be, as far as it can.
    ///
    /// # Errors
    /// When it cannot be removed; a later run follows it again then.
    pub fn finish(self) -> Result<(), JournalError> {
        durable::remove(&self.path).map_err(|source| JournalError::Io {
            what: "removed",
            path: self.path.clone(),
            source,
        })
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("journal")
}
