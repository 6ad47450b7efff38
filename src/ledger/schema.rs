//! The ledger's file: how it is opened, its tables, its versions.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::chain::{EntryHash, Head};
use super::trouble::{self, Trouble};
use super::{LedgerError, place};

/// How long another process's write lock is waited for.
pub const BUSY_WAIT: Duration = Duration::from_secs(5);

/// `application_id` of a ledger: "lbpx".
const APPLICATION_ID: i64 = 0x6C62_7078;

/// One script for each schema version; a ledger at version N has had the first N of them.
///
/// Amounts are pico-dollars in 64 bits; SQLite shows those above 9.2 million dollars as negative.
/// `session` and `sum` repeat what the entries say, for speed; `verify` recomputes them.
const MIGRATIONS: [&str; 3] = [
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
     CREATE TABLE session(
       no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
       first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
       open_holds INTEGER NOT NULL, held INTEGER NOT NULL) STRICT;
     CREATE TABLE entry(
       seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, at INTEGER NOT NULL,
       body TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
     CREATE TABLE sum(name TEXT PRIMARY KEY, pico_usd INTEGER NOT NULL) STRICT, WITHOUT ROWID;
     CREATE TABLE price_file(digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
     CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
     CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;",
    // The same tables; a program of version 1 does not know the entries of audits.
    "",
    // A body may be bytes: the entries of requests have a short form. Nothing is changed or removed
    // here, only stored in a table of another type.
    "ALTER TABLE entry RENAME TO entry_of_text;
     CREATE TABLE entry(
       seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, at INTEGER NOT NULL,
       body ANY NOT NULL, hash BLOB NOT NULL) STRICT;
     INSERT INTO entry SELECT * FROM entry_of_text;
     DROP TABLE entry_of_text;
     CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
     CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;",
];

/// Names the newest schema version.
fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// What a ledger says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Random, made with the file; the chain begins with it.
    pub(super) ledger_id: String,
    /// The machine it was made on, where that has a name.
    pub(super) machine: Option<String>,
}

impl Identity {
    /// The hash before the first entry.
    pub(super) fn genesis(&self) -> EntryHash {
        EntryHash::genesis(self.ledger_id.as_bytes())
    }
}

/// Turns SQLite's errors into the ledger's.
pub(super) fn failed(
    path: &Path,
    doing: &'static str,
) -> impl Fn(rusqlite::Error) -> LedgerError + Copy {
    move |source| {
        let path = path.to_owned();
        if is_busy(&source) {
            return LedgerError::Busy { path };
        }
        LedgerError::Database {
            trouble: Trouble::of_sqlite(&path, &source),
            path,
            doing,
            source,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}

/// Opens the ledger for writing, makes it where there is none, and brings an old one up to date.
pub(super) fn open_for_writing(
    path: &Path,
    machine: Option<&str>,
) -> Result<(Connection, Identity), LedgerError> {
    place::make_private_file(path).map_err(|source| LedgerError::Io {
        path: path.to_owned(),
        doing: "the ledger cannot be opened for writing",
        source,
    })?;
    let failed = failed(path, "the ledger cannot be opened for writing");
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    check_kind(path, &connection)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(failed)?;
    if mode != "wal" {
        return Err(LedgerError::NotALedger {
            path: path.to_owned(),
            what: format!("its journal mode stays '{mode}' where 'wal' is needed"),
        });
    }
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;
             PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864;",
        )
        .map_err(failed)?;
    migrate(path, &mut connection, machine)?;
    let identity = identity(path, &connection)?;
    if let (Some(made_on), Some(here)) = (&identity.machine, machine)
        && made_on != here
    {
        return Err(LedgerError::ForeignMachine {
            path: path.to_owned(),
        });
    }
    Ok((connection, identity))
}

/// Opens an existing ledger for reading.
pub(super) fn open_for_reading(path: &Path) -> Result<(Connection, Identity), LedgerError> {
    // A reader joins the write-ahead log's shared memory and may have to rebuild it after a crash,
    // so it opens for writing where it may; `query_only` keeps it from writing entries.
    let joined = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|connection| read_only(path, connection));
    match joined {
        Err(LedgerError::Database { source, .. })
            if trouble::is_about_other_files(&source) && is_at_rest(path) =>
        {
            // On a full or read-only disk there can be no shared memory. Where no log is left the
            // file holds everything, and nobody has it open for writing.
            let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            let connection = connect_as(path, &immutable(path), access)?;
            read_only(path, connection)
        }
        joined => joined,
    }
}

/// Whether no entries wait in a write-ahead log beside the file.
fn is_at_rest(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match std::fs::metadata(log) {
        Ok(log) => log.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The file as an URI that lets SQLite read it without any other file.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(*byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(uri, "%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    PathBuf::from(uri)
}

/// Looks whether it is a ledger that can be read here, and keeps this connection from writing.
fn read_only(path: &Path, connection: Connection) -> Result<(Connection, Identity), LedgerError> {
    let unreadable = failed(path, "the ledger cannot be read");
    connection
        .execute_batch("PRAGMA query_only = ON")
        .map_err(unreadable)?;
    check_kind(path, &connection)?;
    if user_version(&connection).map_err(unreadable)? == 0 {
        return Err(LedgerError::Empty {
            path: path.to_owned(),
        });
    }
    let identity = identity(path, &connection)?;
    Ok((connection, identity))
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, LedgerError> {
    connect_as(path, path, access)
}

/// Opens the ledger at `path` by `name`, which may be an URI for it.
fn connect_as(path: &Path, name: &Path, access: OpenFlags) -> Result<Connection, LedgerError> {
    let failed = failed(path, "the ledger cannot be opened");
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(name, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_WAIT).map_err(failed)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
        .map_err(failed)?;
    connection
        .execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = OFF;
             PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;",
        )
        .map_err(failed)?;
    Ok(connection)
}

/// Looks whose file it is. All is asked of one moment: another process may be making the ledger.
fn check_kind(path: &Path, connection: &Connection) -> Result<(), LedgerError> {
    let unreadable = failed(path, "the ledger cannot be read");
    // Ends with this; nothing was written.
    let connection = connection.unchecked_transaction().map_err(unreadable)?;
    let version = match user_version(&connection) {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            return Err(LedgerError::NotALedger {
                path: path.to_owned(),
                what: "it is not an SQLite database".into(),
            });
        }
        other => other.map_err(unreadable)?,
    };
    let application: i64 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(unreadable)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(unreadable)?;
    if version == 0 && application == 0 && tables == 0 {
        return Ok(());
    }
    if application != APPLICATION_ID {
        return Err(LedgerError::NotALedger {
            path: path.to_owned(),
            what: "it is another program's database".into(),
        });
    }
    if version > newest() {
        return Err(LedgerError::NewerSchema {
            path: path.to_owned(),
            found: version,
            known: newest(),
        });
    }
    Ok(())
}

fn user_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn migrate(
    path: &Path,
    connection: &mut Connection,
    machine: Option<&str>,
) -> Result<(), LedgerError> {
    let failed = failed(path, "the ledger's tables cannot be made");
    if user_version(connection).map_err(failed)? == newest() {
        return Ok(());
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Asked again under the lock: another process may have been first.
    let version = user_version(&transaction).map_err(failed)?;
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    for script in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(script).map_err(failed)?;
    }
    if version == 0 {
        transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(failed)?;
        found(path, &transaction, machine)?;
    }
    transaction
        .pragma_update(None, "user_version", newest())
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Gives a new ledger its name.
fn found(path: &Path, connection: &Connection, machine: Option<&str>) -> Result<(), LedgerError> {
    let mut random = [0u8; 16];
    getrandom::fill(&mut random).map_err(|error| LedgerError::Io {
        path: path.to_owned(),
        doing: "no random bytes for the ledger's name",
        source: std::io::Error::other(error),
    })?;
    let ledger_id = format!("{:032x}", u128::from_be_bytes(random));
    let insert = |name: &str, value: &str| {
        connection
            .execute(
                "INSERT INTO meta(name, value) VALUES (?1, ?2)",
                [name, value],
            )
            .map(drop)
            .map_err(failed(path, "the ledger's name cannot be written"))
    };
    insert("ledger_id", &ledger_id)?;
    machine.map_or(Ok(()), |machine| insert("machine", machine))
}

fn identity(path: &Path, connection: &Connection) -> Result<Identity, LedgerError> {
    let read = |name: &str| {
        connection
            .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
                row.get::<_, String>(0)
            })
            .optional()
            .map_err(failed(path, "the ledger's name cannot be read"))
    };
    Ok(Identity {
        ledger_id: read("ledger_id")?.ok_or_else(|| LedgerError::NotALedger {
            path: path.to_owned(),
            what: "it has no name".into(),
        })?,
        machine: read("machine")?,
    })
}

/// The last entry, or the beginning.
pub(super) fn head(
    path: &Path,
    connection: &Connection,
    genesis: EntryHash,
) -> Result<Head, LedgerError> {
    let row: Option<(i64, Vec<u8>)> = connection
        .prepare_cached("SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1")
        .and_then(|mut statement| {
            statement
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
        .map_err(failed(path, "the last entry cannot be read"))?;
    let Some((seq, hash)) = row else {
        return Ok(Head {
            seq: 0,
            hash: genesis,
        });
    };
    let damaged = || LedgerError::Damaged {
        path: path.to_owned(),
        seq: seq.unsigned_abs(),
        what: "its number or hash is not one".into(),
    };
    Ok(Head {
        seq: u64::try_from(seq).map_err(|_| damaged())?,
        hash: EntryHash::from_slice(&hash).ok_or_else(damaged)?,
    })
}

/// The hash of entry `seq`, or `None` when there is no such entry.
pub(super) fn hash_at(
    path: &Path,
    connection: &Connection,
    genesis: EntryHash,
    seq: u64,
) -> Result<Option<EntryHash>, LedgerError> {
    if seq == 0 {
        return Ok(Some(genesis));
    }
    let Ok(seq) = i64::try_from(seq) else {
        return Ok(None);
    };
    let hash: Option<Vec<u8>> = connection
        .query_row("SELECT hash FROM entry WHERE seq = ?1", [seq], |row| {
            row.get(0)
        })
        .optional()
        .map_err(failed(path, "an entry cannot be read"))?;
    Ok(hash.and_then(|hash| EntryHash::from_slice(&hash)))
}
