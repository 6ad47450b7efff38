//! The directory of one mirror, in the state directory of its user: mode 0700, and outside of
//! every root.
//!
//! - `lock`: held by the one process that works with the mirror; the kernel drops it with the
//!   process. Its text is that process's number, for people.
//! - `mirror.json`: what the mirror is bound to ([`MirrorState`]).
//! - `agreed`: what both ends last agreed on ([`super::agreed`]).
//! - `store`: contents and generations ([`Store`]).
//! - `landing`: while rsync brings contents ([`super::rsync`]).
//! - `journal`: while the workspace is brought to another tree ([`super::journal`]).

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable;
use super::excludes::Frozen;
use super::store::{Store, StoreError};
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::root::RootIdentity;

/// The form of `mirror.json` that this program writes.
const VERSION: u32 = 1;
/// Longest `mirror.json`, bytes: its only part of free length are the excludes.
pub const STATE_MAX: u64 = 16 * 1024 * 1024;

/// Why a mirror's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process works with the mirror.
    #[error("the mirror in {path} is used by pid {}", pid_text(*.pid))]
    Used {
        /// The mirror's directory.
        path: PathBuf,
        /// Which process, when it says so.
        pid: Option<u32>,
    },
    /// The system refused.
    #[error("{path} cannot be {what}")]
    Io {
        /// `read`, `written`, …
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The state is not what was written.
    #[error("the state {path} is damaged ({why}); move the mirror's directory away to begin anew")]
    Damaged {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A newer program wrote it.
    #[error("{path} has version {version}, and this labproxy knows {VERSION}: use the newer one")]
    Version {
        /// Its file.
        path: PathBuf,
        /// What it says.
        version: u32,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string())
}

/// A fresh name for a mirror.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_mirror_id() -> Result<MirrorId, StateError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(MirrorId::from_random(bytes))
}

/// What a mirror is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorState {
    /// Its random name, which both ends record.
    pub mirror: MirrorId,
    /// The root on this machine.
    pub local: PathBuf,
    /// Which directory that is.
    pub identity: RootIdentity,
    /// The other root as the user named it: `HOST:PATH`, or a path of this machine.
    pub remote: OsString,
    /// The exclude rules as they were when the mirror began. What a tree says later changes
    /// nothing.
    pub excludes: Frozen,
}

/// A mirror's directory, held by this process. Dropping it lets the next one in.
#[derive(Debug)]
pub struct MirrorDirectory {
    path: PathBuf,
    _lock: File,
}

impl MirrorDirectory {
    /// Takes the mirror in `path`, and makes the directory when there is none.
    ///
    /// # Errors
    /// When another process has it, or the directory is not this user's alone.
    pub fn take(path: &Path) -> Result<Self, StateError> {
        let io = |what, path: &Path, source| StateError::Io {
            what,
            path: path.to_owned(),
            source,
        };
        durable::private_directory(path).map_err(|error| io("used", path, error))?;
        let lock_path = path.join("lock");
        let lock =
            durable::lock_file(&lock_path).map_err(|error| io("opened", &lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StateError::Used {
                    path: path.to_owned(),
                    pid: written_pid(&lock),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io("locked", &lock_path, error)),
        }
        let pid = std::process::id().to_string();
        lock.set_len(0)
            .and_then(|()| lock.write_all_at(pid.as_bytes(), 0))
            .map_err(|error| io("written", &lock_path, error))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the mirror is bound to; nothing when it is new.
    ///
    /// # Errors
    /// When the state cannot be read or is damaged.
    pub fn state(&self) -> Result<Option<MirrorState>, StateError> {
        let path = self.state_path();
        let bytes = durable::read(&path, STATE_MAX).map_err(|source| StateError::Io {
            what: "read",
            path: path.clone(),
            source,
        })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let damaged = |why: String| StateError::Damaged {
            path: path.clone(),
            why,
        };
        let Versioned { version } =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if version != VERSION {
            return Err(StateError::Version { path, version });
        }
        let written: Written =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        written
            .read()
            .map_err(|why| damaged(why.to_owned()))
            .map(Some)
    }

    /// Writes down what the mirror is bound to; durable once this returns.
    ///
    /// # Errors
    /// When it cannot be written; the old state stands then.
    pub fn save(&self, state: &MirrorState) -> Result<(), StateError> {
        let path = self.state_path();
        let io = |source| StateError::Io {
            what: "written",
            path: path.clone(),
            source,
        };
        let mut bytes = serde_json::to_vec_pretty(&Written::of(state))
            .map_err(|error| io(io::Error::other(error)))?;
        bytes.push(b'\n');
        durable::write(&path, &bytes).map_err(io)
    }

    /// Opens the mirror's store.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn store(&self, mirror: MirrorId, limits: Limits) -> Result<Store, StoreError> {
        Store::open(&self.path.join("store"), mirror, limits)
    }

    fn state_path(&self) -> PathBuf {
        self.path.join("mirror.json")
    }
}

fn written_pid(lock: &File) -> Option<u32> {
    // Ten digits are the most.
    let mut text = [0; 10];
    let length = lock.read_at(&mut text, 0).ok()?;
    str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// `mirror.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    mirror: MirrorId,
    local: WrittenPath,
    identity: RootIdentity,
    remote: WrittenPath,
    excludes: Frozen,
    /// So that a set that somebody edited is found: it is frozen.
    excludes_hash: String,
}

/// A path in a file of ours: text where it is, else its bytes as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WrittenPath {
    /// Text.
    Text(String),
    /// Bytes that are no UTF-8.
    Bytes(Vec<u8>),
}

impl WrittenPath {
    /// The form of a path.
    pub fn of(text: &std::ffi::OsStr) -> Self {
        match text.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(text.as_bytes().to_vec()),
        }
    }

    /// The path.
    pub fn into_os_string(self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

fn hash_of(excludes: &Frozen) -> String {
    // A struct of lists and maps of text has a JSON text.
    let text = serde_json::to_vec(excludes).unwrap_or_default();
    blake3::hash(&text).to_hex().to_string()
}

impl Written {
    fn of(state: &MirrorState) -> Self {
        let MirrorState {
            mirror,
            local,
            identity,
            remote,
            excludes,
        } = state;
        Self {
            version: VERSION,
            mirror: *mirror,
            local: WrittenPath::of(local.as_os_str()),
            identity: *identity,
            remote: WrittenPath::of(remote),
            excludes: excludes.clone(),
            excludes_hash: hash_of(excludes),
        }
    }

    fn read(self) -> Result<MirrorState, &'static str> {
        if hash_of(&self.excludes) != self.excludes_hash {
            return Err("the excludes are not those that the mirror began with");
        }
        Ok(MirrorState {
            mirror: self.mirror,
            local: self.local.into_os_string().into(),
            identity: self.identity,
            remote: self.remote.into_os_string(),
            excludes: self.excludes,
        })
    }
}
