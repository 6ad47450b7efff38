//! The high-water file: the last entry the ledger is known to have had, kept outside the ledger.
//!
//! Two slots of fixed size are written in turn, each with its own check, so that a cut write leaves
//! the other one. It is written after each commit and before anybody is told of it, and it never
//! goes back, whichever process writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::FlockOperation;

use super::chain::Head;
use super::schema::{self, Identity};
use super::{LedgerError, place};

/// Bytes of a slot; both lie in one sector.
const SLOT_BYTES: usize = 192;
/// Tries to get the file's lock before the write is left to the process that holds it.
const LOCK_TRIES: u32 = 100;
/// Between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(2);
const MAGIC: &str = "labproxy-high-water-1";

/// The high-water file of one ledger.
#[derive(Debug)]
pub(super) struct Anchor {
    path: PathBuf,
    file: File,
    ledger_id: String,
}

/// What the high-water file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is none, or an empty file.
    Missing,
    /// Neither slot can be read.
    Damaged,
    /// The newer slot.
    At {
        /// Which ledger it belongs to.
        ledger_id: String,
        /// The last entry.
        head: Head,
    },
}

/// Reads the mark of `path` without making the file.
pub(super) fn read(path: &Path) -> io::Result<Mark> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Mark::Missing),
        Err(error) => Err(error),
    }
}

fn parse(bytes: &[u8]) -> Mark {
    if bytes.is_empty() {
        return Mark::Missing;
    }
    bytes
        .chunks(SLOT_BYTES)
        .take(2)
        .filter_map(parse_slot)
        .max_by_key(|(_, head)| head.seq)
        .map_or(Mark::Damaged, |(ledger_id, head)| Mark::At {
            ledger_id,
            head,
        })
}

fn parse_slot(slot: &[u8]) -> Option<(String, Head)> {
    let (text, check) = std::str::from_utf8(slot)
        .ok()?
        .trim_end()
        .rsplit_once(' ')?;
    if check != check_of(text) {
        return None;
    }
    let mut parts = text.split(' ');
    if parts.next()? != MAGIC {
        return None;
    }
    let ledger_id = parts.next()?.to_owned();
    let seq = parts.next()?.parse().ok()?;
    let hash = parts.next()?.parse().ok()?;
    Some((ledger_id, Head { seq, hash }))
}

fn check_of(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    hash.chars().take(16).collect()
}

fn slot_text(ledger_id: &str, head: &Head) -> String {
    let text = format!("{MAGIC} {ledger_id} {:020} {}", head.seq, head.hash);
    let check = check_of(&text);
    format!(
        "{:<width$}\n",
        format!("{text} {check}"),
        width = SLOT_BYTES - 1
    )
}

impl Anchor {
    /// Opens the file, or makes it; it says nothing new until [`Anchor::advance`].
    pub(super) fn open(path: &Path, ledger_id: &str) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::Io {
            path: path.to_owned(),
            doing: "the high-water file cannot be opened",
            source,
        };
        let directory = place::make_directory(path)?;
        let file = place::make_private_file(path).map_err(failed)?;
        place::sync_directory(&directory).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            ledger_id: ledger_id.to_owned(),
        })
    }

    /// Says that the ledger has reached `head`, unless the file says more already.
    pub(super) fn advance(&self, head: &Head) -> Result<(), LedgerError> {
        self.write(head, false).map_err(|source| LedgerError::Io {
            path: self.path.clone(),
            doing: "the high-water file cannot be written",
            source,
        })
    }

    /// Makes the file durable.
    pub(super) fn sync(&self) -> Result<(), LedgerError> {
        self.file.sync_all().map_err(|source| LedgerError::Io {
            path: self.path.clone(),
            doing: "the high-water file cannot be made durable",
            source,
        })
    }

    /// Says that the ledger is at `head` and nowhere else: an operator accepted it.
    pub(super) fn reset(&self, head: &Head) -> Result<(), LedgerError> {
        self.write(head, true)
            .and_then(|()| self.file.sync_all())
            .map_err(|source| LedgerError::Io {
                path: self.path.clone(),
                doing: "the high-water file cannot be written",
                source,
            })
    }

    fn write(&self, head: &Head, back_too: bool) -> io::Result<()> {
        if !self.lock()? {
            // RACE: whoever holds the lock writes an earlier or a later head; the next commit of
            // either process brings the file up to date.
            return Ok(());
        }
        let result = self.write_locked(head, back_too);
        rustix::fs::flock(&self.file, FlockOperation::Unlock)?;
        result
    }

    fn write_locked(&self, head: &Head, back_too: bool) -> io::Result<()> {
        let slot = slot_text(&self.ledger_id, head);
        if back_too {
            self.file.write_all_at(slot.as_bytes(), 0)?;
            return self.file.set_len(slot_offset(1));
        }
        let mut bytes = [0u8; SLOT_BYTES * 2];
        let length = read_up_to(&self.file, &mut bytes)?;
        let slots: Vec<Option<u64>> = bytes
            .get(..length)
            .unwrap_or_default()
            .chunks(SLOT_BYTES)
            .map(|slot| parse_slot(slot).map(|(_, head)| head.seq))
            .collect();
        if slots.iter().flatten().any(|seq| *seq >= head.seq) {
            return Ok(());
        }
        // The older slot gives way; a missing or damaged one counts as oldest.
        let first = slots.first().copied().flatten();
        let second = slots.get(1).copied().flatten();
        let older = u64::from(first.is_some() && first >= second);
        self.file.write_all_at(slot.as_bytes(), slot_offset(older))
    }

    /// Takes the lock; another process that stopped while it held it does not stop this one.
    fn lock(&self) -> io::Result<bool> {
        for _ in 0..LOCK_TRIES {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        tracing::warn!(path = %self.path.display(), "the high-water file stays locked");
        Ok(false)
    }
}

