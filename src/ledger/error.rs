//! Why the ledger cannot be used.

use std::path::PathBuf;

use super::Trouble;
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The daily ceiling leaves no room for this hold.
    #[error("daily ceiling {ceiling} reached: {spent} today over all sessions")]
    Daily {
        /// The ceiling.
        ceiling: PicoUsd,
        /// Charged and held today.
        spent: PicoUsd,
    },
    /// Something failed before; nothing is appended any more.
    #[error("the ledger failed before and takes nothing more until labproxy is started again")]
    Poisoned,
    /// Another process kept the write lock for longer than [`super::BUSY_WAIT`].
    #[error(
        "{path}: another process has locked the ledger for too long. Try again; if it stays so, end \
         the labproxy or sqlite3 that has the file open"
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// More is queued than a healthy disk ever leaves.
    #[error("{path}: the disk does not keep up with the entries to be written")]
    QueueFull {
        /// The file.
        path: PathBuf,
    },
    /// New holds are refused so that what is in flight can still be settled.
    #[error(
        "{path}: only {free_bytes} bytes are free on this disk; below {floor_bytes} no request is \
         sent, so that the bills of those in flight can still be written"
    )]
    LowSpace {
        /// The directory.
        path: PathBuf,
        /// Free for this user.
        free_bytes: u64,
        /// What must be free.
        floor_bytes: u64,
    },
    /// SQLite reports an error; the ledger is poisoned when that happened in the writer.
    #[error("{path}: {doing}: {trouble}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What stands in the way.
        trouble: Trouble,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// The operating system reports an error.
    #[error("{path}: {doing}{}", advice(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// An entry cannot be written down.
    #[error("an entry cannot be written down")]
    Encode(#[source] serde_json::Error),
    /// The file's locks and shared memory do not work over a network.
    #[error(
        "{path} is on a network file system ({kind}), where SQLite's locks and shared memory cannot \
         be trusted; set XDG_STATE_HOME to a directory on a local disk"
    )]
    NetworkFileSystem {
        /// The directory.
        path: PathBuf,
        /// What it is.
        kind: String,
    },
    /// The ledger was made on another machine.
    #[error(
        "{path} was made on another machine: two copies of one ledger would each allow the whole \
         cap. Go on with it where it was made, or move this copy away and begin a new one"
    )]
    ForeignMachine {
        /// The file.
        path: PathBuf,
    },
    /// A newer labproxy wrote it.
    #[error(
        "{path} has schema version {found} and this labproxy knows {known}: use a newer labproxy"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// Nothing was ever written: its first user ended, or is about to begin.
    #[error("{path}: the ledger is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path} is not a labproxy ledger: {what}")]
    NotALedger {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The ledger ends before the entry that its high-water file names.
    #[error(
        "{path} was rolled back or cut: it ends at entry {head} and had reached entry {high_water}. \
         Put the newest copy back; if that is lost, `labproxy ledger verify --accept-head` goes on \
         with this one and says what is missing"
    )]
    RolledBack {
        /// The file.
        path: PathBuf,
        /// Its last entry.
        head: u64,
        /// The last entry it is known to have had.
        high_water: u64,
    },
    /// The entry that the high-water file names is another one.
    #[error(
        "{path} is not the ledger that its high-water file belongs to: entry {seq} has another hash"
    )]
    Forked {
        /// The file.
        path: PathBuf,
        /// The entry.
        seq: u64,
    },
    /// There is a ledger with entries and no high-water file.
    #[error(
        "{anchor} is missing although {path} has {head} entries, so nobody can tell whether some \
         were cut off. Put the file back; if it is lost, `labproxy ledger verify --accept-head` \
         makes a new one"
    )]
    AnchorMissing {
        /// The ledger.
        path: PathBuf,
        /// The high-water file.
        anchor: PathBuf,
        /// Entries in the ledger.
        head: u64,
    },
    /// The high-water file cannot be read.
    #[error(
        "{anchor} is damaged. If the ledger is the newest, `labproxy ledger verify --accept-head` \
         makes a new one"
    )]
    AnchorDamaged {
        /// The high-water file.
        anchor: PathBuf,
    },
    /// The high-water file belongs to another ledger.
    #[error("{anchor} belongs to another ledger than {path}")]
    AnchorForeign {
        /// The ledger.
        path: PathBuf,
        /// The high-water file.
        anchor: PathBuf,
    },
    /// An entry cannot be read back or contradicts the others.
    #[error("{path}: entry {seq}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The entry.
        seq: u64,
        /// What is wrong.
        what: String,
    },
    /// There is no such session.
    #[error("{path} has no session {session}")]
    NoSuchSession {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        session: SessionId,
    },
    /// Only a kept hold can be corrected.
    #[error("{request} is not a request of this session whose whole hold was kept")]
    NotKept {
        /// The request.
        request: RequestId,
    },
}

impl LedgerError {
    /// What SQLite or the system says, such as `database or disk is full`; where neither says
    /// anything, the error itself.
    pub fn cause(&self) -> String {
        let source = std::error::Error::source(self);
        source.map_or_else(|| self.to_string(), ToString::to_string)
    }
}

/// What helps against an error of the system, where that is known.
fn advice(error: &std::io::Error) -> String {
    match Trouble::of_io(error) {
        Trouble::Other => String::new(),
        known => format!(": {known}"),
    }
}
