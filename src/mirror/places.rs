//! Directories that are no roots of a mirror: a push of one would give away what only the user has,
//! and a pull into one would let an agent write what the user's programs run.
//!
//! The judgement is of canonical paths and of nothing else: whoever asks resolves each path once,
//! by [`resolve`], and works with what came out.

mod mounts;

use std::io;
use std::path::{Component, Path, PathBuf};

pub use mounts::{mountpoints, mountpoints_of};

/// What a place holds that no mirror may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// labproxy's configuration.
    Configuration,
    /// labproxy's state: sessions, journals, locks.
    State,
    /// The contents and generations of mirrors.
    Store,
    /// Keys and settings of ssh.
    Ssh,
    /// A credential.
    Key,
    /// The programs that stand for an agent's.
    Shim,
    /// Receipts.
    Receipts,
}

impl std::fmt::Display for What {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Configuration => "labproxy's configuration",
            Self::State => "labproxy's state",
            Self::Store => "the store of mirrors",
            Self::Ssh => "ssh keys and settings",
            Self::Key => "a credential",
            Self::Shim => "labproxy's shims",
            Self::Receipts => "receipts",
        })
    }
}

/// The places of a machine that no root may be, contain, or, but for the home directory, lie in.
#[derive(Debug, Clone, Default)]
pub struct Guarded {
    /// The home directory, canonical.
    pub home: Option<PathBuf>,
    /// Where file systems are mounted, canonical.
    pub mounts: Vec<PathBuf>,
    /// What labproxy and ssh keep, canonical.
    pub places: Vec<(What, PathBuf)>,
}

/// Why a directory is no root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not a canonical absolute path: the judgement would be of another place.
    #[error("{0:?} is no canonical path; this is a bug, please report it")]
    NotCanonical(PathBuf),
    /// `/`.
    #[error("{0:?} is the whole file system; name the directory of the work")]
    Top(PathBuf),
    /// The home directory.
    #[error(
        "{0:?} is the home directory, which holds keys and programs' settings; name a directory in it"
    )]
    Home(PathBuf),
    /// A directory above the home directory.
    #[error("{root:?} contains the home directory {home:?}; name the directory of the work")]
    ContainsHome {
        /// The root.
        root: PathBuf,
        /// The home directory.
        home: PathBuf,
    },
    /// A file system is mounted there.
    #[error(
        "{0:?} is where a file system is mounted: while it is not, all would look deleted; name a directory in it"
    )]
    Mounted(PathBuf),
    /// A file system is mounted below.
    #[error(
        "{root:?} contains {mount:?}, where another file system is mounted; name a directory without one"
    )]
    ContainsMount {
        /// The root.
        root: PathBuf,
        /// Where it is mounted.
        mount: PathBuf,
    },
    /// It is or contains what no mirror may touch.
    #[error("{root:?} contains {what} ({place:?}); name a directory without it")]
    Contains {
        /// The root.
        root: PathBuf,
        /// What it contains.
        what: What,
        /// Where that is.
        place: PathBuf,
    },
    /// It lies in what no mirror may touch.
    #[error("{root:?} lies in {place:?}, which is for {what}; name a directory outside")]
    Within {
        /// The root.
        root: PathBuf,
        /// What it lies in.
        what: What,
        /// Where that is.
        place: PathBuf,
    },
    /// Both ends are one directory.
    #[error("both ends are {0:?}; name two directories")]
    Identical(PathBuf),
    /// One end lies in the other.
    #[error(
        "{inner:?} lies in {outer:?}: each run would mirror the last one; name two directories side by side"
    )]
    Nested {
        /// The one in the other.
        inner: PathBuf,
        /// The other.
        outer: PathBuf,
    },
}

impl Guarded {
    /// Judges a root by its canonical path.
    ///
    /// # Errors
    /// When it is, contains or lies in a place that no mirror may touch.
    pub fn judge(&self, root: &Path) -> Result<(), Refused> {
        canonical(root)?;
        let path = || root.to_owned();
        if root.parent().is_none() {
            return Err(Refused::Top(path()));
        }
        match &self.home {
            Some(home) if home == root => return Err(Refused::Home(path())),
            Some(home) if home.starts_with(root) => {
                return Err(Refused::ContainsHome {
                    root: path(),
                    home: home.clone(),
                });
            }
            Some(_) | None => {}
        }
        for (what, place) in &self.places {
            let (what, place) = (*what, place.clone());
            if place.starts_with(root) {
                let root = path();
                return Err(Refused::Contains { root, what, place });
            }
            if root.starts_with(&place) {
                let root = path();
                return Err(Refused::Within { root, what, place });
            }
        }
        for mount in &self.mounts {
            if mount == root {
                return Err(Refused::Mounted(path()));
            }
            if mount.starts_with(root) {
                return Err(Refused::ContainsMount {
                    root: path(),
                    mount: mount.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Judges two roots on one machine, by their canonical paths.
///
/// # Errors
/// When they are one, or one lies in the other.
pub fn judge_pair(one: &Path, other: &Path) -> Result<(), Refused> {
    canonical(one)?;
    canonical(other)?;
    if one == other {
        return Err(Refused::Identical(one.to_owned()));
    }
    for (inner, outer) in [(one, other), (other, one)] {
        if inner.starts_with(outer) {
            return Err(Refused::Nested {
                inner: inner.to_owned(),
                outer: outer.to_owned(),
            });
        }
    }
    Ok(())
}

fn canonical(path: &Path) -> Result<(), Refused> {
    let mut parts = path.components();
    let plain = parts.next() == Some(Component::RootDir)
        && parts.all(|part| matches!(part, Component::Normal(_)));
    if plain {
        Ok(())
    } else {
        Err(Refused::NotCanonical(path.to_owned()))
    }
}

/// Why a path could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// It is a symlink itself.
    #[error("{0:?} is a symlink; name the directory that it leads to")]
    Symlink(PathBuf),
    /// A name after a directory that is missing climbs up again.
    #[error("{0:?} goes through a directory that does not exist; name it without '..'")]
    Missing(PathBuf),
    /// The system's word.
    #[error("{path:?} cannot be looked up: {error}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Resolves a root, once: every link above it is followed, the root itself may be none, and it and
/// directories above it may be missing still.
///
/// # Errors
/// When it is a symlink, or cannot be looked up.
pub fn resolve_root(path: &Path) -> Result<PathBuf, Unresolved> {
    // With a slash or a dot at its end the system would follow a link.
    let bare: PathBuf = path.components().collect();
    match bare.symlink_metadata() {
        Ok(seen) if seen.is_symlink() => Err(Unresolved::Symlink(path.to_owned())),
        Ok(_) | Err(_) => resolve(path),
    }
}

/// Resolves a path, following every link; what is missing at its end stays as it is.
///
/// # Errors
/// When it cannot be looked up.
pub fn resolve(path: &Path) -> Result<PathBuf, Unresolved> {
    let io = |error| Unresolved::Io {
        path: path.to_owned(),
        error,
    };
    let mut there = std::path::absolute(path).map_err(io)?;
    let mut missing = Vec::new();
    loop {
        match there.canonicalize() {
            Ok(found) => {
                let down = missing.iter().rev();
                return Ok(down.fold(found, |path, name| path.join(name)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
        }
        // A link to nowhere is there, and what it leads to may come.
        if there.symlink_metadata().is_ok() {
            return Err(Unresolved::Symlink(there));
        }
        let Some(name) = there.file_name().map(ToOwned::to_owned) else {
            return Err(Unresolved::Missing(path.to_owned()));
        };
        missing.push(name);
        there.pop();
    }
}
