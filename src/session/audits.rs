//! The audits of a session as the ledger has them.

use std::path::Path;

use crate::id::SessionId;
use crate::ledger::{Audit, Entry, LedgerError, Reader};
use crate::report::Failure;

/// Every audit of a session, oldest first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn of_session(path: &Path, session: &SessionId) -> Result<Vec<Audit>, Failure> {
    let entries = match Reader::open(path).and_then(|reader| reader.session(session)) {
        Err(LedgerError::NoSuchSession { .. }) => return Ok(Vec::new()),
        entries => {
            entries.map_err(|error| Failure::because("the ledger cannot be read", &error))?
        }
    };
    let audits = entries
        .into_iter()
        .filter_map(|recorded| match recorded.entry {
            Entry::Audited { audit } => Some(*audit),
            _ => None,
        });
    Ok(audits.collect())
}

/// The audit of a number.
///
/// # Errors
/// When there is none.
pub fn find(audits: Vec<Audit>, number: u64) -> Result<Audit, Failure> {
    let last = audits.last().map_or(0, |audit| audit.number);
    let found = audits.into_iter().find(|audit| audit.number == number);
    found.ok_or_else(|| {
        let failure = Failure::usage(format!("there is no audit {number} of this session"));
        match last {
            0 => failure.hint("it has none yet: labproxy audit run -- TOOL"),
            last => failure.hint(format!("its last one is {last}; see labproxy audit list")),
        }
    })
}
