//! What one tree may have: a hostile end must not fill the other's memory, disk or time.

use serde::{Deserialize, Serialize};

/// Most entries of a tree.
pub const ENTRIES_MAX: u64 = 1_000_000;
/// Longest file, bytes.
pub const FILE_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// All files of a tree together, bytes.
pub const TREE_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// All paths of a tree together, bytes: a million of 512 bytes. A few deep directories of long names
/// with many files would fill the memory otherwise.
pub const PATHS_MAX: u64 = 512 * 1024 * 1024;

/// The limits of a mirror; the defaults are those of the constants, and a user's configuration may
/// set others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Entries, directories included, without the root.
    pub entries: u64,
    /// Bytes of one file, as its size says: holes count.
    pub file: u64,
    /// Bytes of all files.
    pub tree: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: ENTRIES_MAX,
            file: FILE_MAX,
            tree: TREE_MAX,
        }
    }
}
