//! Checking a ledger: its chain, its sums, its place against the high-water file.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use super::anchor::{self, Anchor};
use super::chain::{EntryHash, Head};
use super::effect::Effect;
use super::reader::{Reader, decode};
use super::schema::failed;
use super::sum::{SUM_HELD, amount_from_sql, day_name};
use super::{Entry, LedgerError};
use crate::cap::OnCap;
use crate::id::{RequestId, SessionId};
use crate::money::PicoUsd;

/// Problems that are listed; after a few dozen the rest says nothing new.
const PROBLEMS_LISTED: usize = 50;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The entry it was found at, where it belongs to one.
    pub seq: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "entry {seq}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// What `verify` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The last entry.
    pub head: Head,
    /// Sessions.
    pub sessions: u64,
    /// Charged in all sessions.
    pub charged: PicoUsd,
    /// Held by requests that nothing has resolved.
    pub held: PicoUsd,
    /// What is wrong, at most 50 things.
    pub problems: Vec<Problem>,
    /// Further problems.
    pub problems_beyond_listed: u64,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Recomputes the chain and every sum of the ledger, and checks it against its high-water file.
///
/// # Errors
/// When the ledger cannot be read at all.
pub fn verify(path: &Path, anchor: &Path) -> Result<Verified, LedgerError> {
    let reader = Reader::open(path)?;
    let (mut audit, head) = audit(&reader)?;
    let checked = anchor::check(anchor, path, reader.connection(), reader.identity());
    if let Err(error) = checked {
        audit.note(None, error.to_string());
    }
    Ok(audit.finish(head))
}

/// Makes the high-water file say what the ledger says, when its chain and sums are sound: the
/// operator knows why they differ.
///
/// # Errors
/// When the ledger cannot be read, or the file cannot be written.
pub fn accept_head(path: &Path, anchor: &Path) -> Result<Verified, LedgerError> {
    let reader = Reader::open(path)?;
    let (audit, head) = audit(&reader)?;
    let verified = audit.finish(head);
    if verified.is_sound() {
        Anchor::open(anchor, &reader.identity().ledger_id)?.reset(&head)?;
    }
    Ok(verified)
}

/// Goes through every entry in one consistent view.
fn audit(reader: &Reader) -> Result<(Audit, Head), LedgerError> {
    let path = reader.path();
    let unreadable = failed(path, "the ledger cannot be read");
    let view = reader
        .connection()
        .unchecked_transaction()
        .map_err(unreadable)?;
    let mut audit = Audit::default();
    let page: String = view
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(unreadable)?;
    if page != "ok" {
        audit.note(None, format!("the database is damaged: {page}"));
    }
    let genesis = reader.identity().genesis();
    let mut head = Head {
        seq: 0,
        hash: genesis,
    };
    let mut select = view
        .prepare(
            "SELECT e.seq, coalesce(s.name, ''), e.at, e.body, e.hash FROM entry e
             LEFT JOIN session s ON s.no = e.session ORDER BY e.seq",
        )
        .map_err(unreadable)?;
    let mut rows = select.query([]).map_err(unreadable)?;
    while let Some(row) = rows.next().map_err(unreadable)? {
        let stored = StoredRow::read(row).map_err(unreadable)?;
        head = audit.take(path, &head, &stored);
    }
    audit.compare_sums(reader)?;
    Ok((audit, head))
}

struct StoredRow {
    seq: i64,
    session: String,
    at: i64,
    body: Vec<u8>,
    hash: Vec<u8>,
}

impl StoredRow {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            session: row.get(1)?,
            at: row.get(2)?,
            body: row.get_ref(3)?.as_bytes()?.to_owned(),
            hash: row.get(4)?,
        })
    }
}

/// What the entries say of one session so far.
#[derive(Debug, Default)]
struct SessionSums {
    first_seq: u64,
    last_seq: u64,
    open_holds: u64,
    held: PicoUsd,
    charged: PicoUsd,
    cap: PicoUsd,
    on_cap: OnCap,
    overran: bool,
    was_over: bool,
}

