//! Which directories belong to which mirror: a mark for each root, kept in our own state and never
//! in the root, where an agent could remove or forge it.
//!
//! `<workdir>/mirrors/<name>` binds a root's path to a mirror and to the directory that stood there
//! (device, inode, birth). Where another one stands now, a disk was unmounted or the directory made
//! anew: then its emptiness means nothing. `<name>.lock` is held as long as a controller works on
//! the root.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::tree::mirror_id::MirrorId;
use crate::tree::root::RootIdentity;
use crate::wire::bytes::ByteString;

/// The first bytes of a mark: one of another form is no mark of ours.
const FORM: &[u8] = b"labproxy mirror 1\n";
/// Longest mark: a path and some numbers.
const MARK_MAX: u64 = 64 * 1024;
/// Bytes of the hash that names a root's files here.
const NAME_BYTES: usize = 16;

/// What is written down of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Its path, absolute.
    pub(super) path: ByteString,
    /// Whose it is.
    pub(super) mirror: MirrorId,
    /// Which directory it was.
    pub(super) identity: RootIdentity,
}

/// The marks of this host, open for one root, which nobody else works on meanwhile.
#[derive(Debug)]
pub(super) struct Marks {
    directory: OwnedFd,
    path: PathBuf,
    name: String,
    /// Held, not read.
    _lock: File,
}

impl Marks {
    /// For a root, by its absolute path, in the directory of all marks.
    ///
    /// # Errors
    /// When another process works on the root, or the directory cannot be used.
    pub(super) fn open(path: &Path, directory: OwnedFd, root: &Path) -> Result<Self, String> {
        let hash = blake3::hash(root.as_os_str().as_bytes());
        let name: String = hash.to_hex().chars().take(2 * NAME_BYTES).collect();
        let lock_name = format!("{name}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let lock = rustix::fs::openat(&directory, lock_name.as_str(), flags, private)
            .map_err(|error| cannot(path, error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let root = root.as_os_str().as_bytes().escape_ascii();
                return Err(format!(
                    "another labproxy works on {root} now; wait until it is done, or stop it"
                ));
            }
            Err(error) => return Err(cannot(path, error)),
        }
        Ok(Self {
            directory,
            path: path.to_owned(),
            name,
            _lock: lock.into(),
        })
    }

    /// Where what belongs to this root is kept: a name of its own in the directory of all marks.
    pub(super) fn beside(&self, what: &str) -> PathBuf {
        self.path.join(format!("{}.{what}", self.name))
    }

    /// The mark; nothing when there is none that can be read.
    ///
    /// # Errors
    /// When it cannot be looked for.
    pub(super) fn read(&self) -> Result<Option<Mark>, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = self.name.as_str();
        let opened = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(opened) => File::from(opened),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(cannot(&self.path, error)),
        };
        let mut bytes = Vec::new();
        opened
            .take(MARK_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let mark = bytes.strip_prefix(FORM);
        Ok(mark.and_then(|mark| postcard::from_bytes(mark).ok()))
    }

    /// Writes the mark, whole or not at all, and to the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, mark: &Mark) -> Result<(), String> {
        let bytes = postcard::to_extend(mark, FORM.to_vec()).map_err(|error| error.to_string())?;
        self.written(&bytes).map_err(|error| {
            let path = self.path.display();
            format!("the mark of the mirror cannot be written in {path}: {error}")
        })
    }

    fn written(&self, bytes: &[u8]) -> std::io::Result<()> {
        let new = format!("{}.new", self.name);
        match rustix::fs::unlinkat(&self.directory, new.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::openat(&self.directory, new.as_str(), flags, private)?;
        let mut file = File::from(opened);
        file.write_all(bytes)?;
        file.sync_all()?;
        let (directory, name) = (&self.directory, self.name.as_str());
        rustix::fs::renameat(directory, new.as_str(), directory, name)?;
        Ok(rustix::fs::fsync(directory)?)
    }
}

fn cannot(path: &Path, error: Errno) -> String {
    format!("{} cannot be used: {error}", path.display())
}
