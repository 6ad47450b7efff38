//! The root of a tree: a directory that is opened once, and everything else through it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::beneath::Beneath;
use super::path::{Name, RelPath};

/// A tree's root, open.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    identity: RootIdentity,
    beneath: Beneath,
}

/// Which directory a root is. An unmounted disk or a directory made anew has another one, and then
/// nothing is deleted because nothing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootIdentity {
    /// The file system's device.
    pub device: u64,
    /// The inode there.
    pub inode: u64,
    /// When the inode was made, seconds and nanoseconds; nothing where the file system does not
    /// tell.
    pub born: Option<(i64, u32)>,
}

/// Why a directory cannot be a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// Nothing is there.
    #[error("it does not exist")]
    Missing,
    /// A symlink.
    #[error("it is a symlink; name the directory that it leads to")]
    Symlink,
    /// Something else than a directory.
    #[error("it is no directory")]
    NotDirectory,
    /// The system's word.
    #[error("it cannot be opened: {0}")]
    Io(Errno),
}

impl Root {
    /// Opens a directory as a root. The directories above it may be links; the root itself may
    /// not.
    ///
    /// # Errors
    /// When it is no directory or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        Self::open_with(path, Beneath::default())
    }

    /// The same, with a way of opening what is below.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, beneath: Beneath) -> Result<Self, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Err(RootError::Missing),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(what_else(path)),
            Err(error) => return Err(RootError::Io(error)),
        };
        let identity = identity_of(directory.as_fd()).map_err(RootError::Io)?;
        Ok(Self {
            directory,
            identity,
            beneath,
        })
    }

    /// Which directory it is.
    pub const fn identity(&self) -> RootIdentity {
        self.identity
    }

    /// Opens what lies at `path`, without following any link. `flags` get CLOEXEC and NOFOLLOW.
    ///
    /// # Errors
    /// As [`Beneath::open`].
    pub fn open_at(&self, path: &RelPath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        self.beneath.open(self.directory.as_fd(), path, flags, mode)
    }

    /// Opens a directory of the tree for reading.
    ///
    /// # Errors
    /// As [`Beneath::open`].
    pub fn directory(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// Opens the directory that `path` lies in, and gives its name there.
    ///
    /// # Errors
    /// EINVAL for the root itself, which lies nowhere here; else as [`Beneath::open`].
    pub fn parent(&self, path: &RelPath) -> Result<(OwnedFd, Name), Errno> {
        let (parent, name) = path.split_last().ok_or(Errno::INVAL)?;
        Ok((self.directory(&parent)?, name))
    }

    /// Whether `path` is still this root: it was not unmounted, replaced or moved away.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn is_still(&self, path: &Path) -> Result<bool, RootError> {
        Self::open(path).map(|now| now.identity == self.identity)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// What stands where a directory was wanted.
fn what_else(path: &Path) -> RootError {
    match path.symlink_metadata() {
        Ok(seen) if seen.is_symlink() => RootError::Symlink,
        Ok(_) | Err(_) => RootError::NotDirectory,
    }
}

#[cfg(target_os = "linux")]
fn identity_of(directory: BorrowedFd<'_>) -> Result<RootIdentity, Errno> {
    use rustix::fs::{AtFlags, StatxFlags};
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let seen = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, wanted)?;
    let told = seen.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(RootIdentity {
        device: rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
        inode: seen.stx_ino,
        born: told.then_some((seen.stx_btime.tv_sec, seen.stx_btime.tv_nsec)),
    })
}

#[cfg(not(target_os = "linux"))]
fn identity_of(directory: BorrowedFd<'_>) -> Result<RootIdentity, Errno> {
    let seen = rustix::fs::fstat(directory)?;
    Ok(RootIdentity {
        device: u64::try_from(seen.st_dev).unwrap_or(u64::MAX),
        inode: seen.st_ino,
        born: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Every kind of place that is no root says what it is.
    #[test]
    fn what_is_no_directory_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("directory", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let error = |name: &str| Root::open(&at(name)).unwrap_err();
        assert_eq!(error("missing"), RootError::Missing);
        assert_eq!(error("file"), RootError::NotDirectory);
        assert_eq!(error("link"), RootError::Symlink);
        assert_eq!(error("dangling"), RootError::Symlink);
        assert_eq!(error("link/nothing"), RootError::Missing);
        Root::open(&at("link").join(".")).unwrap();
    }

    /// A directory made anew in its place is another root.
    #[test]
    fn m33_a_root_made_anew_is_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("root");
        fs::create_dir(&path).unwrap();
        let root = Root::open(&path).unwrap();
        assert_eq!(root.is_still(&path), Ok(true));
        fs::rename(&path, place.path().join("away")).unwrap();
        assert_eq!(root.is_still(&path), Err(RootError::Missing));
        fs::create_dir(&path).unwrap();
        assert_eq!(root.is_still(&path), Ok(false));
    }
}