/// The sums that follow from the entries, and what is wrong.
#[derive(Debug, Default)]
struct Audit {
    sessions: BTreeMap<String, SessionSums>,
    open: HashMap<RequestId, PicoUsd>,
    kept: HashMap<RequestId, PicoUsd>,
    sums: BTreeMap<String, PicoUsd>,
    problems: Vec<Problem>,
    beyond: u64,
}

impl Audit {
    fn note(&mut self, seq: Option<u64>, what: String) {
        if self.problems.len() < PROBLEMS_LISTED {
            self.problems.push(Problem { seq, what });
        } else {
            self.beyond += 1;
        }
    }

    /// Takes one row in; returns the head that the next row must follow.
    fn take(&mut self, path: &Path, head: &Head, row: &StoredRow) -> Head {
        let seq = row.seq.max(0).unsigned_abs();
        if seq != head.seq + 1 {
            self.note(
                Some(seq),
                format!("entries {} to {} are missing", head.seq + 1, seq.max(1) - 1),
            );
        }
        let expected = head.hash.next(seq, &row.session, row.at, &row.body);
        let stored = EntryHash::from_slice(&row.hash);
        if stored != Some(expected) {
            self.note(
                Some(seq),
                "its hash does not follow from its content and the entry before it".into(),
            );
        }
        // Later entries are checked against what this one says, so that each break is named.
        let hash = stored.unwrap_or(expected);
        match decode(path, row.seq, row.at, &row.body, hash.as_bytes()) {
            Ok(recorded) if row.session.parse::<SessionId>().is_ok() => {
                self.count(seq, &row.session, row.at, recorded.entry);
            }
            Ok(_) => self.note(Some(seq), "it belongs to no session".into()),
            Err(LedgerError::Damaged { what, .. }) => self.note(Some(seq), what),
            Err(other) => self.note(Some(seq), other.to_string()),
        }
        Head { seq, hash }
    }

    fn count(&mut self, seq: u64, session: &str, at: i64, entry: Entry) {
        let sums = self.sessions.entry(session.to_owned()).or_default();
        if sums.first_seq == 0 {
            sums.first_seq = seq;
        }
        sums.last_seq = seq;
        match &entry {
            Entry::Opened { cap, on_cap, .. } => {
                sums.cap = *cap;
                sums.on_cap = *on_cap;
            }
            Entry::ToppedUp { cap, .. } => sums.cap = *cap,
            Entry::Overrun { .. } => sums.overran = true,
            _ => {}
        }
        let is_kept = matches!(entry, Entry::Kept { .. });
        // An overrun is recorded right behind its charge, in the same commit.
        let may_be_over = matches!(entry, Entry::Settled { .. } | Entry::Corrected { .. });
        self.apply(seq, session, at, entry.into_effect(), is_kept);
        self.check_cap(seq, session, may_be_over);
    }

    fn apply(&mut self, seq: u64, session: &str, at: i64, effect: Effect, is_kept: bool) {
        match effect {
            Effect::None => {}
            Effect::Hold(request, amount) => {
                let sums = self.sessions.entry(session.to_owned()).or_default();
                sums.open_holds += 1;
                sums.held = sums.held.saturating_add(amount);
                self.add(SUM_HELD.to_owned(), amount);
                if self.open.insert(request.clone(), amount).is_some() {
                    self.note(Some(seq), format!("{request} is held a second time"));
                }
            }
            Effect::Resolve(request, charged) => {
                let Some(amount) = self.open.remove(&request) else {
                    self.note(Some(seq), format!("{request} has no open hold"));
                    return;
                };
                let sums = self.sessions.entry(session.to_owned()).or_default();
                sums.open_holds = sums.open_holds.saturating_sub(1);
                sums.held = sums.held.saturating_sub(amount);
                sums.charged = sums.charged.saturating_add(charged);
                let held = self.sums.entry(SUM_HELD.to_owned()).or_default();
                *held = held.saturating_sub(amount);
                self.add_charge(at, charged);
                if is_kept {
                    if charged != amount {
                        let what = format!("{request} kept {charged} of a hold of {amount}");
                        self.note(Some(seq), what);
                    }
                    self.kept.insert(request, charged);
                }
            }
            Effect::Correct(request, charged) => {
                let Some(was) = self.kept.insert(request.clone(), charged) else {
                    self.note(Some(seq), format!("{request} had no kept hold to correct"));
                    return;
                };
                let sums = self.sessions.entry(session.to_owned()).or_default();
                sums.charged = sums.charged.saturating_sub(was).saturating_add(charged);
                self.add_charge(at, charged.saturating_sub(was));
            }
        }
    }

