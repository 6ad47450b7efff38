//! Reading a whole tree: every entry, every byte of every file, by as many threads as wanted.
//!
//! A tree that is scanned is foreign and alive. Nothing is reached but through descriptors, one
//! name at a time or with `openat2`, so that no swapped link leads outside; nothing but regular
//! files and directories is ever opened; each file is either known to have had exactly the bytes
//! that its hash says, or is a [`Problem`]; and each directory is listed again until all of them
//! stand as they were listed, so that what is renamed meanwhile is not missed.
//!
//! What this cannot see is a store through a mapping that leaves a file's times as they are, a
//! program that changes bytes back between two reads while the file grows, and a write that the
//! kernel holds up in its middle for longer than both reads of a file that was just changed: freeze
//! the writers for a scan that must be an instant of the tree.

mod assembly;
mod cache;
mod clock;
mod entries;
mod file;
mod late;
mod listing;
mod queue;
mod record;
mod sight;
mod spans;
mod walk;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use cache::{Cache, CacheError, FrozenWriters};
pub use late::{Late, Unread};

use super::content::{ContentId, Groups};
use super::directory::Directory;
use super::limits::Limits;
use super::path::{DEPTH_MAX, RelPath};
use super::root::{Root, RootError, RootIdentity};
use super::stamp::Stamps;

/// How often directories that change during a scan are listed again before it gives up. A build in
/// full run leaves gaps of milliseconds, and a round over what changed takes about one.
const ROUNDS_MAX: u32 = 16;
/// Most threads of a scan: more than the cores of the machines there are, and each may hold a few
/// descriptors and two mebibytes.
const THREADS_MAX: usize = 128;

/// What a tree was.
#[derive(Debug)]
pub struct Scan {
    /// All that is in it but what has a problem or was skipped.
    pub tree: Directory,
    /// What the file system said of each entry, without the root.
    pub stamps: Stamps,
    /// The groups of the contents above [`super::content::GROUPED_ABOVE`].
    pub groups: HashMap<ContentId, Groups>,
    /// What could not be read as it was, by path. While there is one, the tree is not known.
    pub problems: Vec<Problem>,
    /// Which directory the root was, at the start and at the end.
    pub identity: RootIdentity,
    /// What it took.
    pub effort: Effort,
}

impl Scan {
    /// Whether the tree is known whole; only then may anything be published or deleted by it.
    pub const fn is_complete(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What a scan took. How often something is read again depends on who writes meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Files that were read, each as often as it was.
    pub files: u64,
    /// Bytes that were read; holes are none.
    pub bytes: u64,
    /// Files that were read again because they changed.
    pub file_retries: u64,
    /// Directories that were listed again because they changed.
    pub directory_retries: u64,
}

/// How to scan.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// What the tree may have.
    pub limits: Limits,
    /// Threads, at least one and at most 128. Chosen here, never by a peer.
    pub threads: usize,
    /// Whether to leave out an entry; the second argument says whether it is a directory, which is
    /// then not entered. Nothing leaves out nothing.
    pub skip: Option<Skip<'a>>,
    /// Counts up while the scan runs.
    pub progress: &'a Progress,
    /// Set to stop the scan soon.
    pub cancel: &'a AtomicBool,
}

/// Decides what is left out of a scan.
pub type Skip<'a> = &'a (dyn Fn(&RelPath, bool) -> bool + Sync);

impl fmt::Debug for Options<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Options")
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .field("skip", &self.skip.is_some())
            .finish_non_exhaustive()
    }
}

/// How far a scan is; anyone may look while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Entries that were listed.
    pub entries: AtomicU64,
    /// Files that were read.
    pub files: AtomicU64,
    /// Bytes that were read.
    pub bytes: AtomicU64,
    file_retries: AtomicU64,
    directory_retries: AtomicU64,
}

impl Progress {
    fn effort(&self) -> Effort {
        Effort {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            file_retries: self.file_retries.load(Ordering::Relaxed),
            directory_retries: self.directory_retries.load(Ordering::Relaxed),
        }
    }
}

