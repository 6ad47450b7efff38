//! The session's private directory: a folder of files for each launch that has some, and spools
//! without a name. It is worked in by its descriptor: the session's programs are of the same user
//! and could put a link in its place, which must not be followed into somebody's work.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::wire::link::ExecId;

/// Its name in the session's directory.
pub const PRIVATE: &str = "private";

/// The private directory, opened.
#[derive(Debug)]
pub struct Private(OwnedFd);

/// The folder of a launch's private files.
pub fn folder(session_directory: &Path, launch: ExecId) -> PathBuf {
    session_directory.join(PRIVATE).join(launch.0.to_string())
}

impl Private {
    /// Opens that of a session.
    ///
    /// # Errors
    /// When it is not there, or a link.
    pub fn open(session: &OwnedFd) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(session, PRIVATE, flags, Mode::empty())?;
        Ok(Self(opened))
    }

    /// The directory, for spools.
    pub fn opened(&self) -> &OwnedFd {
        &self.0
    }

    /// Removes the files of a launch, if it has any.
    ///
    /// # Errors
    /// When they stay.
    pub fn forget(&self, launch: ExecId) -> io::Result<()> {
        self.remove(&launch.0.to_string())
    }

    /// Removes the files of every launch; what has another name is not ours.
    ///
    /// # Errors
    /// When some stay.
    pub fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            let name = entry?.file_name();
            let launch = name.to_str().filter(|name| name.parse::<u32>().is_ok());
            if let Some(launch) = launch {
                self.remove(launch)?;
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The directory itself, whatever its name leads to by now.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Removes the private files of a session of which nothing runs any more.
///
/// # Errors
/// When some stay.
pub fn clear(session: &OwnedFd) -> io::Result<()> {
    match Private::open(session) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of launches go, whatever is in them; what is not of a launch, and what a link leads to,
    /// stays.
    #[test]
    fn only_launches_files_are_removed() {
        let session = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(fs::File::open(session.path()).unwrap());
        clear(&opened).unwrap();
        let work = session.path().join("workspace");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("result"), "").unwrap();
        for launch in [1, 2] {
            fs::create_dir_all(folder(session.path(), ExecId(launch)).join("below")).unwrap();
        }
        let path = session.path().join(PRIVATE);
        fs::write(path.join("note"), "").unwrap();
        std::os::unix::fs::symlink(&work, path.join("3")).unwrap();
        let private = Private::open(&opened).unwrap();
        private.forget(ExecId(1)).unwrap();
        private.forget(ExecId(1)).unwrap();
        assert!(!path.join("1").exists() && path.join("2").exists());
        fs::rename(&path, session.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&work, &path).unwrap();
        private.clear().unwrap();
        let moved = session.path().join("moved");
        assert!(!moved.join("2").exists() && moved.join("note").exists());
        assert!(work.join("result").exists(), "a link was followed");
        assert!(clear(&opened).is_err(), "a link is no private directory");
    }
}