    fn add_charge(&mut self, at: i64, charged: PicoUsd) {
        if charged != PicoUsd::ZERO {
            self.add(day_name(at), charged);
        }
    }

    fn add(&mut self, name: String, amount: PicoUsd) {
        let sum = self.sums.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    }

    /// In the hard modes `settled + held ≤ cap` after every entry, but for a recorded overrun and
    /// an operator's own correction.
    fn check_cap(&mut self, seq: u64, session: &str, may_be_over: bool) {
        let Some(sums) = self.sessions.get_mut(session) else {
            return;
        };
        let is_over = sums.charged.saturating_add(sums.held) > sums.cap;
        let is_new = is_over && !sums.was_over;
        sums.was_over = is_over;
        let may_be = may_be_over || sums.overran || sums.on_cap == OnCap::Soft;
        if is_new && !may_be {
            self.note(Some(seq), format!("{session} is above its cap"));
        }
    }

    /// Compares the stored sums with those that follow from the entries.
    fn compare_sums(&mut self, reader: &Reader) -> Result<(), LedgerError> {
        for row in reader.sessions()? {
            let name = row.session.to_string();
            let agrees = self.sessions.get(&name).is_some_and(|sums| {
                (sums.first_seq, sums.last_seq, sums.open_holds, sums.held)
                    == (row.first_seq, row.last_seq, row.open_holds, row.held)
            });
            if !agrees {
                self.note(
                    None,
                    format!("the sums of {name} are not those of its entries"),
                );
            }
        }
        let unreadable = failed(reader.path(), "its sums cannot be read");
        let mut select = reader
            .connection()
            .prepare("SELECT name, pico_usd FROM sum ORDER BY name")
            .map_err(unreadable)?;
        let mut rows = select.query([]).map_err(unreadable)?;
        let mut stored = BTreeMap::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            let name: String = row.get(0).map_err(unreadable)?;
            stored.insert(name, amount_from_sql(row.get(1).map_err(unreadable)?));
        }
        let names: Vec<String> = stored.keys().chain(self.sums.keys()).cloned().collect();
        let of = |sums: &BTreeMap<String, PicoUsd>, name: &str| {
            sums.get(name).copied().unwrap_or(PicoUsd::ZERO)
        };
        let mut wrong: Vec<String> = names
            .into_iter()
            .filter(|name| of(&stored, name) != of(&self.sums, name))
            .collect();
        wrong.dedup();
        for name in wrong {
            let (says, is) = (of(&stored, &name), of(&self.sums, &name));
            self.note(
                None,
                format!("the sum '{name}' says {says}, its entries {is}"),
            );
        }
        Ok(())
    }

    fn finish(self, head: Head) -> Verified {
        let charged = self.sessions.values().fold(PicoUsd::ZERO, |sum, session| {
            sum.saturating_add(session.charged)
        });
        Verified {
            head,
            sessions: u64::try_from(self.sessions.len()).unwrap_or(u64::MAX),
            charged,
            held: self.sums.get(SUM_HELD).copied().unwrap_or(PicoUsd::ZERO),
            problems: self.problems,
            problems_beyond_listed: self.beyond,
        }
    }
}
