//! Why something is not copied in.

use std::io;
use std::path::{Path, PathBuf};

use crate::escape::escape;
use crate::mirror::pair::NAMED_MAX;
use crate::tree::directory::TwiceTheName;
use crate::tree::path::{BadName, RelPath};

/// Why nothing was put.
#[derive(Debug, thiserror::Error)]
pub enum CopyInError {
    /// The source is none, or not whole.
    #[error("{} cannot be read: {why}", shown(.path))]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why, as a terminal may show it.
        why: String,
    },
    /// It holds what is never put.
    #[error("{} holds what is never copied in", shown(.from))]
    Refused {
        /// Which source.
        from: PathBuf,
        /// What.
        refusals: Refusals,
    },
    /// Other files are there.
    #[error("other files are there already")]
    Clashes(Vec<RelPath>),
    /// It cannot be put where it should be.
    #[error("what is brought cannot be put there")]
    Unfit(Vec<(RelPath, Unfit)>),
    /// It cannot be kept until all of it is read.
    #[error("what is brought cannot be staged in labproxy's state directory: {0}")]
    Staging(io::Error),
    /// Two entries of one name.
    #[error(transparent)]
    Twice(#[from] TwiceTheName),
}

impl CopyInError {
    pub(super) fn unreadable(path: &Path, why: &str) -> Self {
        Self::Unreadable {
            path: path.to_owned(),
            why: escape(why),
        }
    }
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// Members that are refused: the first ones, and how many there are.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Names as they are in the source, and why.
    pub first: Vec<(Vec<u8>, Refusal)>,
    /// All.
    pub count: u64,
}

impl Refusals {
    pub(super) fn add(&mut self, name: &[u8], why: Refusal) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < NAMED_MAX {
            self.first.push((name.to_vec(), why));
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Why a member is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It begins at the top of the file system.
    #[error("an absolute path")]
    Absolute,
    /// It climbs.
    #[error("a path with '..'")]
    Climbs,
    /// It is no path in a tree.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A symlink.
    #[error("a symlink")]
    Symlink,
    /// Another name of a file.
    #[error("a hard link")]
    HardLink,
    /// A character or block device.
    #[error("a device")]
    Device,
    /// A named pipe.
    #[error("a FIFO")]
    Fifo,
    /// A unix socket.
    #[error("a socket")]
    Socket,
    /// Another file system.
    #[error("another file system is mounted there")]
    Mountpoint,
    /// A file with holes, in a form of its own.
    #[error("a sparse file; pack it without --sparse")]
    Sparse,
    /// A kind of which nothing is known.
    #[error("a member of kind {0}, which is not known")]
    Kind(u8),
    /// It would run as its owner or group.
    #[error("it has the setuid or setgid bit")]
    Setuid,
    /// Two members have its name.
    #[error("it comes twice")]
    Twice,
    /// A file is where it needs a directory.
    #[error("a file is where a directory is to be")]
    FileThere,
    /// A directory is where it is to be.
    #[error("a directory is where a file is to be")]
    DirectoryThere,
    /// A file above the limit.
    #[error("a file of {size} bytes, and {limit} is the limit")]
    TooLarge {
        /// Bytes, as is said of it.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// More entries than the limit.
    #[error("more than {0} entries")]
    TooMany(u64),
    /// All files together are above the limit.
    #[error("more than {0} bytes in all")]
    TreeTooLarge(u64),
    /// All paths together are above the limit.
    #[error("paths of more than {0} bytes in all")]
    PathsTooLong(u64),
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl Refusal {
    /// Whether what comes after it is too much as well.
    pub(super) const fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::TooMany(_)
                | Self::TreeTooLarge(_)
                | Self::PathsTooLong(_)
        )
    }
}

/// Why something cannot be put where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No push would bring it to the other end.
    #[error("it is excluded from the mirror")]
    Excluded,
    /// It would say what is excluded, after that was read.
    #[error("excludes are read before the first push; push once with it, then copy the rest in")]
    Excludes,
    /// Its name is one that labproxy gives to unfinished files.
    #[error("labproxy gives such a name to files of its own")]
    Ours,
    /// A directory is there.
    #[error("a directory is there")]
    DirectoryThere,
    /// A file is there.
    #[error("a file is there")]
    FileThere,
    /// A symlink is there.
    #[error("a symlink is there, and none is followed")]
    LinkThere,
    /// Something without content is there.
    #[error("a FIFO, socket or device is there")]
    SpecialThere,
    /// The tree would have more than a mirror may.
    #[error("the directory would have more than a mirror may: see the limits")]
    TooMuch,
}
