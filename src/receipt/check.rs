//! Checking a receipt against the ledger it was folded from.

use super::Receipt;
use crate::ledger::{LedgerError, Problem, Reader};

/// Checks a receipt against the ledger; what is wrong with it, or nothing.
///
/// # Errors
/// When the ledger cannot be read.
pub fn check(reader: &Reader, receipt: &Receipt) -> Result<Vec<Problem>, LedgerError> {
    let problem = |what: String| {
        Ok(vec![Problem {
            seq: Some(receipt.ledger.seq),
            what,
        }])
    };
    match reader.hash_at(receipt.ledger.seq)? {
        Some(hash) if hash == receipt.ledger.hash => {}
        Some(_) => {
            return problem(
                "the receipt names another hash: it was forged, or the ledger was replaced".into(),
            );
        }
        None => {
            return problem("the receipt names an entry that the ledger does not have".into());
        }
    }
    let mut entries = match reader.session(&receipt.session) {
        Err(LedgerError::NoSuchSession { .. }) => Vec::new(),
        other => other?,
    };
    entries.retain(|recorded| recorded.head.seq <= receipt.ledger.seq);
    let Some(expected) = Receipt::fold(&receipt.session, &entries) else {
        return problem("the receipt names a session that had no entries then".into());
    };
    Ok(differences(&expected, receipt))
}

/// Each top-level field of the receipt that the ledger contradicts.
fn differences(expected: &Receipt, receipt: &Receipt) -> Vec<Problem> {
    let as_object = |receipt: &Receipt| match serde_json::to_value(receipt) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    };
    let (expected, found) = (as_object(expected), as_object(receipt));
    expected
        .iter()
        .filter(|(name, value)| found.get(*name) != Some(value))
        .map(|(name, value)| {
            let what = match (value.is_array(), found.get(name)) {
                (false, Some(other)) => {
                    format!("the receipt says {name} is {other}, and the ledger says {value}")
                }
                _ => format!("the receipt's {name} are not those of the ledger"),
            };
            Problem { seq: None, what }
        })
        .collect()
}
