//! The audits of a session as the ledger has them, and whether what they looked at is still here.

use std::path::Path;

use crate::ledger::{self, Audit};
use crate::mirror::store::{GenerationNumber, Store, StoreError};
use crate::report::Failure;
use crate::tree::directory::Directory;

pub use crate::session::audits::{find, of_session};

/// Why the tree of an audit cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Nothing was pulled for it.
    #[error("audit {0} has no generation: nothing could be pulled for it")]
    NothingPulled(u64),
    /// Its generation was removed to make room.
    #[error(
        "generation {generation} of audit {number} is no longer kept (audit.keep_age, audit.keep_bytes)"
    )]
    Evicted {
        /// The audit.
        number: u64,
        /// The generation.
        generation: u64,
    },
    /// What is stored under its number is something else.
    #[error("generation {generation} is not what audit {number} looked at: {what} differs")]
    Another {
        /// The audit.
        number: u64,
        /// The generation.
        generation: u64,
        /// `tree`, `manifest` or `mirror`.
        what: &'static str,
    },
    /// The store cannot be read.
    #[error("generation {generation} of audit {number} cannot be read")]
    Store {
        /// The audit.
        number: u64,
        /// The generation.
        generation: u64,
        /// Why.
        #[source]
        error: StoreError,
    },
}

/// The tree that an audit looked at, proven to be that one.
///
/// # Errors
/// When it is not here, or not that one.
pub fn tree_of(audit: &Audit, store: &Store) -> Result<Directory, Unavailable> {
    let number = audit.number;
    let Some(recorded) = &audit.generation else {
        return Err(Unavailable::NothingPulled(number));
    };
    let generation = recorded.generation;
    let (head, tree) = match store.load(GenerationNumber(generation)) {
        Err(StoreError::NoGeneration(_)) => {
            return Err(Unavailable::Evicted { number, generation });
        }
        Err(error) => {
            return Err(Unavailable::Store {
                number,
                generation,
                error,
            });
        }
        Ok(loaded) => loaded,
    };
    let stored = super::record::generation(&head);
    let what = if stored.mirror != recorded.mirror {
        "mirror"
    } else if stored.tree != recorded.tree {
        "tree"
    } else if stored.manifest != recorded.manifest {
        "manifest"
    } else {
        return Ok(tree);
    };
    Err(Unavailable::Another {
        number,
        generation,
        what,
    })
}

/// What a look at a session's history found.
#[derive(Debug, Default)]
pub struct Looked {
    /// Entries of the ledger that were proven.
    pub entries: u64,
    /// Audits of the session.
    pub audits: u64,
    /// Those whose generation is here, each content proven.
    pub proven: u64,
    /// Those whose generation is no longer kept, or that have none.
    pub without: Vec<u64>,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Recomputes the ledger's chain and sums, and reads every content of every generation that an
/// audit looked at again. Nothing of it needs the other end.
///
/// # Errors
/// When the ledger cannot be read at all.
pub fn verify(
    ledger: &Path,
    anchor: &Path,
    audits: &[Audit],
    store: Option<&Store>,
) -> Result<Looked, Failure> {
    let verified = ledger::verify(ledger, anchor)
        .map_err(|error| Failure::because("the ledger cannot be verified", &error))?;
    let mut looked = Looked {
        entries: verified.head.seq,
        audits: u64::try_from(audits.len()).unwrap_or(u64::MAX),
        ..Looked::default()
    };
    let problems = verified.problems.iter().map(|it| format!("ledger: {it}"));
    looked.problems.extend(problems);
    if verified.problems_beyond_listed > 0 {
        let more = verified.problems_beyond_listed;
        looked.problems.push(format!("ledger: and {more} more"));
    }
    for audit in audits {
        let Some(store) = store else {
            looked.without.push(audit.number);
            continue;
        };
        match tree_of(audit, store) {
            Ok(tree) => {
                let unsound = store.verify(&tree);
                looked.problems.extend(unsound.iter().map(|found| {
                    let path = super::view::text(&found.path);
                    format!("audit {}: {path}: {}", audit.number, found.error)
                }));
                looked.proven += u64::from(unsound.is_empty());
            }
            Err(Unavailable::NothingPulled(_) | Unavailable::Evicted { .. }) => {
                looked.without.push(audit.number);
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(|why| format!(": {why}"));
                looked
                    .problems
                    .push(format!("{error}{}", cause.unwrap_or_default()));
            }
        }
    }
    Ok(looked)
}
