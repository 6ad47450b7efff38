//! Who stands at a path, as the file system tells without reading it: what a scan saw, and what a
//! step compares before it replaces anything.

use rustix::fs::{FileType, Stat};

use super::path::RelPath;

/// What `stat` says of one entry. Two equal stamps of a file do not prove equal bytes (a store
/// through a mapping may leave them), but a file that a program wrote to or replaced in between
/// has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// File system.
    pub device: u64,
    /// Inode there.
    pub inode: u64,
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// Names of the inode.
    pub links: u64,
    /// Bytes; of a directory nothing that can be compared.
    pub size: u64,
    /// Last change of the content: seconds, nanoseconds.
    pub modified: (i64, u64),
    /// Last change of content or inode: seconds, nanoseconds.
    pub changed: (i64, u64),
}

impl Stamp {
    /// From what `fstat` gave.
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the fields have other types on other systems"
    )]
    pub fn of(seen: &Stat) -> Self {
        Self {
            device: u64::try_from(seen.st_dev).unwrap_or(u64::MAX),
            inode: u64::from(seen.st_ino),
            mode: u32::from(seen.st_mode),
            links: u64::from(seen.st_nlink),
            size: u64::try_from(seen.st_size).unwrap_or(0),
            modified: (
                i64::from(seen.st_mtime),
                u64::try_from(seen.st_mtime_nsec).unwrap_or(0),
            ),
            changed: (
                i64::from(seen.st_ctime),
                u64::try_from(seen.st_ctime_nsec).unwrap_or(0),
            ),
        }
    }

    /// Of which kind it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Whether the same inode stands there with the same content as far as can be told without
    /// reading: what a rename or another name of it changes (its change time, the number of its
    /// names) is left out.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode, self.mode, self.size, self.modified)
            == (
                other.device,
                other.inode,
                other.mode,
                other.size,
                other.modified,
            )
    }
}

/// The stamps of a whole tree, by path.
#[derive(Debug, Default)]
pub struct Stamps(Vec<(RelPath, Stamp)>);

impl Stamps {
    /// Of everything that a scan saw, in any order, each path once.
    pub fn new(mut seen: Vec<(RelPath, Stamp)>) -> Self {
        seen.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self(seen)
    }

    /// What stood at a path; nothing when nothing did.
    pub fn get(&self, path: &RelPath) -> Option<&Stamp> {
        let at = self.0.binary_search_by(|(here, _)| here.cmp(path)).ok()?;
        self.0.get(at).map(|(_, stamp)| stamp)
    }

    /// Adds one, of a path that has none.
    pub fn insert(&mut self, path: RelPath, stamp: Stamp) {
        let after = self.0.partition_point(|(here, _)| *here < path);
        self.0.insert(after, (path, stamp));
    }

    /// All of them, as a walk meets them.
    pub fn all(&self) -> &[(RelPath, Stamp)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn stamp(path: &std::path::Path) -> Stamp {
        Stamp::of(&rustix::fs::lstat(path).unwrap())
    }

    /// A rename keeps a file the same; a write, another mode and another file do not.
    #[test]
    fn the_same_file_is_known_again() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("a"), "one").unwrap();
        fs::write(at("b"), "one").unwrap();
        let before = stamp(&at("a"));
        assert_eq!(before.kind(), FileType::RegularFile);
        assert!(!before.is_same_file(&stamp(&at("b"))));
        fs::rename(at("a"), at("c")).unwrap();
        fs::hard_link(at("c"), at("d")).unwrap();
        assert!(before.is_same_file(&stamp(&at("c"))));
        fs::write(at("c"), "longer").unwrap();
        assert!(!before.is_same_file(&stamp(&at("c"))));
        let stamps = Stamps::new(vec![(RelPath::new("c").unwrap(), before)]);
        assert_eq!(stamps.get(&RelPath::new("c").unwrap()), Some(&before));
        assert_eq!(stamps.get(&RelPath::new("a").unwrap()), None);
    }
}
