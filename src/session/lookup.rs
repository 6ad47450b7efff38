//! Finding a session by its name or the beginning of it.

use std::collections::BTreeSet;

use super::inside::session_directories;
use crate::config::Paths;
use crate::id::SessionId;
use crate::report::Failure;

/// At most this many names are suggested or listed for an ambiguous beginning.
const SUGGESTED_MAX: usize = 3;

/// The session that `text` names: a whole id, or a beginning, with or without `ses_`, that only one
/// has.
///
/// # Errors
/// When none or several have it; names the nearest.
pub fn find(text: &str, paths: &Paths) -> Result<SessionId, Failure> {
    let known: BTreeSet<SessionId> = session_directories(paths)
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    choose(text, &known, "labproxy session list")
}

/// The one of `known` that `text` names; `listing` is the command that shows them.
///
/// # Errors
/// When none or several have it; names the nearest.
pub fn choose(
    text: &str,
    known: &BTreeSet<SessionId>,
    listing: &str,
) -> Result<SessionId, Failure> {
    let full = if text.starts_with("ses_") {
        text.to_owned()
    } else {
        format!("ses_{text}")
    };
    let mut matching = known.iter().filter(|id| id.as_str().starts_with(&full));
    match (matching.next(), matching.next()) {
        (Some(one), None) if full.len() > "ses_".len() => Ok(one.clone()),
        (Some(_), _) => {
            let some = known.iter().filter(|id| id.as_str().starts_with(&full));
            let failure = Failure::usage(format!("several sessions begin with '{text}'"));
            Err(some
                .take(SUGGESTED_MAX)
                .fold(failure, |failure, id| failure.problem(id.to_string())))
        }
        (None, _) => {
            let failure = Failure::usage(format!("there is no session '{text}'"));
            Err(match nearest(&full, known) {
                Some(id) => failure.hint(format!("did you mean {id}?")),
                None => failure.hint(format!("'{listing}' shows them")),
            })
        }
    }
}

/// The known name that agrees with `text` in most places, when that is more than half of it.
fn nearest<'a>(text: &str, known: &'a BTreeSet<SessionId>) -> Option<&'a SessionId> {
    let random = |id: &str| id.strip_prefix("ses_").unwrap_or(id).to_owned();
    let wanted = random(text);
    let agreement = |id: &SessionId| {
        let places = random(id.as_str());
        places
            .bytes()
            .zip(wanted.bytes())
            .filter(|(one, other)| one == other)
            .count()
    };
    known
        .iter()
        .max_by_key(|id| agreement(id))
        .filter(|id| agreement(id) * 2 > wanted.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A beginning that one session has is enough; else the nearest are named.
    #[test]
    fn a_unique_beginning_is_enough() {
        let id = |letter: &str| {
            format!("ses_{}{}", letter, "a".repeat(26 - letter.len()))
                .parse::<SessionId>()
                .unwrap()
        };
        let known: BTreeSet<_> = [id("bcd"), id("bce"), id("xyz")].into();
        assert_eq!(
            choose("x", &known, "labproxy session list").unwrap(),
            id("xyz")
        );
        assert_eq!(
            choose("ses_bcd", &known, "labproxy session list").unwrap(),
            id("bcd")
        );
        let several = choose("bc", &known, "labproxy session list").unwrap_err();
        assert_eq!(several.problems().len(), 2);
        assert!(choose("", &known, "labproxy session list").is_err());
        assert!(choose("ses_", &known, "labproxy session list").is_err());
        let mistyped = choose("xyq", &known, "labproxy session list").unwrap_err();
        assert_eq!(mistyped.hints(), [format!("did you mean {}?", id("xyz"))]);
        let nothing = choose("222", &known, "labproxy session list").unwrap_err();
        assert!(nothing.hints()[0].contains("session list"));
    }
}
