//! The session's runtime directory: fresh, of this user alone, with its sockets.
//!
//! It stands in `/tmp`, else in the login's `XDG_RUNTIME_DIR`: that one is removed with the user's
//! last login, which is just when a lost link leaves nobody logged in.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};

use crate::wire::bytes::ByteString;

use super::directory::fits_a_socket;
use super::login::Login;

/// The longest name below a runtime directory: the forward of link 4294967295.
const LONGEST_BELOW: &str = "link-4294967295/proxy.sock";
/// The supervisor's socket.
pub const SUPERVISOR_SOCKET: &str = "supervisor.sock";
/// The forwarder's socket.
pub use super::forward::SOCKET_NAME as AGENT_SOCKET;
/// What a link's directory is called before its number.
const LINK_DIRECTORY: &str = "link-";
/// Names that are tried; each is one of 2^64.
const TRIES: u32 = 16;

/// Which file a name stands for: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Of what stands at a path now, a link itself and not what it leads to.
    pub fn of(path: &Path) -> io::Result<Self> {
        let facts = path.symlink_metadata()?;
        Ok(Self {
            device: facts.dev(),
            inode: facts.ino(),
        })
    }
}

/// A runtime directory, by its path and identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    path: ByteString,
    id: FileId,
    /// The sockets that were made in it: only these very files are ever removed.
    sockets: Vec<(String, FileId)>,
}

impl Place {
    /// Makes a fresh one.
    ///
    /// # Errors
    /// With where and why, when it can be made nowhere.
    pub fn make(login: &Login) -> Result<Self, (PathBuf, io::Error)> {
        let mut last = None;
        for parent in [
            Some(PathBuf::from("/tmp")),
            login.directory(b"XDG_RUNTIME_DIR"),
        ] {
            let Some(parent) = parent else { continue };
            match fresh(&parent) {
                Ok(place) => return Ok(place),
                Err(error) => last = last.or(Some((parent, error))),
            }
        }
        Err(last.unwrap_or_else(|| (PathBuf::from("/tmp"), io::Error::other("no name was free"))))
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    /// Where the supervisor listens.
    pub fn supervisor_socket(&self) -> PathBuf {
        self.path().join(SUPERVISOR_SOCKET)
    }

    /// Where the forwarder listens.
    pub fn agent_socket(&self) -> PathBuf {
        self.path().join(AGENT_SOCKET)
    }

    /// A socket was made in it, which goes when it goes.
    pub fn made(&mut self, name: &str) -> io::Result<()> {
        let id = FileId::of(&self.path().join(name))?;
        self.sockets.push((name.to_owned(), id));
        Ok(())
    }

    /// Makes the directory of a link, for its forward.
    pub fn link_directory(&self, link: u64) -> io::Result<PathBuf> {
        let path = self.path().join(format!("{LINK_DIRECTORY}{link}"));
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a link's directory with the socket that ssh left in it.
    pub fn remove_link_directory(&self, link: u64) {
        let name = format!("{LINK_DIRECTORY}{link}");
        if let Ok(opened) = self.open() {
            // What is still used, or was put there by others, stays until the end.
            let _kept = remove_sockets_of(&opened, Path::new(&name));
        }
    }

    /// Removes it with its sockets and links' directories, and nothing else that may be in it.
    ///
    /// # Errors
    /// When something is left.
    pub fn remove(&self) -> io::Result<()> {
        let opened = match self.open() {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for name in names(&opened)? {
            if name
                .as_encoded_bytes()
                .starts_with(LINK_DIRECTORY.as_bytes())
            {
                remove_sockets_of(&opened, Path::new(&name))?;
            } else if let Some((_, id)) = self.sockets.iter().find(|(own, _)| name == **own) {
                remove_socket(&opened, Path::new(&name), Some(*id))?;
            }
        }
        Ok(rustix::fs::rmdir(self.path.as_os_str())?)
    }

    /// Opens it, unless something else stands there now.
    fn open(&self) -> io::Result<OwnedFd> {
        let opened = open_directory(rustix::fs::CWD, &self.path())?;
        let facts = rustix::fs::fstat(&opened)?;
        let id = FileId {
            device: facts.st_dev,
            inode: facts.st_ino,
        };
        if id == self.id && facts.st_uid == rustix::process::geteuid().as_raw() {
            return Ok(opened);
        }
        Err(io::Error::other("another directory stands there now"))
    }
}

fn fresh(parent: &Path) -> io::Result<Place> {
    for _ in 0..TRIES {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
        let path = parent.join(format!("lp-{:016x}", u64::from_le_bytes(random)));
        if !fits_a_socket(&path.join(LONGEST_BELOW)) {
            return Err(io::Error::other(
                "its path is too long for a socket, or has a ':'",
            ));
        }
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {
                return Ok(Place {
                    id: FileId::of(&path)?,
                    path: ByteString::from(path.as_os_str()),
                    sockets: Vec::new(),
                });
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("no name was free"))
}

fn open_directory(parent: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, path, flags, Mode::empty())?)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(std::os::unix::ffi::OsStringExt::from_vec(name));
        }
    }
    Ok(names)
}

/// Removes a name if a socket stands there, and this one when it is known which.
fn remove_socket(directory: &OwnedFd, name: &Path, known: Option<FileId>) -> io::Result<()> {
    let facts = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let id = FileId {
        device: facts.st_dev,
        inode: facts.st_ino,
    };
    let is_it = known.is_none_or(|known| known == id);
    if is_it && FileType::from_raw_mode(facts.st_mode) == FileType::Socket {
        rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}

fn remove_sockets_of(parent: &OwnedFd, name: &Path) -> io::Result<()> {
    let opened = open_directory(parent, name)?;
    for inside in names(&opened)? {
        remove_socket(&opened, Path::new(&inside), None)?;
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
