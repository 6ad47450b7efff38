//! A file that a scan left out and somebody else reads: because it is to be replaced, and reading it
//! can be a part of that.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::super::content::Groups;
use super::super::directory::Directory;
use super::super::entry::{Entry, File};
use super::super::path::{Name, RelPath};
use super::super::root::Root;
use super::super::stamp::Stamp;
use super::file::{Opener, Reading, Spot, Verdict};
use super::sight::Sight;
use super::{Scan, assembly, clock};

/// A file that is open and not read yet.
#[derive(Debug)]
pub struct Unread {
    path: RelPath,
    file: OwnedFd,
    reading: Reading,
}

/// A file that was read after the scan.
#[derive(Debug)]
pub struct Late {
    path: RelPath,
    opened: OwnedFd,
    file: File,
    stamp: Stamp,
    groups: Groups,
}

impl Unread {
    /// Opens the regular file at a path; nothing where something else stands, or a file of which a whole
    /// scan says more: one with several names.
    ///
    /// # Errors
    /// When nothing can be opened there.
    pub fn open(root: &Root, path: &RelPath) -> Result<Option<Self>, Errno> {
        let mount = Sight::of(root.as_fd())?.mount;
        let (parent, name) = root.parent(path)?;
        let asked = clock::now();
        let (spot, sight) = Spot::at(parent.as_fd(), &name)?;
        let is_alone = sight.stamp.kind() == FileType::RegularFile && sight.stamp.links == 1;
        if !is_alone || sight.mount != mount {
            return Ok(None);
        }
        let file = Opener::new().open(&spot, &sight, parent.as_fd(), &name)?;
        Ok(Some(Self {
            path: path.clone(),
            file,
            reading: Reading::first(&sight, asked),
        }))
    }

    /// To read it by.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes that it had when it was opened.
    pub const fn size(&self) -> u64 {
        self.reading.stamp.size
    }

    /// It was read, and these are its groups; nothing when it may have changed meanwhile, by the rules of
    /// a scan.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn known(self, groups: Groups) -> Result<Option<Late>, Errno> {
        let content = groups.content();
        let naps = clock::Naps::default();
        let verdict = self.reading.judge(Some(content), self.file(), &naps)?;
        if !matches!(verdict, Verdict::Good) {
            return Ok(None);
        }
        let stamp = self.reading.stamp;
        Ok(Some(Late {
            path: self.path,
            opened: self.file,
            file: assembly::file(&stamp, content, 0),
            stamp,
            groups,
        }))
    }
}

impl Scan {
    /// Takes in a file that was left out, and gives what it was read by; nothing when there is no place for
    /// it.
    pub fn add(&mut self, late: Late) -> Option<OwnedFd> {
        let Late {
            path,
            opened,
            file,
            stamp,
            groups,
        } = late;
        let content = file.content;
        let names: Result<Vec<Name>, _> = path.components().map(Name::new).collect();
        let names = names.unwrap_or_default();
        self.tree = with_file(&self.tree, &names, file)?;
        self.stamps.insert(path, stamp);
        self.groups.insert(content, groups);
        Some(opened)
    }
}

/// A directory with one more file, below directories that are there; nothing when one of them is not, or
/// something has its name.
fn with_file(directory: &Directory, names: &[Name], file: File) -> Option<Directory> {
    let (first, rest) = names.split_first()?;
    let mut entries = directory.entries().to_vec();
    let entry = if rest.is_empty() {
        Entry::File(file)
    } else {
        let at = entries.iter().position(|(name, _)| name == first)?;
        let (_, Entry::Directory(below)) = entries.remove(at) else {
            return None;
        };
        Entry::Directory(with_file(&below, rest, file)?)
    };
    entries.push((first.clone(), entry));
    Directory::new(entries, directory.seen()).ok()
}
