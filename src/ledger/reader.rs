//! Reading the ledger: sessions and their entries, in one consistent view.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::chain::{EntryHash, Head};
use super::schema::{self, Identity, failed};
use super::sum::amount_from_sql;
use super::{Entry, LedgerError, body};
use crate::id::SessionId;
use crate::money::PicoUsd;

/// An entry as it stands in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the chain.
    pub head: Head,
    /// When it was handed in.
    pub at: Timestamp,
    /// What it says.
    pub entry: Entry,
}

/// One session in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub session: SessionId,
    /// Number of its first entry in the ledger.
    pub first_seq: u64,
    /// Number of its last entry.
    pub last_seq: u64,
    /// Holds that nothing has resolved.
    pub open_holds: u64,
    /// Their sum.
    pub held: PicoUsd,
}

/// A ledger that is read; it may be written by others meanwhile, each call sees one moment.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
    identity: Identity,
}

impl Reader {
    /// Opens an existing ledger.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let (connection, identity) = schema::open_for_reading(path)?;
        Ok(Self {
            path: path.to_owned(),
            connection,
            identity,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The last entry.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn head(&self) -> Result<Head, LedgerError> {
        schema::head(&self.path, &self.connection, self.identity.genesis())
    }

    /// The hash of entry `seq`; `None` when there is no such entry.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn hash_at(&self, seq: u64) -> Result<Option<EntryHash>, LedgerError> {
        schema::hash_at(&self.path, &self.connection, self.identity.genesis(), seq)
    }

    /// Every session, oldest first.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionRow>, LedgerError> {
        self.session_rows("")
    }

    /// The sessions that have open holds: running ones, and those whose process died.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn sessions_with_open_holds(&self) -> Result<Vec<SessionId>, LedgerError> {
        let rows = self.session_rows("WHERE open_holds <> 0")?;
        Ok(rows.into_iter().map(|row| row.session).collect())
    }

    fn session_rows(&self, filter: &str) -> Result<Vec<SessionRow>, LedgerError> {
        let failed = failed(&self.path, "its sessions cannot be read");
        let sql = format!(
            "SELECT name, first_seq, last_seq, open_holds, held FROM session {filter} ORDER BY no"
        );
        let mut select = self.connection.prepare(&sql).map_err(failed)?;
        let mut rows = select.query([]).map_err(failed)?;
        let mut sessions = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |index| -> Result<u64, LedgerError> {
                let number: i64 = row.get(index).map_err(failed)?;
                Ok(number.max(0).unsigned_abs())
            };
            let name: String = row.get(0).map_err(failed)?;
            let first_seq = number(1)?;
            sessions.push(SessionRow {
                session: name.parse().map_err(|_| LedgerError::Damaged {
                    path: self.path.clone(),
                    seq: first_seq,
                    what: "its session's name is not one".into(),
                })?,
                first_seq,
                last_seq: number(2)?,
                open_holds: number(3)?,
                held: amount_from_sql(row.get(4).map_err(failed)?),
            });
        }
        Ok(sessions)
    }

    /// Every entry of a session, in order.
    ///
    /// # Errors
    /// When there is no such session, or the ledger cannot be read.
    pub fn session(&self, session: &SessionId) -> Result<Vec<Recorded>, LedgerError> {
        let mut entries = Vec::new();
        for_each_entry(&self.path, &self.connection, session, |recorded| {
            entries.push(recorded);
            Ok(())
        })?;
        if entries.is_empty() {
            return Err(LedgerError::NoSuchSession {
                path: self.path.clone(),
                session: session.clone(),
            });
        }
        Ok(entries)
    }

    /// Calls `take` with every entry of every session, in order, until it returns `false`.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn for_each(
        &self,
        mut take: impl FnMut(&SessionId, &Recorded) -> bool,
    ) -> Result<(), LedgerError> {
        let failed = failed(&self.path, "its entries cannot be read");
        let sessions: HashMap<String, SessionId> = self
            .sessions()?
            .into_iter()
            .map(|row| (row.session.to_string(), row.session))
            .collect();
        let mut select = self
            .connection
            .prepare(
                "SELECT e.seq, e.at, e.body, e.hash, s.name FROM entry e
                 JOIN session s ON s.no = e.session ORDER BY e.seq",
            )
            .map_err(failed)?;
        let mut rows = select.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let name: String = row.get(4).map_err(failed)?;
            // A session that began since the names were read: it is left to the next export.
            let Some(session) = sessions.get(&name) else {
                continue;
            };
            if !take(session, &recorded(&self.path, row)?) {
                break;
            }
        }
        Ok(())
    }

    /// The text of a price file, by its digest.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn price_file(&self, digest: &str) -> Result<Option<String>, LedgerError> {
        self.connection
            .query_row(
                "SELECT text FROM price_file WHERE digest = ?1",
                [digest],
                |row| row.get(0),
            )
            .optional()
            .map_err(failed(&self.path, "its price files cannot be read"))
    }
}

/// Every entry of a session with its time, in order.
///
/// # Errors
/// When there is no such session, or the ledger cannot be read.
pub fn read_session(
    path: &Path,
    session: &SessionId,
) -> Result<Vec<(Timestamp, Entry)>, LedgerError> {
    let entries = Reader::open(path)?.session(session)?;
    Ok(entries
        .into_iter()
        .map(|recorded| (recorded.at, recorded.entry))
        .collect())
}

/// Calls `take` with every entry of a session, in order; not at all when there is no such session.
pub(super) fn for_each_entry(
    path: &Path,
    connection: &Connection,
    session: &SessionId,
    mut take: impl FnMut(Recorded) -> Result<(), LedgerError>,
) -> Result<(), LedgerError> {
    let failed = failed(path, "a session's entries cannot be read");
    // No bound by `last_seq`: inside a transaction that is written only at its end.
    let mut select = connection
        .prepare_cached(
            "SELECT e.seq, e.at, e.body, e.hash FROM session s
             JOIN entry e ON e.seq >= s.first_seq AND e.session = s.no
             WHERE s.name = ?1 ORDER BY e.seq",
        )
        .map_err(failed)?;
    let mut rows = select.query(params![session.as_str()]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        take(recorded(path, row)?)?;
    }
    Ok(())
}

/// A row of number, time, body and hash as an entry.
fn recorded(path: &Path, row: &rusqlite::Row<'_>) -> Result<Recorded, LedgerError> {
    let failed = failed(path, "an entry cannot be read");
    let seq: i64 = row.get(0).map_err(failed)?;
    let body = row
        .get_ref(2)
        .and_then(|body| Ok(body.as_bytes()?))
        .map_err(failed)?;
    let hash: Vec<u8> = row.get(3).map_err(failed)?;
    decode(path, seq, row.get(1).map_err(failed)?, body, &hash)
}

/// One stored entry.
pub(super) fn decode(
    path: &Path,
    seq: i64,
    at: i64,
    body: &[u8],
    hash: &[u8],
) -> Result<Recorded, LedgerError> {
    let damaged = |what: String| LedgerError::Damaged {
        path: path.to_owned(),
        seq: seq.max(0).unsigned_abs(),
        what,
    };
    Ok(Recorded {
        head: Head {
            seq: u64::try_from(seq).map_err(|_| damaged("its number is negative".into()))?,
            hash: EntryHash::from_slice(hash)
                .ok_or_else(|| damaged("its hash is not one".into()))?,
        },
        at: Timestamp::from_nanosecond(i128::from(at))
            .map_err(|_| damaged("its time is not one".into()))?,
        entry: body::read(body).map_err(|what| damaged(format!("it cannot be read: {what}")))?,
    })
}
