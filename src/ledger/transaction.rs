//! One transaction: entries appended to the chain, and the sums that follow from them.

use std::collections::HashMap;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::chain::Head;
use super::effect::Effect;
use super::holds::{Hold, Holds};
use super::queue::{Job, Prepared, Work};
use super::schema::failed;
use super::sum::{Sum, amount_from_sql, amount_to_sql};
use super::{Entry, LedgerError, LedgerOptions, place};
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

/// Bytes that one commit adds to the write-ahead log beside its entries: the pages of the three
/// small tables and of the tree above the last entry.
const LOG_BYTES_PER_COMMIT: usize = 5 * 4_096;
/// Bytes that SQLite and the hash add to an entry's text.
const LOG_BYTES_PER_ENTRY: usize = 64;
/// What the writer remembers between transactions.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Numbers of sessions.
    numbers: HashMap<SessionId, i64>,
    /// Holds that this process opened and that are not resolved.
    open: HashMap<RequestId, PicoUsd>,
}

/// What a transaction adds to the cache once it is durable.
#[derive(Debug, Default)]
pub(super) struct Changes {
    numbers: Vec<(SessionId, i64)>,
    /// `None`: the hold is resolved.
    holds: HashMap<RequestId, Option<PicoUsd>>,
}

impl Cache {
    pub(super) fn merge(&mut self, changes: Changes) {
        self.numbers.extend(changes.numbers);
        for (request, amount) in changes.holds {
            match amount {
                Some(amount) => drop(self.open.insert(request, amount)),
                None => drop(self.open.remove(&request)),
            }
        }
    }
}

/// What became of one job.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is in the transaction; the amount that was kept, for `Keep`.
    Done(PicoUsd),
    /// It was left out.
    Refused(LedgerError),
}

/// What a finished transaction tells the writer.
pub(super) struct Done {
    pub(super) head: Head,
    pub(super) changes: Changes,
    pub(super) log_bytes: usize,
}

/// A session's row, as this transaction will leave it.
struct SessionRow {
    no: i64,
    last_seq: i64,
    open_holds: i64,
    held: PicoUsd,
}

/// One transaction in the making.
pub(super) struct Transaction<'a> {
    options: &'a LedgerOptions,
    directory: &'a Path,
    connection: &'a Connection,
    cache: &'a Cache,
    changes: Changes,
    head: Head,
    sessions: Vec<SessionRow>,
    /// Sums, as this transaction will leave them.
    sums: Vec<(Sum, PicoUsd)>,
    insert: CachedStatement<'a>,
    has_room: Option<bool>,
    log_bytes: usize,
}

