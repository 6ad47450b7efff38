//! A session that goes on: the same name, cap and ledger account, everything else new.

use std::path::{Path, PathBuf};

use super::remote::confirm;
use super::remote::record::RecordFile;
use super::slot::{Resumed, Slot};
use super::workspace::record::RecordFile as WorkspaceFile;
use super::{books, changes, workspace};
use crate::config::{Environment, Paths};
use crate::escape::escape;
use crate::id::SessionId;
use crate::ledger::{Entry, Ledger};
use crate::report::{self, Failure};
use crate::usage::CloseReason;

/// Why a session may not simply go on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClosedForCause {
    /// It was closed and nobody has acknowledged that.
    Unacknowledged(CloseReason),
    /// An overrun, acknowledged without a top-up.
    WithoutTopUp(CloseReason),
}

/// Takes over a session that nobody owns, after ending what is left of it.
///
/// # Errors
/// When somebody owns it, when it was closed for cause and not reopened, or when the ledger fails.
pub fn take_over(
    session: SessionId,
    reopen: bool,
    paths: &Paths,
    environment: &Environment,
    ledger: &Ledger,
) -> Result<Slot, Failure> {
    let lock = changes::take_lock(&session, paths)?;
    changes::settle_remains(&session, paths, ledger, &lock)?;
    // An agent that still works on the host ends before its successor begins.
    confirm::end_remains(&session, paths, environment)?;
    let entries = books::entries(&paths.ledger(), &session)?;
    if let Some(cause) = closed_for_cause(entries.iter().map(|recorded| &recorded.entry), reopen) {
        return Err(refuse(&session, &cause));
    }
    let receipt = books::receipt(&paths.ledger(), &session)?;
    Ok(Slot {
        directory: paths.session(&session),
        session,
        lock,
        resumed: Some(Resumed {
            cap: receipt.cap_pico_usd,
            settled: receipt.spent_pico_usd,
        }),
    })
}

/// The host that a session goes on with: its files are there. Without one it goes on as it is told to.
///
/// # Errors
/// When another one is given, or the session's record cannot be read.
pub fn host(
    session: &SessionId,
    given: Option<String>,
    paths: &Paths,
) -> Result<Option<String>, Failure> {
    let Some(RecordFile { record, .. }) = RecordFile::read(&paths.session(session))? else {
        return Ok(given);
    };
    let host = record.name;
    let shown = escape(&host);
    match given {
        None => report::tell(&format!("labproxy: on {shown}, as before\n")),
        Some(given) if given == host => {}
        Some(given) => {
            let given = escape(&given);
            return Err(Failure::usage(format!(
                "session {session} has its files on {shown}, and does not go on on {given}"
            ))
            .hint(format!(
                "leave --host out to go on on {shown}, or begin anew with 'labproxy session start \
                 --host {given}'"
            )));
        }
    }
    Ok(Some(host))
}

/// The directory here that a session goes on with: the one that it began with. Without one it goes on as
/// it is told to.
///
/// # Errors
/// When another one is given, or other excludes, or the session's record cannot be read.
pub fn workspace(
    session: &SessionId,
    (given, excludes): (Option<PathBuf>, &[String]),
    directory: &Path,
    paths: &Paths,
) -> Result<Option<PathBuf>, Failure> {
    let Some(file) = WorkspaceFile::read(&paths.session(session))? else {
        return Ok(given);
    };
    if !excludes.is_empty() {
        return Err(
            Failure::usage("--exclude has no effect on a session that goes on")
                .hint("leave it out: what stays here was fixed when the session began"),
        );
    }
    let local = file.record.local();
    workspace::plan::same(&local, given.as_deref(), directory)?;
    Ok(Some(local))
}

/// What stands against going on, from a session's entries in order. A session that was opened again
/// after a close had that close acknowledged.
fn closed_for_cause<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    reopen: bool,
) -> Option<ClosedForCause> {
    let mut closed: Option<(CloseReason, bool)> = None;
    for entry in entries {
        match entry {
            Entry::Closed { reason } if *reason != CloseReason::Ending => {
                closed = Some((reason.clone(), false));
            }
            Entry::Opened { .. } => closed = None,
            Entry::ToppedUp { .. } => {
                if let Some((_, topped_up)) = &mut closed {
                    *topped_up = true;
                }
            }
            _ => {}
        }
    }
    let (reason, topped_up) = closed?;
    let overrun = matches!(reason, CloseReason::Overrun(_));
    match (reopen, overrun && !topped_up) {
        (false, _) => Some(ClosedForCause::Unacknowledged(reason)),
        (true, true) => Some(ClosedForCause::WithoutTopUp(reason)),
        (true, false) => None,
    }
}

fn refuse(session: &SessionId, cause: &ClosedForCause) -> Failure {
    match cause {
        ClosedForCause::Unacknowledged(reason) => Failure::usage(format!(
            "session {session} was closed for cause: {}",
            cause_text(reason)
        ))
        .hint("look at 'labproxy session show', then resume with --reopen"),
        ClosedForCause::WithoutTopUp(reason) => Failure::usage(format!(
            "session {session} was closed by an overrun: {}",
            cause_text(reason)
        ))
        .hint(format!(
            "acknowledge it with 'labproxy session topup {session} USD', then resume with --reopen"
        )),
    }
}

fn cause_text(reason: &CloseReason) -> String {
    match reason {
        CloseReason::Overrun(what) => format!("a charge was above its hold ({what})"),
        CloseReason::UnpricedServedModel(model) => {
            format!("a response was served by '{model}', which has no price")
        }
        CloseReason::UnknownCounter(what) => {
            format!("a response counted something unknown ({what})")
        }
        CloseReason::ServedFast => "a response was served fast".to_owned(),
        CloseReason::LedgerFailed(what) => format!("the ledger failed ({what})"),
        CloseReason::Ending => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap::OnCap;
    use crate::money::PicoUsd;

    fn opened() -> Entry {
        Entry::Opened {
            cap: PicoUsd::ZERO,
            on_cap: OnCap::Clamp,
            pricing_digest: String::new(),
            argv0: None,
            host: None,
            version: String::new(),
            resumed: false,
        }
    }

    fn closed(reason: CloseReason) -> Entry {
        Entry::Closed { reason }
    }

    /// A close for cause needs an acknowledgement, an overrun a top-up as well, and only once.
    #[test]
    fn t27_a_session_closed_for_cause_is_not_simply_resumed() {
        let overrun = CloseReason::Overrun("req_x".to_owned());
        let topped_up = Entry::ToppedUp {
            by: PicoUsd::ZERO,
            cap: PicoUsd::ZERO,
        };
        let judged = |entries: &[Entry], reopen| closed_for_cause(entries.iter(), reopen);
        let ended = [opened(), closed(CloseReason::Ending)];
        assert_eq!(judged(&ended, false), None);
        let over = [opened(), topped_up.clone(), closed(overrun.clone())];
        assert_eq!(
            judged(&over, false),
            Some(ClosedForCause::Unacknowledged(overrun.clone()))
        );
        assert_eq!(
            judged(&over, true),
            Some(ClosedForCause::WithoutTopUp(overrun.clone()))
        );
        let raised = [opened(), closed(overrun.clone()), topped_up.clone()];
        assert_eq!(
            judged(&raised, false),
            Some(ClosedForCause::Unacknowledged(overrun.clone()))
        );
        assert_eq!(judged(&raised, true), None);
        let again = [opened(), closed(overrun), topped_up, opened()];
        assert_eq!(judged(&again, false), None);
        let fast = [opened(), closed(CloseReason::ServedFast)];
        assert_eq!(judged(&fast, true), None);
    }
}
