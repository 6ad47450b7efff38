//! Contents that a scan need not read again, where that is sound, and nowhere else.
//!
//! A file's change time does not tell every change: a store to a page that is dirty already, through
//! a mapping, leaves it as it is. But once everything is written out, the next store has to make a
//! page dirty again, and that is stamped. So what was read while all writers were frozen, and was
//! then written out before any of them went on, is known to be the same as long as its stamp is:
//! on ext4, xfs and btrfs, as long as nobody can set the clock or write to the disk below the file
//! system. Files whose stamp is as young as the writing out are never known.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::content::{ContentId, Groups};
use super::super::entry::Entry;
use super::super::root::{Root, RootIdentity};
use super::super::stamp::Stamp;
use super::Scan;
use super::clock::{self, Moment};

/// Says that nothing has been able to write to the tree since before a scan of it began, and cannot
/// until this is gone: whoever makes one has frozen the writers, and thaws them afterwards.
#[derive(Debug)]
pub struct FrozenWriters(());

impl FrozenWriters {
    /// Only for who froze them before the scan.
    pub const fn promised() -> Self {
        Self(())
    }
}

/// What was read, by the stamps that it has as long as it is the same.
#[derive(Debug)]
pub struct Cache {
    root: RootIdentity,
    known: HashMap<Stamp, Known>,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) content: ContentId,
    pub(super) groups: Option<Arc<Groups>>,
}

/// Why nothing can be known by its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The scan has problems.
    #[error("the tree is not known whole")]
    Incomplete,
    /// The scan is of another root.
    #[error("the scan was of another directory")]
    OtherRoot,
    /// Its stamps do not tell every change, or it is not known whether they do.
    #[error("only ext4, xfs and btrfs tell every change; scan without a cache")]
    FileSystem,
    /// It could not be written out.
    #[error("the file system cannot be written out: {0}")]
    Io(Errno),
}

impl Cache {
    /// Writes the file system out, and keeps what the scan read.
    ///
    /// # Errors
    /// When stamps prove nothing here, or what was read is not whole.
    pub fn of(scan: &Scan, root: &Root, frozen: &FrozenWriters) -> Result<Self, CacheError> {
        let FrozenWriters(()) = frozen;
        if !scan.is_complete() {
            return Err(CacheError::Incomplete);
        }
        if scan.identity != root.identity() {
            return Err(CacheError::OtherRoot);
        }
        let epoch = write_out(root)?;
        let mut known = HashMap::new();
        let mut kept: HashMap<ContentId, Arc<Groups>> = HashMap::new();
        scan.tree.walk(&mut |path, entry| {
            if let (Entry::File(file), Some(stamp)) = (entry, scan.stamps.get(path))
                && clock::is_older(stamp.changed, epoch)
            {
                let content = file.content;
                let groups = scan.groups.get(&content).map(|groups| {
                    let kept = kept.entry(content);
                    Arc::clone(kept.or_insert_with(|| Arc::new(groups.clone())))
                });
                known.insert(*stamp, Known { content, groups });
            }
        });
        Ok(Self {
            root: root.identity(),
            known,
        })
    }

    /// How many files are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The content of a file of this root that has this stamp.
    pub(super) fn get(&self, root: &Root, stamp: &Stamp) -> Option<&Known> {
        (self.root == root.identity())
            .then(|| self.known.get(stamp))
            .flatten()
    }
}

/// Writes all pages out, where a page that is made dirty afterwards is stamped; gives the moment
/// before.
#[cfg(target_os = "linux")]
fn write_out(root: &Root) -> Result<Moment, CacheError> {
    /// ext4 and the older ones that its driver reads, xfs, btrfs: `linux/magic.h`.
    const SOUND: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
    let kind = rustix::fs::fstatfs(root).map_err(CacheError::Io)?.f_type;
    if !u64::try_from(kind).is_ok_and(|kind| SOUND.contains(&kind)) {
        return Err(CacheError::FileSystem);
    }
    let epoch = clock::now();
    rustix::fs::syncfs(root).map_err(CacheError::Io)?;
    Ok(epoch)
}

#[cfg(not(target_os = "linux"))]
const fn write_out(_root: &Root) -> Result<Moment, CacheError> {
    Err(CacheError::FileSystem)
}
