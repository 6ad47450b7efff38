//! Files that are written before there are steps for them, while their contents come: inodes
//! without names, which go by themselves when nobody names them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::entry::File;
use super::super::path::RelPath;
use super::super::root::Root;
use super::super::stamp::Stamp;
use super::super::write_back::WriteBack;
use super::content;
use super::fresh::Fresh;
use super::ground::{Spot, stamp_of};
use super::outcome::{Change, Failure, Undone};
use super::steps::Hand;

/// A new inode on a root's file system, without a name.
#[derive(Debug)]
pub struct Unnamed {
    file: OwnedFd,
    write_back: WriteBack,
}

impl Unnamed {
    /// One in the lowest directory above `path` that is there: a new file takes over its group and its
    /// default rights, and so would a directory that is yet to be made on the way to `path`.
    ///
    /// # Errors
    /// When there can be none, as on a file system that has no inodes without names.
    #[cfg(target_os = "linux")]
    pub fn near(root: &Root, path: &RelPath) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut above = path.split_last().ok_or(Errno::INVAL)?.0;
        let directory = loop {
            match (
                root.open_at(&above, flags, Mode::empty()),
                above.split_last(),
            ) {
                (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), Some((higher, _))) => {
                    above = higher;
                }
                (opened, _) => break opened?,
            }
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&directory, c".", flags, mode)?;
        Ok(Self {
            file,
            write_back: WriteBack::default(),
        })
    }

    /// The same, where no system has them.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn near(_root: &Root, _path: &RelPath) -> Result<Self, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Writes bytes that its caller has proven, at a multiple of 64 KiB behind those before; zeros become
    /// holes.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        content::write_filled(None, self.file.as_fd(), bytes, at)?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.write_back
            .reached(&self.file, at.saturating_add(length));
        Ok(())
    }

    /// Gives it its size, when it ends in a hole.
    ///
    /// # Errors
    /// When it cannot be set.
    pub fn finish(&self, size: u64) -> Result<(), Errno> {
        content::finish(self.file.as_fd(), size)
    }
}

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Hand<'_> {
    /// Gives a file its name that was written ahead; nothing when none was, or when the inode cannot
    /// have a name there.
    pub(super) fn put_ahead(
        &self,
        spot: &Spot,
        expected: Option<Stamp>,
        path: &RelPath,
        file: &File,
    ) -> Result<Option<Vec<Change>>, Undone> {
        let Some(Unnamed { file: inode, .. }) = self.ground.contents.written_ahead(path, file)
        else {
            return Ok(None);
        };
        let is = stamp_of(inode.as_fd())?;
        if is.kind() != FileType::RegularFile || is.size != file.size {
            return Ok(None);
        }
        let mode = self.ground.modes.of(file);
        let fresh = Fresh::ahead(self.ground, spot, inode);
        fresh.seal(mode)?;
        match fresh.put(expected) {
            Ok(now) => Ok(Some(vec![(path.clone(), Some(now))])),
            // A part of the tree with a quota of its own, or a subvolume.
            Err(Undone::Failed(Failure::System(Errno::XDEV))) => Ok(None),
            Err(undone) => Err(undone),
        }
    }
}