fn slot_offset(slot: u64) -> u64 {
    u64::try_from(SLOT_BYTES).unwrap_or(0).saturating_mul(slot)
}

fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, u64::try_from(length).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Checks a ledger against its high-water file; returns its last entry.
pub(super) fn check(
    anchor: &Path,
    path: &Path,
    connection: &Connection,
    identity: &Identity,
) -> Result<Head, LedgerError> {
    match check_once(anchor, path, connection, identity) {
        // RACE: another process made the ledger, the file and entries since the file was looked
        // for. It stands now, if that is so.
        Err(LedgerError::AnchorMissing { .. }) => check_once(anchor, path, connection, identity),
        other => other,
    }
}

fn check_once(
    anchor: &Path,
    path: &Path,
    connection: &Connection,
    identity: &Identity,
) -> Result<Head, LedgerError> {
    // Read before the ledger: what others append meanwhile only puts the ledger further ahead.
    let mark = read(anchor).map_err(|source| LedgerError::Io {
        path: anchor.to_owned(),
        doing: "the high-water file cannot be read",
        source,
    })?;
    let genesis = identity.genesis();
    let head = schema::head(path, connection, genesis)?;
    let (path_owned, anchor) = (path.to_owned(), anchor.to_owned());
    match mark {
        Mark::Missing if head.seq == 0 => Ok(head),
        Mark::Missing => Err(LedgerError::AnchorMissing {
            path: path_owned,
            anchor,
            head: head.seq,
        }),
        Mark::Damaged => Err(LedgerError::AnchorDamaged { anchor }),
        Mark::At { head: mark, .. } if head.seq < mark.seq => Err(LedgerError::RolledBack {
            path: path_owned,
            head: head.seq,
            high_water: mark.seq,
        }),
        Mark::At { ledger_id, .. } if ledger_id != identity.ledger_id => {
            Err(LedgerError::AnchorForeign {
                path: path_owned,
                anchor,
            })
        }
        Mark::At { head: mark, .. } => {
            match schema::hash_at(path, connection, genesis, mark.seq)? {
                Some(hash) if hash == mark.hash => Ok(head),
                _ => Err(LedgerError::Forked {
                    path: path_owned,
                    seq: mark.seq,
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::EntryHash;

    fn head(seq: u64) -> Head {
        Head {
            seq,
            hash: EntryHash::genesis(&seq.to_le_bytes()),
        }
    }

    /// The mark only goes forward, and a cut write of one slot leaves the other.
    #[test]
    fn the_mark_goes_forward_only_and_survives_a_cut_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("high-water");
        assert_eq!(read(&path).unwrap(), Mark::Missing);
        let anchor = Anchor::open(&path, "id").unwrap();
        let at = |seq| Mark::At {
            ledger_id: "id".into(),
            head: head(seq),
        };
        for (written, expected) in [(1, 1), (2, 2), (1, 2), (7, 7), (5, 7), (8, 8)] {
            anchor.advance(&head(written)).unwrap();
            assert_eq!(read(&path).unwrap(), at(expected));
        }
        let whole = std::fs::read(&path).unwrap();
        let newest = if parse_slot(&whole[..SLOT_BYTES]).unwrap().1.seq == 8 {
            0
        } else {
            SLOT_BYTES
        };
        for cut in newest..newest + SLOT_BYTES - 30 {
            let mut bytes = whole.clone();
            bytes[cut..newest + SLOT_BYTES].fill(0);
            assert_eq!(parse(&bytes), at(7), "{cut}");
        }
        anchor.reset(&head(3)).unwrap();
        assert_eq!(read(&path).unwrap(), at(3));
    }
}
