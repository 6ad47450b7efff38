//! What stands between labproxy and the ledger's file, in words, and what helps.

use std::fs::File;
use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi;
use rustix::fs::StatVfsMountFlags;

use super::place;

/// SQLite needs this much beside the file to begin: one piece of the log's shared memory.
const LEAST_ROOM: u64 = 32 * 1024;

/// Why a file cannot be read or written, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No space is left.
    Full,
    /// The file system takes no writes.
    ReadOnly,
    /// The file belongs to somebody else.
    NotPermitted,
    /// The file, or one beside it, cannot be opened or made.
    CannotOpen,
    /// The file's content makes no sense.
    Damaged,
    /// The disk reports an error.
    BrokenDisk,
    /// Another kind.
    Other,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "its disk is full. Free some space there and try again",
            Self::ReadOnly => {
                "its disk is read-only. Mount it for writing, or copy the whole directory to where \
                 you may write and set XDG_STATE_HOME to the directory above that copy"
            }
            Self::NotPermitted => {
                "this user may not do that. Use the user whose ledger it is, or give the file and \
                 its directory to this user"
            }
            Self::CannotOpen => {
                "it, or a file beside it that SQLite needs (-wal, -shm), cannot be opened. See that \
                 the directory is there and that this user may write in it"
            }
            Self::Damaged => {
                "the file is damaged. Keep it as it is, put the newest copy in its place and run \
                 'labproxy ledger verify'"
            }
            Self::BrokenDisk => {
                "the disk reports an error. See the system's log, and copy the file away while it \
                 can be read"
            }
            Self::Other => "SQLite reports an error",
        })
    }
}

impl Trouble {
    /// Of an error that SQLite reports for the ledger at `path`. Its codes rarely tell the cause, so
    /// the file and its disk are looked at.
    pub(super) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let by_code = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => return Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => return Self::Damaged,
            Some(ErrorCode::CannotOpen) => Self::CannotOpen,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(ErrorCode::PermissionDenied) => Self::NotPermitted,
            Some(ErrorCode::SystemIoFailure) => Self::BrokenDisk,
            _ => return Self::Other,
        };
        Self::of_place(path).unwrap_or(by_code)
    }

    /// What the file and its disk show by themselves.
    fn of_place(path: &Path) -> Option<Self> {
        if let Err(error) = File::open(path)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Some(Self::NotPermitted);
        }
        let directory = path.parent()?;
        let disk = rustix::fs::statvfs(directory).ok()?;
        if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Some(Self::ReadOnly);
        }
        let free = place::free_bytes(directory).ok()?;
        (free < LEAST_ROOM).then_some(Self::Full)
    }

    /// Of an error that the operating system reports.
    pub(super) fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Other,
        }
    }
}

/// Whether SQLite could not make or change a file beside the ledger, which reading alone can do
/// without.
pub(super) fn is_about_other_files(error: &rusqlite::Error) -> bool {
    let Some(code) = error.sqlite_error() else {
        return false;
    };
    matches!(
        code.code,
        ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::DiskFull
    ) || matches!(
        code.extended_code,
        ffi::SQLITE_IOERR_SHMOPEN
            | ffi::SQLITE_IOERR_SHMSIZE
            | ffi::SQLITE_IOERR_SHMMAP
            | ffi::SQLITE_IOERR_WRITE
    )
}
