//! What can go wrong with a store. Whatever does, the generations that were published stay whole.

use std::io;
use std::path::{Path, PathBuf};

use crate::mirror::encoding::BadTree;
use crate::tree::content::ContentId;

use super::generation::GenerationNumber;

/// Why the store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room is left.
    #[error("the disk is full at {path}; free some room, then run it again: what is stored stays")]
    Full {
        /// What was being written.
        path: PathBuf,
        /// The system's word: no space, or over the quota.
        #[source]
        source: io::Error,
    },
    /// The system refused.
    #[error("{path} cannot be {what}")]
    Io {
        /// `read`, `written`, …
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was read is not what was stored.
    #[error(
        "a content in {path}, at byte {offset}, is not what was stored: something changed the \
         file; pull again to fetch it anew"
    )]
    Damaged {
        /// The pack.
        path: PathBuf,
        /// Where its record begins.
        offset: u64,
    },
    /// A content that the store does not have.
    #[error("the store does not have the content {0}")]
    Missing(ContentId),
    /// A tree cannot be published before its contents are here.
    #[error("{count} contents of the tree are not in the store, the first is {first}")]
    Incomplete {
        /// How many files lack theirs.
        count: u64,
        /// The first content that is missing, or has another size than its entry says.
        first: ContentId,
    },
    /// A tree whose names and links are longer than a generation's file may be.
    #[error("the tree's names and links are too long for a generation; leave some of it out")]
    TooLong,
    /// Bytes that were to be stored are not those of the content.
    #[error("what was received is not the content {0}")]
    NotTheContent(ContentId),
    /// A range outside a content.
    #[error("bytes {offset}..{end} lie outside of the content {content}")]
    Range {
        /// Which content.
        content: ContentId,
        /// First byte.
        offset: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A generation that is not there.
    #[error("there is no generation {0}")]
    NoGeneration(GenerationNumber),
    /// A generation's file is not what was written.
    #[error("the generation {path} is damaged: {why}")]
    Generation {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        why: BadGeneration,
    },
}

/// What is wrong with a generation's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGeneration {
    /// Too short, too long, or of something else.
    #[error("it is no generation of a form that this labproxy knows")]
    Form,
    /// A hash in it is not that of what it stands for.
    #[error("the hash of its {0} is another")]
    Hash(&'static str),
    /// It was copied from another mirror, or renamed.
    #[error("it is of another {0}")]
    Other(&'static str),
    /// The tree in it.
    #[error("its tree cannot be read: {0}")]
    Tree(#[from] BadTree),
}

impl StoreError {
    /// The system's error at a file.
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, source }
            }
            _ => Self::Io { what, path, source },
        }
    }
}
