//! The owner of a session: the one process that holds `sessions/ID/lock`.
//!
//! The kernel drops the lock with the process, so a lock that can be taken has no living owner. The
//! file's text only tells people and other commands who it is and where its control socket is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::processes::{ProcessStamp, boot_id};

/// The record is padded to one size, so that a new one never leaves the end of an old one behind;
/// it holds three short values and a socket path of at most 107 bytes.
const RECORD_BYTES: usize = 1_024;

/// How long a taker gives a looker, and how often: a looker reads one page between lock and unlock.
const LOOKER_PAUSE: Duration = Duration::from_millis(5);
const LOOKER_TRIES: u32 = 100;

/// What the lock file says of its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessStamp,
    /// The boot it lives in.
    pub boot_id: String,
    /// Its control socket.
    pub control: PathBuf,
    /// Its agent, once started.
    pub agent: Option<ProcessStamp>,
}

impl OwnerRecord {
    /// A record of this process.
    pub fn current(control: PathBuf) -> Self {
        Self {
            process: ProcessStamp::current(),
            boot_id: boot_id(),
            control,
            agent: None,
        }
    }

    /// Whether the agent it names still runs.
    pub fn living_agent(&self) -> Option<ProcessStamp> {
        self.agent
            .filter(|agent| self.boot_id == boot_id() && agent.is_alive())
    }
}

/// Why a session cannot be owned.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another process holds it.
    #[error("the session is held by process {}", pid_text(.holder.as_ref()))]
    Held {
        /// Who, when the file says so.
        holder: Option<OwnerRecord>,
    },
    /// There is no such session here.
    #[error("there is no such session directory")]
    Missing,
    /// The lock file cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl OwnerError {
    /// Why the lock file at `path` cannot be used: without the directory there is no session.
    fn at(path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::Missing;
        }
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

fn pid_text(holder: Option<&OwnerRecord>) -> String {
    holder.map_or_else(
        || "(unknown)".to_owned(),
        |record| record.process.pid.to_string(),
    )
}

/// The held lock of one session. Dropping it, or the end of the process, lets the next one in.
#[derive(Debug)]
pub struct OwnerLock {
    file: File,
    path: PathBuf,
}

impl OwnerLock {
    /// Takes the lock of the session in `directory`, without waiting.
    ///
    /// # Errors
    /// When another process holds it, or the file cannot be used.
    pub fn take(directory: &Path) -> Result<Self, OwnerError> {
        let path = directory.join("lock");
        let failed = |source| OwnerError::at(&path, source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        lock_unless_owned(&file).map_err(|refused| match refused {
            TryLockError::WouldBlock => OwnerError::Held {
                holder: read_record(&file),
            },
            TryLockError::Error(source) => failed(source),
        })?;
        // `discard` removes the directory while it holds the lock; who opened the file before and
        // locks it after holds nothing.
        let named = fs::metadata(&path).map_err(failed)?;
        let held = file.metadata().map_err(failed)?;
        if (named.dev(), named.ino()) != (held.dev(), held.ino()) {
            return Err(OwnerError::Missing);
        }
        Ok(Self { file, path })
    }

    /// What the file says of the last holder: whoever came before, until [`Self::record`].
    pub fn last_record(&self) -> Option<OwnerRecord> {
        read_record(&self.file)
    }

    /// Writes down who holds it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record(&self, record: &OwnerRecord) -> Result<(), OwnerError> {
        let failed = |source| OwnerError::Io {
            path: self.path.clone(),
            source,
        };
        let mut text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        text.resize(text.len().max(RECORD_BYTES - 1), b' ');
        text.push(b'\n');
        self.file.write_all_at(&text, 0).map_err(failed)
    }
}

/// Takes the lock. A looker ([`ownership`]) holds a shared lock for an instant, so while no living
/// owner is on record, a busy lock is tried again.
fn lock_unless_owned(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKER_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            done => return done,
        }
        if read_record(file).is_some_and(|record| record.process.is_alive()) {
            return Err(TryLockError::WouldBlock);
        }
        std::thread::sleep(LOOKER_PAUSE);
    }
    Err(TryLockError::WouldBlock)
}

/// Who owns a session, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// A process holds the lock; `None` when its record cannot be read yet.
    Held(Option<OwnerRecord>),
    /// Nobody does; the record is of the last one.
    Free(Option<OwnerRecord>),
}

/// Looks who owns the session in `directory`, and leaves everything as it is.
///
/// # Errors
/// When there is no such session or the file cannot be read.
pub fn ownership(directory: &Path) -> Result<Ownership, OwnerError> {
    let path = directory.join("lock");
    let file = File::open(&path).map_err(|source| OwnerError::at(&path, source))?;
    // A shared lock: two lookers do not take each other for owners.
    match file.try_lock_shared() {
        Ok(()) => Ok(Ownership::Free(read_record(&file))),
        Err(TryLockError::WouldBlock) => Ok(Ownership::Held(read_record(&file))),
        Err(TryLockError::Error(source)) => Err(OwnerError::Io { path, source }),
    }
}

fn read_record(file: &File) -> Option<OwnerRecord> {
    let mut text = vec![0; RECORD_BYTES * 2];
    let length = file.read_at(&mut text, 0).ok()?;
    text.truncate(length);
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second taker is told who holds it; when the first is gone, the next may have it.
    #[test]
    fn l03_one_owner_at_a_time_and_the_second_learns_its_pid() {
        let directory = tempfile::tempdir().unwrap();
        let first = OwnerLock::take(directory.path()).unwrap();
        let record = OwnerRecord::current("/run/x/control.sock".into());
        first.record(&record).unwrap();
        let Err(OwnerError::Held { holder }) = OwnerLock::take(directory.path()) else {
            panic!("taken twice");
        };
        assert_eq!(holder, Some(record.clone()));
        assert_eq!(
            ownership(directory.path()).unwrap(),
            Ownership::Held(Some(record.clone()))
        );
        drop(first);
        assert_eq!(
            ownership(directory.path()).unwrap(),
            Ownership::Free(Some(record.clone()))
        );
        let next = OwnerLock::take(directory.path()).unwrap();
        assert_eq!(next.last_record(), Some(record));
    }

    /// A shorter record does not leave the end of a longer one behind.
    #[test]
    fn a_record_replaces_the_old_one_whole() {
        let directory = tempfile::tempdir().unwrap();
        let lock = OwnerLock::take(directory.path()).unwrap();
        let long = OwnerRecord::current(format!("/{}", "x".repeat(300)).into());
        lock.record(&long).unwrap();
        let short = OwnerRecord::current("/y".into());
        lock.record(&short).unwrap();
        assert_eq!(lock.last_record(), Some(short));
    }

    /// A directory that is not there is no session.
    #[test]
    fn no_directory_is_no_session() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        assert!(matches!(OwnerLock::take(&gone), Err(OwnerError::Missing)));
        assert!(matches!(ownership(&gone), Err(OwnerError::Missing)));
    }
}
