//! Opening a file that somebody may have put something else in place of: a pipe that never ends, a
//! device, a link to one.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlainFileError {
    /// It cannot be opened or looked at.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a directory, a pipe, a device.
    #[error("it is not a regular file")]
    NotPlain,
}

/// Whether the last part of a path may be a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It may.
    Follow,
    /// It is an error.
    Refuse,
}

/// Opens a regular file for reading, never waiting for what stands in its place; gives what the open
/// file itself is, so that nothing can be swapped between the look and the read.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path, links: Links) -> Result<(File, Metadata), PlainFileError> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(PlainFileError::NotPlain);
    }
    Ok((file, about))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType};

    use super::*;

    /// A pipe, a device and a directory are refused at once; a link is followed only where it may.
    #[test]
    fn only_a_regular_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for odd in [&pipe, Path::new("/dev/zero"), directory.path()] {
            let refused = open(odd, Links::Follow);
            assert!(matches!(refused, Err(PlainFileError::NotPlain)), "{odd:?}");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(open(&link, Links::Follow).unwrap().1.len(), 4);
        assert!(matches!(
            open(&link, Links::Refuse),
            Err(PlainFileError::Io(_))
        ));
    }
}
