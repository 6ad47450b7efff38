//! The private place of a connection's control socket and configuration.
//!
//! It exists only while ssh starts: once the socket is there, it is held open and everything is
//! removed, so that whoever dies later leaves nothing. What was left by somebody who died earlier is
//! removed by the next one: its lock is free.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::failure::LinkFailure;

/// ssh adds the socket's name and a random ending of 17 bytes, and a socket's path has at most 103
/// bytes on every system.
pub const DIRECTORY_MAX: usize = 60;
/// What our directories are called, before the random part.
const PREFIX: &str = "ssh-";
/// The socket in it.
const SOCKET: &str = "m";
/// The configuration in it.
const CONFIGURATION: &str = "config";
/// Tries at a name: another process may take a new directory for one that was left.
const TRIES: usize = 8;

/// A directory of ours that ssh can put its control socket into.
#[derive(Debug)]
pub(super) struct Control {
    directory: PathBuf,
    /// Locked as long as this process lives.
    lock: File,
    /// The socket itself, once it is there and the directory is gone.
    socket: Option<File>,
}

impl Control {
    /// Makes one below `sockets`, and removes what dead processes left there.
    pub(super) fn new(sockets: &Path) -> Result<Self, LinkFailure> {
        sweep(sockets);
        let failed = |error: io::Error| LinkFailure::Here {
            what: format!(
                "no directory for ssh's control socket in {}",
                sockets.display()
            ),
            why: error.to_string(),
        };
        for _ in 0..TRIES {
            let mut random = [0; 8];
            getrandom::fill(&mut random)
                .map_err(|error| failed(io::Error::other(error.to_string())))?;
            let number = u64::from_le_bytes(random);
            let directory = sockets.join(format!("{PREFIX}{number:016x}"));
            check_path(&directory)?;
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&directory)
                .map_err(failed)?;
            if let Some(lock) = lock(&directory).filter(|_| directory.exists()) {
                return Ok(Self {
                    directory,
                    lock,
                    socket: None,
                });
            }
        }
        Err(failed(io::Error::other("another process removes them")))
    }

    /// Where the configuration goes.
    pub(super) fn configuration(&self) -> PathBuf {
        self.directory.join(CONFIGURATION)
    }

    /// Where ssh listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Removes the directory once ssh listens, where the socket can be reached without its name;
    /// gives the path to connect to.
    pub(super) fn hide(&mut self) -> io::Result<PathBuf> {
        let path = self.socket();
        if !cfg!(target_os = "linux") {
            return Ok(path);
        }
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | path_only();
        let socket = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        let held = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        self.socket = Some(socket);
        remove(&self.directory)?;
        Ok(held)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Gone already when it was hidden.
        let _gone = remove(&self.directory);
        let _unlocked = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

#[cfg(target_os = "linux")]
fn path_only() -> OFlags {
    OFlags::PATH
}

#[cfg(not(target_os = "linux"))]
fn path_only() -> OFlags {
    OFlags::empty()
}

/// Whether ssh can use a directory: short enough, and without what its configuration would expand.
fn check_path(directory: &Path) -> Result<(), LinkFailure> {
    let bytes = directory.as_os_str().as_bytes();
    if bytes.len() > DIRECTORY_MAX {
        return Err(LinkFailure::PathTooLong {
            directory: directory.to_path_buf(),
            limit: DIRECTORY_MAX,
        });
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@".contains(byte);
    if !bytes.iter().all(plain) {
        return Err(LinkFailure::Here {
            what: format!(
                "ssh cannot have its control socket in {}",
                directory.display()
            ),
            why: "it would expand a character of that name".to_owned(),
        });
    }
    Ok(())
}

/// The directory, locked; `None` when somebody else has the lock or it is no directory.
fn lock(directory: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::empty()).ok()?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Removes the directories of processes that are gone.
fn sweep(sockets: &Path) {
    for entry in fs::read_dir(sockets).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && let Some(_lock) = lock(&entry.path())
        {
            // Another process may sweep too.
            let _gone = remove(&entry.path());
        }
    }
}

/// Removes what we and ssh put there, and nothing else.
fn remove(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        let ours = name == CONFIGURATION || name.as_bytes().starts_with(SOCKET.as_bytes());
        if ours {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// After the start nothing is on disk, and the socket can still be reached.
    #[test]
    fn a_hidden_socket_can_be_reached_and_leaves_nothing() {
        let sockets = tempfile::tempdir().unwrap();
        let mut control = Control::new(sockets.path()).unwrap();
        fs::write(control.configuration(), "BatchMode yes\n").unwrap();
        let listener = UnixListener::bind(control.socket()).unwrap();
        let path = control.hide().unwrap();
        assert!(names(sockets.path()).is_empty());
        let _connected = UnixStream::connect(&path).unwrap();
        drop(listener);
        assert!(UnixStream::connect(&path).is_err());
    }

    /// TB-25: what a killed process left is removed by the next one, what a living one has is not.
    #[test]
    fn tb25_what_was_left_is_removed() {
        let sockets = tempfile::tempdir().unwrap();
        let living = Control::new(sockets.path()).unwrap();
        let left = sockets.path().join("ssh-0123456789");
        fs::create_dir(&left).unwrap();
        drop(UnixListener::bind(left.join("m")).unwrap());
        fs::write(left.join("config"), "").unwrap();
        let other = sockets.path().join("session");
        fs::create_dir(&other).unwrap();
        let next = Control::new(sockets.path()).unwrap();
        assert!(living.directory.exists() && next.directory.exists() && other.exists());
        assert!(!left.exists());
        drop(living);
        drop(next);
        assert_eq!(names(sockets.path()), ["session"]);
    }

    /// TB-29, M-69: a path that is too long for a socket is named at once.
    #[test]
    fn tb29_m69_a_long_directory_is_refused_by_name() {
        let sockets = tempfile::tempdir().unwrap();
        let long = sockets.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        let refused = Control::new(&long).unwrap_err();
        assert!(matches!(refused, LinkFailure::PathTooLong { .. }));
        let odd = PathBuf::from("/tmp/a%b");
        assert!(check_path(&odd).is_err());
    }
}