/// A time as the ledger stores it: nanoseconds since 1970, which 64 bits hold until 2262.
fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(
        options: &'a LedgerOptions,
        directory: &'a Path,
        connection: &'a Connection,
        cache: &'a Cache,
        head: Head,
    ) -> Result<Self, LedgerError> {
        let insert = connection
            .prepare_cached(
                "INSERT INTO entry(seq, session, at, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .map_err(failed(&options.path, "entries cannot be written"))?;
        Ok(Self {
            options,
            directory,
            connection,
            cache,
            changes: Changes::default(),
            head,
            sessions: Vec::new(),
            sums: Vec::new(),
            has_room: None,
            insert,
            log_bytes: LOG_BYTES_PER_COMMIT,
        })
    }

    /// Takes one job in, or leaves it out.
    ///
    /// # Errors
    /// When the whole transaction must fail.
    pub(super) fn apply(&mut self, job: &Job) -> Result<Outcome, LedgerError> {
        let at = nanos(job.at);
        match &job.work {
            Work::Append {
                session, entries, ..
            } => {
                if let Err(refusal) = self.check_holds(entries, at)? {
                    return Ok(Outcome::Refused(refusal));
                }
                for entry in entries {
                    self.append(session, at, entry)?;
                }
                Ok(Outcome::Done(PicoUsd::ZERO))
            }
            Work::Keep {
                session, reason, ..
            } => self.keep(session, at, reason),
            Work::Flush { .. } => Ok(Outcome::Done(PicoUsd::ZERO)),
            Work::Correct {
                session,
                request,
                charged,
                reason,
                ..
            } => self.correct(session, at, request, *charged, reason),
            Work::StorePrices { digest, text, .. } => {
                self.connection
                    .prepare_cached(
                        "INSERT INTO price_file(digest, text) VALUES (?1, ?2)
                         ON CONFLICT(digest) DO NOTHING",
                    )
                    .and_then(|mut insert| insert.execute([digest, text]))
                    .map_err(self.failed())?;
                self.log_bytes = self.log_bytes.saturating_add(text.len());
                Ok(Outcome::Done(PicoUsd::ZERO))
            }
        }
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> LedgerError + Copy + use<'a> {
        failed(&self.options.path, "entries cannot be written")
    }

    /// New holds need room on the disk and under the daily ceiling.
    fn check_holds(
        &mut self,
        entries: &[Prepared],
        at: i64,
    ) -> Result<Result<(), LedgerError>, LedgerError> {
        let mut asked = PicoUsd::ZERO;
        let mut any = false;
        for entry in entries {
            if let Effect::Hold(_, amount) = entry.effect {
                any = true;
                asked = asked.saturating_add(amount);
            }
        }
        if !any {
            return Ok(Ok(()));
        }
        if !self.has_room()? {
            return Ok(Err(LedgerError::LowSpace {
                path: self.directory.to_owned(),
                free_bytes: place::free_bytes(self.directory).unwrap_or(0),
                floor_bytes: place::FREE_BYTES_FLOOR,
            }));
        }
        let Some(ceiling) = self.options.daily_ceiling else {
            return Ok(Ok(()));
        };
        let charged = *self.sum(Sum::day_of(at))?;
        let spent = charged.saturating_add(*self.sum(Sum::Held)?);
        match spent.checked_add(asked) {
            Some(total) if total <= ceiling => Ok(Ok(())),
            _ => Ok(Err(LedgerError::Daily { ceiling, spent })),
        }
    }

    /// Whether the disk has more than the floor, asked once per transaction.
    fn has_room(&mut self) -> Result<bool, LedgerError> {
        if let Some(has_room) = self.has_room {
            return Ok(has_room);
        }
        let free = place::free_bytes(self.directory).map_err(|source| LedgerError::Io {
            path: self.directory.to_owned(),
            doing: "the free space of its disk cannot be found out",
            source,
        })?;
        Ok(*self.has_room.insert(free >= place::FREE_BYTES_FLOOR))
    }

    /// Appends one entry, unless it ends a hold that never came to be.
    fn append(
        &mut self,
        session: &SessionId,
        at: i64,
        entry: &Prepared,
    ) -> Result<(), LedgerError> {
        let ended = match &entry.effect {
            Effect::Resolve(request, _) => {
                let Some(amount) = self.open_hold(request) else {
                    // Its hold failed while the client was leaving; nothing was sent.
                    tracing::debug!(%request, "an entry for a hold that was not taken is left out");
                    return Ok(());
                };
                amount
            }
            Effect::None | Effect::Correct(..) | Effect::Hold(..) => PicoUsd::ZERO,
        };
        let row = self.session(session)?;
        match &entry.effect {
            Effect::None | Effect::Correct(..) => {}
            Effect::Hold(request, amount) => {
                self.changes.holds.insert(request.clone(), Some(*amount));
                self.open(row, *amount)?;
            }
            Effect::Resolve(request, charged) => {
                self.changes.holds.insert(request.clone(), None);
                self.resolve(row, ended)?;
                self.charge(at, *charged)?;
            }
        }
        self.insert(session, row, at, &entry.body)
    }

    fn open_hold(&self, request: &RequestId) -> Option<PicoUsd> {
        match self.changes.holds.get(request) {
            Some(changed) => *changed,
            None => self.cache.open.get(request).copied(),
        }
    }

    fn insert(
        &mut self,
        session: &SessionId,
        row: usize,
        at: i64,
        body: &[u8],
    ) -> Result<(), LedgerError> {
        let out_of_numbers = || LedgerError::Damaged {
            path: self.options.path.clone(),
            seq: self.head.seq,
            what: "there is no number for another entry".into(),
        };
        let number = self.head.seq.checked_add(1).ok_or_else(out_of_numbers)?;
        let seq = i64::try_from(number).map_err(|_| out_of_numbers())?;
        let hash = self.head.hash.next(number, session.as_str(), at, body);
        let Some(row) = self.sessions.get_mut(row) else {
            return Err(out_of_numbers());
        };
        row.last_seq = seq;
        let stored = params![seq, row.no, at, body, hash.as_bytes()];
        self.insert
            .execute(stored)
            .map_err(failed(&self.options.path, "entries cannot be written"))?;
        self.head = Head { seq: number, hash };
        self.log_bytes = self
            .log_bytes
            .saturating_add(body.len())
            .saturating_add(LOG_BYTES_PER_ENTRY);
        Ok(())
    }

    /// Counts a hold that is opened.
    fn open(&mut self, row: usize, amount: PicoUsd) -> Result<(), LedgerError> {
        if let Some(row) = self.sessions.get_mut(row) {
            row.open_holds += 1;
            row.held = row.held.saturating_add(amount);
        }
        let held = self.sum(Sum::Held)?;
        *held = held.saturating_add(amount);
        Ok(())
    }

    /// Counts a hold that is resolved.
    fn resolve(&mut self, row: usize, amount: PicoUsd) -> Result<(), LedgerError> {
        if let Some(row) = self.sessions.get_mut(row) {
            row.open_holds -= 1;
            row.held = row.held.saturating_sub(amount);
        }
        let held = self.sum(Sum::Held)?;
        *held = held.saturating_sub(amount);
        Ok(())
    }

    /// Counts a charge for the day.
    fn charge(&mut self, at: i64, charged: PicoUsd) -> Result<(), LedgerError> {
        if charged != PicoUsd::ZERO {
            let day = self.sum(Sum::day_of(at))?;
            *day = day.saturating_add(charged);
        }
        Ok(())
    }

    /// The place of a session's row; a session that is new gets one.
    fn session(&mut self, session: &SessionId) -> Result<usize, LedgerError> {
        let failed = self.failed();
        let known = self.cache.numbers.get(session).or_else(|| {
            let mut numbers = self.changes.numbers.iter();
            numbers.find_map(|(name, no)| (name == session).then_some(no))
        });
        if let Some(no) = known
            && let Some(index) = self.sessions.iter().position(|row| row.no == *no)
        {
            return Ok(index);
        }
        let row = self
            .connection
            .prepare_cached("SELECT no, last_seq, open_holds, held FROM session WHERE name = ?1")
            .and_then(|mut select| {
                select
                    .query_row([session.as_str()], |row| {
                        Ok(SessionRow {
                            no: row.get(0)?,
                            last_seq: row.get(1)?,
                            open_holds: row.get(2)?,
                            held: amount_from_sql(row.get(3)?),
                        })
                    })
                    .optional()
            })
            .map_err(failed)?;
        let row = match row {
            Some(row) => row,
            None => self.found(session)?,
        };
        if !self.cache.numbers.contains_key(session) {
            self.changes.numbers.push((session.clone(), row.no));
        }
        self.sessions.push(row);
        Ok(self.sessions.len() - 1)
    }

    fn found(&self, session: &SessionId) -> Result<SessionRow, LedgerError> {
        let next = i64::try_from(self.head.seq.saturating_add(1)).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(
                "INSERT INTO session(name, first_seq, last_seq, open_holds, held)
                 VALUES (?1, ?2, ?2, 0, 0)",
            )
            .and_then(|mut insert| insert.execute(params![session.as_str(), next]))
            .map_err(self.failed())?;
        Ok(SessionRow {
            no: self.connection.last_insert_rowid(),
            last_seq: next,
            open_holds: 0,
            held: PicoUsd::ZERO,
        })
    }

    /// The sum, zero where there is none yet.
    fn sum(&mut self, sum: Sum) -> Result<&mut PicoUsd, LedgerError> {
        let known = self.sums.iter().position(|(known, _)| *known == sum);
        let index = if let Some(index) = known {
            index
        } else {
            let amount: Option<i64> = self
                .connection
                .prepare_cached("SELECT pico_usd FROM sum WHERE name = ?1")
                .and_then(|mut select| select.query_row([sum.name()], |row| row.get(0)).optional())
                .map_err(self.failed())?;
            let amount = amount.map_or(PicoUsd::ZERO, amount_from_sql);
            self.sums.push((sum, amount));
            self.sums.len() - 1
        };
        let path = &self.options.path;
        self.sums
            .get_mut(index)
            .map(|(_, amount)| amount)
            .ok_or_else(|| LedgerError::Damaged {
                path: path.clone(),
                seq: 0,
                what: format!("the sum '{}' is lost", sum.name()),
            })
    }

    /// Charges every open hold of the session in full, whoever opened it.
    fn keep(&mut self, session: &SessionId, at: i64, reason: &str) -> Result<Outcome, LedgerError> {
        let mut kept = PicoUsd::ZERO;
        for (request, hold) in self.holds(session)?.into_open() {
            let row = self.session(session)?;
            let entry = Prepared::new(Entry::Kept {
                request: request.clone(),
                charged: hold.amount,
                reason: reason.to_owned(),
                end: None,
            })?;
            self.changes.holds.insert(request, None);
            self.resolve(row, hold.amount)?;
            self.charge(at, hold.amount)?;
            self.insert(session, row, at, &entry.body)?;
            kept = kept.saturating_add(hold.amount);
        }
        Ok(Outcome::Done(kept))
    }

    fn correct(
        &mut self,
        session: &SessionId,
        at: i64,
        request: &RequestId,
        charged: PicoUsd,
        reason: &str,
    ) -> Result<Outcome, LedgerError> {
        let Some(Hold {
            kept: Some(was), ..
        }) = self.holds(session)?.get(request)
        else {
            return Ok(Outcome::Refused(LedgerError::NotKept {
                request: request.clone(),
            }));
        };
        // A day's sum only grows: a correction makes no room under the ceiling.
        let more = charged.saturating_sub(was);
        let entry = Prepared::new(Entry::Corrected {
            request: request.clone(),
            charged,
            reason: reason.to_owned(),
        })?;
        self.charge(at, more)?;
        let row = self.session(session)?;
        self.insert(session, row, at, &entry.body)?;
        Ok(Outcome::Done(PicoUsd::ZERO))
    }

    /// Every hold of the session so far, this transaction's included.
    fn holds(&self, session: &SessionId) -> Result<Holds, LedgerError> {
        Holds::read(&self.options.path, self.connection, session)
    }

    /// Writes the sums that changed.
    pub(super) fn finish(self) -> Result<Done, LedgerError> {
        let failed = self.failed();
        for row in &self.sessions {
            self.connection
                .prepare_cached(
                    "UPDATE session SET last_seq = ?2, open_holds = ?3, held = ?4 WHERE no = ?1",
                )
                .and_then(|mut update| {
                    let held = amount_to_sql(row.held);
                    update.execute(params![row.no, row.last_seq, row.open_holds, held])
                })
                .map_err(failed)?;
        }
        for (sum, amount) in &self.sums {
            self.connection
                .prepare_cached(
                    "INSERT INTO sum(name, pico_usd) VALUES (?1, ?2)
                     ON CONFLICT(name) DO UPDATE SET pico_usd = ?2",
                )
                .and_then(|mut upsert| upsert.execute(params![sum.name(), amount_to_sql(*amount)]))
                .map_err(failed)?;
        }
        Ok(Done {
            head: self.head,
            changes: self.changes,
            log_bytes: self.log_bytes,
        })
    }
}
