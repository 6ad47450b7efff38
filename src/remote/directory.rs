//! The session's directory on the host: made, or found and checked.
//!
//! `<workdir>/sessions/ID/{workspace,claude,log,private}`. Whoever else could write there could
//! replace what we run and read, so each part from `sessions` down must be a real directory of this
//! user that nobody else can write; the work directory itself may be a link of the user's own.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::wire::bytes::ByteString;
use crate::wire::link::{Opening, Refusal};

use super::login::Login;
use super::private::PRIVATE;

/// Longest name of a session: it is a part of paths.
const NAME_MAX: usize = 64;
/// What a session's directory holds.
const PARTS: [&str; 4] = ["workspace", "claude", "log", PRIVATE];
/// Longest path of a socket: the kernel takes 107 bytes, and a container may see it elsewhere.
const SOCKET_PATH_MAX: usize = 100;
/// Bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// A session's directory, checked.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    opened: OwnedFd,
}

impl SessionDirectory {
    /// Finds that of a session below a work directory.
    ///
    /// # Errors
    /// With what is wrong with which directory; `NoSupervisor` when there is none.
    pub fn find(workdir: &ByteString, session: &str, login: &Login) -> Result<Self, Refusal> {
        let workdir = expanded(workdir, login)?;
        let name = session_name(session)?;
        let missing = |refusal| match refusal {
            Missing::Absent => Refusal::NoSupervisor,
            Missing::Refused(refusal) => refusal,
        };
        let top = open(None, &workdir, &workdir).map_err(missing)?;
        let path = workdir.join("sessions");
        let sessions = open(Some(&top), Path::new("sessions"), &path).map_err(missing)?;
        let path = path.join(name);
        let opened = open(Some(&sessions), Path::new(name), &path).map_err(missing)?;
        Ok(Self { path, opened })
    }

    /// Makes what is missing of it.
    ///
    /// # Errors
    /// With what is wrong with which directory.
    pub fn make(opening: &Opening, login: &Login) -> Result<Self, Refusal> {
        let name = session_name(&opening.session)?;
        let (path, sessions) = sessions(&opening.workdir, login)?;
        let path = path.join(name);
        let opened = make(&sessions, name, &path)?;
        for part in PARTS {
            make(&opened, part, &path.join(part))?;
        }
        Ok(Self { path, opened })
    }

    /// Its path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    pub fn opened(&self) -> &OwnedFd {
        &self.opened
    }
}

/// The directory that holds all sessions, in the work directory; what is missing of it is made.
///
/// # Errors
/// With what is wrong with which directory.
pub fn sessions(workdir: &ByteString, login: &Login) -> Result<(PathBuf, OwnedFd), Refusal> {
    part_of(workdir, "sessions", login)
}

/// The directory that holds what is known of mirrors, in the work directory; made like
/// [`sessions`].
///
/// # Errors
/// As [`sessions`].
pub fn mirrors(workdir: &ByteString, login: &Login) -> Result<(PathBuf, OwnedFd), Refusal> {
    part_of(workdir, "mirrors", login)
}

fn part_of(workdir: &ByteString, name: &str, login: &Login) -> Result<(PathBuf, OwnedFd), Refusal> {
    let workdir = expanded(workdir, login)?;
    std::fs::create_dir_all(&workdir).map_err(|error| cannot(&workdir, "made", &error))?;
    let top = open(None, &workdir, &workdir).map_err(Missing::refusal)?;
    let path = workdir.join(name);
    let opened = make(&top, name, &path)?;
    Ok((path, opened))
}

fn expanded(workdir: &ByteString, login: &Login) -> Result<PathBuf, Refusal> {
    expand(workdir, login).map_err(|why| Refusal::Directory {
        path: workdir.clone(),
        why: why.to_owned(),
    })
}

/// A work directory as an absolute path: `~/` at its start is the user's home.
///
/// # Errors
/// With what is wrong with it.
pub fn expand(workdir: &ByteString, login: &Login) -> Result<PathBuf, &'static str> {
    let path = workdir.to_path_buf();
    let expanded = match path.strip_prefix("~") {
        Ok(rest) => login.home().map(|home| home.join(rest)),
        Err(_) => Some(path),
    };
    match expanded {
        None => Err("the login has no HOME, so ~ means nothing: give an absolute workdir"),
        Some(path) if !path.is_absolute() => Err("a workdir is absolute or begins with ~/"),
        Some(path) => Ok(path),
    }
}

fn session_name(name: &str) -> Result<&str, Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !name.bytes().all(plain)
    {
        return Err(Refusal::Protocol {
            what: "a session's name has letters, digits, '-', '_' and '.'".to_owned(),
        });
    }
    Ok(name)
}

enum Missing {
    Absent,
    Refused(Refusal),
}

impl Missing {
    fn refusal(self) -> Refusal {
        match self {
            Self::Absent => Refusal::Failed {
                what: "a directory was removed as soon as it was made".to_owned(),
            },
            Self::Refused(refusal) => refusal,
        }
    }
}

/// Opens a directory and checks whose it is. Below `parent` it must not be a link.
fn open(parent: Option<&OwnedFd>, name: &Path, path: &Path) -> Result<OwnedFd, Missing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match parent {
        Some(parent) => rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty()),
        None => rustix::fs::open(name, flags, Mode::empty()),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Err(Missing::Absent),
        Err(error) => return Err(Missing::Refused(cannot(path, "opened", &error.into()))),
    };
    match fault(&opened) {
        None => Ok(opened),
        Some(why) => Err(Missing::Refused(Refusal::Directory {
            path: ByteString::from(path.as_os_str()),
            why,
        })),
    }
}

/// What makes a directory unfit, if anything does.
fn fault(opened: &OwnedFd) -> Option<String> {
    let facts = match rustix::fs::fstat(opened) {
        Ok(facts) => facts,
        Err(error) => return Some(format!("it cannot be examined: {error}")),
    };
    let us = rustix::process::geteuid().as_raw();
    if facts.st_uid != us {
        let owner = facts.st_uid;
        return Some(format!("it belongs to user {owner}, and this is user {us}"));
    }
    let open = facts.st_mode & OTHERS_WRITE != 0;
    open.then(|| "others can write there: chmod go-w it, or choose another workdir".to_owned())
}

fn make(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, Refusal> {
    match rustix::fs::mkdirat(parent.as_fd(), name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(cannot(path, "made", &error.into())),
    }
    open(Some(parent), Path::new(name), path).map_err(Missing::refusal)
}

/// A refusal for what the system said, in words that name the remedy.
pub fn cannot(path: &Path, done: &str, error: &io::Error) -> Refusal {
    let known = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => Some("the disk is full"),
        Some(Errno::DQUOT) => Some("the user's quota is used up"),
        Some(Errno::ROFS) => Some("the file system is read-only"),
        Some(Errno::ACCESS | Errno::PERM) => Some("this user may not"),
        Some(Errno::LOOP | Errno::NOTDIR | Errno::EXIST) => {
            Some("it, or a part of it, is a link or a file")
        }
        Some(Errno::STALE | Errno::IO) => Some("the file system fails"),
        _ => None,
    };
    Refusal::Directory {
        path: ByteString::from(path.as_os_str()),
        why: match known {
            Some(known) => format!("it cannot be {done}: {known}"),
            None => format!("it cannot be {done}: {error}"),
        },
    }
}

/// Whether a socket may stand at a path: the kernel takes 107 bytes, and `:` separates the two
/// ends of a forward.
pub fn fits_a_socket(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.len() <= SOCKET_PATH_MAX && !bytes.contains(&b':')
}