/// Something of a tree that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where; the root for what concerns the whole tree.
    pub path: RelPath,
    /// What.
    pub trouble: Trouble,
}

/// Why a part of a tree is not known.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum Trouble {
    /// The system does not let it be read.
    #[error("it cannot be read: {}", Errno::from_raw_os_error(*errno))]
    Unreadable {
        /// The system's number for the reason.
        errno: i32,
    },
    /// It changed each time that it was read.
    #[error("it changes faster than it can be read; stop what writes to it and try again")]
    Changing,
    /// A directory holds a name that no mirror can have.
    #[error("a name in it cannot be mirrored: \"{}\"", name.escape_ascii())]
    BadName {
        /// Its bytes.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// A directory of the greatest depth has something in it.
    #[error("it holds something deeper than {DEPTH_MAX} names; move it up or exclude it")]
    TooDeep,
    /// A file above the limit.
    #[error("a file of {size} bytes, and {limit} is the limit; exclude it or raise the limit")]
    TooLarge {
        /// Bytes, as its size says.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// More entries than the limit; nothing of the tree is kept then.
    #[error("more than {limit} entries; exclude some or raise the limit")]
    TooMany {
        /// The limit.
        limit: u64,
    },
    /// All files together are above the limit; nothing of the tree is kept then.
    #[error("more than {limit} bytes in all; exclude some or raise the limit")]
    TreeTooLarge {
        /// The limit.
        limit: u64,
    },
    /// The names of all paths together are above the limit; nothing of the tree is kept then.
    #[error("paths of more than {limit} bytes in all; exclude some")]
    PathsTooLong {
        /// The limit.
        limit: u64,
    },
    /// The root is another directory than at the start, or gone.
    #[error("the root was replaced, unmounted or moved away")]
    RootChanged,
}

/// As many threads as this machine has processors.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Why there is no scan at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// It was told to stop.
    #[error("the scan was stopped")]
    Cancelled,
    /// The root is not readable.
    #[error("the root: {0}")]
    Root(RootError),
}

/// Reads the whole tree below `root`, which was opened at `path`. The same tree gives the same
/// scan by any number of threads.
///
/// # Errors
/// When it was stopped, or the root itself cannot be read at all; everything else is a problem in
/// the scan.
pub fn scan(root: &Root, path: &Path, options: Options<'_>) -> Result<Scan, ScanError> {
    scan_by(root, path, options, None)
}

/// The same, without reading what a cache knows.
///
/// # Errors
/// As [`scan`].
pub fn scan_cached(
    root: &Root,
    path: &Path,
    options: Options<'_>,
    cache: &Cache,
) -> Result<Scan, ScanError> {
    scan_by(root, path, options, Some(cache))
}

fn scan_by(
    root: &Root,
    path: &Path,
    options: Options<'_>,
    cache: Option<&Cache>,
) -> Result<Scan, ScanError> {
    let walk = walk::Walk::new(root, options, cache)
        .map_err(|error| ScanError::Root(RootError::Io(error)))?;
    let mut records = record::Records::new();
    let mut todo = records.everything();
    let mut round = 1;
    loop {
        records.take(walk.list(todo));
        if walk.is_over() {
            break;
        }
        records.prune();
        let changed = walk.check(records.whole());
        if !records.mark(&changed) || round == ROUNDS_MAX || walk.is_over() {
            break;
        }
        let wait;
        (todo, wait) = records.todo();
        walk.settle(wait, records.used());
        let again = u64::try_from(todo.len()).unwrap_or(u64::MAX);
        let counter = &options.progress.directory_retries;
        counter.fetch_add(again, Ordering::Relaxed);
        round += 1;
    }
    if options.cancel.load(Ordering::Relaxed) {
        return Err(ScanError::Cancelled);
    }
    let mut scan = assembly::assemble(records, root.identity(), walk.excess());
    if !matches!(root.is_still(path), Ok(true)) {
        scan.problems.insert(
            0,
            Problem {
                path: RelPath::ROOT,
                trouble: Trouble::RootChanged,
            },
        );
    }
    scan.effort = options.progress.effort();
    Ok(scan)
}
