//! When a mirror stops and asks instead of deleting: pure judgements of what was scanned and of what
//! is planned.

use super::plan::Summary;
use crate::tree::directory::Totals;

/// As many deleted files never stop a mirror: cleaning up a small directory is everyday work.
pub const DELETES_FREE: u64 = 25;
/// The share of the destination's files, in percent, that may be deleted: more is rather a wrong
/// source than work.
pub const DELETES_SHARE: u64 = 50;

/// What the user said to go on with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// `--allow-empty`: a source without entries.
    pub empty: bool,
    /// `--allow-deletes`: any number of deletes.
    pub deletes: bool,
}

impl Allowed {
    /// Everything: where nothing is deleted.
    pub const ALL: Self = Self {
        empty: true,
        deletes: true,
    };
}

/// Why nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Brake {
    /// The source has nothing.
    #[error(
        "the source has no entries and the destination has {entries} ({files} files): nothing is deleted; if it shall be emptied, say --allow-empty"
    )]
    Emptied {
        /// Entries of the destination.
        entries: u64,
        /// Files among them.
        files: u64,
    },
    /// Most of the destination would go.
    #[error(
        "{deleted} of the {files} files of the destination would be deleted, more than {DELETES_SHARE} %: nothing is changed; if they shall go, say --allow-deletes"
    )]
    TooManyDeletes {
        /// Files that the plan deletes.
        deleted: u64,
        /// Files of the destination.
        files: u64,
    },
}

/// Judges a source by how much it holds.
///
/// # Errors
/// When it has nothing and the destination has something.
pub fn judge_emptied(source: Totals, destination: Totals, allowed: Allowed) -> Result<(), Brake> {
    let Totals { entries, files, .. } = destination;
    if source.entries == 0 && entries > 0 && !allowed.empty {
        return Err(Brake::Emptied { entries, files });
    }
    Ok(())
}

/// Judges a plan for a destination. A source that was allowed to be empty was allowed to delete all.
///
/// # Errors
/// When more than [`DELETES_FREE`] files, and more than [`DELETES_SHARE`] percent, would go.
pub fn judge_deletes(
    source: Totals,
    destination: Totals,
    summary: &Summary,
    allowed: Allowed,
) -> Result<(), Brake> {
    let (deleted, files) = (summary.deleted.files, destination.files);
    let emptied = source.entries == 0 && allowed.empty;
    let share = u128::from(deleted) * 100 > u128::from(files) * u128::from(DELETES_SHARE);
    if deleted > DELETES_FREE && share && !allowed.deletes && !emptied {
        return Err(Brake::TooManyDeletes { deleted, files });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::plan::Tally;

    fn totals(files: u64) -> Totals {
        Totals {
            entries: files,
            files,
            bytes: files,
        }
    }

    const NOTHING: Allowed = Allowed {
        empty: false,
        deletes: false,
    };
    const ALL: Allowed = Allowed {
        empty: true,
        deletes: true,
    };

    #[test]
    fn m34_an_emptied_source_deletes_nothing_unless_allowed() {
        let brake = judge_emptied(totals(0), totals(7), NOTHING).unwrap_err();
        let text = brake.to_string();
        assert!(
            text.contains("7 files") && text.contains("--allow-empty"),
            "{text}"
        );
        let only_deletes = Allowed {
            empty: false,
            deletes: true,
        };
        assert!(judge_emptied(totals(0), totals(7), only_deletes).is_err());
        let only_empty = Allowed {
            empty: true,
            deletes: false,
        };
        judge_emptied(totals(0), totals(7), only_empty).unwrap();
        judge_emptied(totals(0), totals(0), NOTHING).unwrap();
        let gone = summary(100);
        judge_deletes(totals(0), totals(100), &gone, only_empty).unwrap();
        assert!(judge_deletes(totals(1), totals(100), &gone, only_empty).is_err());
    }

    fn summary(files: u64) -> Summary {
        let deleted = Tally {
            entries: files,
            files,
            bytes: files,
        };
        Summary {
            deleted,
            ..Summary::default()
        }
    }

    #[test]
    fn most_of_a_tree_is_not_deleted_unless_allowed() {
        for (deleted, of, stops) in [
            (25, 25, false),
            (26, 51, true),
            (26, 52, false),
            (500, 1000, false),
            (501, 1000, true),
            (u64::MAX, u64::MAX, true),
        ] {
            let judged = judge_deletes(totals(1), totals(of), &summary(deleted), NOTHING);
            assert_eq!(judged.is_err(), stops, "{deleted} of {of}");
            judge_deletes(totals(1), totals(of), &summary(deleted), ALL).unwrap();
        }
        let text = judge_deletes(totals(1), totals(51), &summary(26), NOTHING).unwrap_err();
        assert!(text.to_string().contains("26 of the 51 files"), "{text}");
    }
}
