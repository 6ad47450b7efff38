//! Whether this command runs inside a session: then it may not control any, nor widen what is trusted.
//!
//! A fence, not a wall: `docs/threats.md` says what it does not stop.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use super::owner::{Ownership, ownership};
use super::processes::ProcessStamp;
use crate::config::Paths;
use crate::plain_file::{self, Links};
use crate::report::Failure;

/// Longest text of an audit's lock, bytes: two numbers with their names.
const LOCK_MAX: u64 = 1_024;

/// Every session directory, in no particular order.
pub fn session_directories(paths: &Paths) -> Vec<PathBuf> {
    fs::read_dir(paths.sessions())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.parse::<crate::id::SessionId>().is_ok())
        })
        .collect()
}

/// The file of an audit's place in which the process stands that makes it.
pub const AUDIT_LOCK: &str = "lock";

/// Where the audits of sessions are made, each in a directory of its session's name.
pub fn audits(paths: &Paths) -> PathBuf {
    paths.state().join("audits")
}

/// The audit whose process is one of these, living ones all of them.
fn audit_of(paths: &Paths, ancestors: &[ProcessStamp]) -> Option<String> {
    let places = fs::read_dir(audits(paths)).into_iter().flatten().flatten();
    let mut ours = places.filter(|place| {
        let mut text = String::new();
        let file = plain_file::open(&place.path().join(AUDIT_LOCK), Links::Refuse);
        let read = file.map(|(file, _)| file.take(LOCK_MAX).read_to_string(&mut text));
        let stamp = serde_json::from_str::<ProcessStamp>(&text);
        matches!(read, Ok(Ok(_))) && stamp.is_ok_and(|stamp| ancestors.contains(&stamp))
    });
    ours.next()
        .map(|place| place.file_name().to_string_lossy().into_owned())
}

/// Refuses when one of this process's ancestors owns a session, or makes an audit.
///
/// # Errors
/// Which session it is.
pub fn refuse_from_inside(paths: &Paths) -> Result<(), Failure> {
    let ancestors = ProcessStamp::current().ancestors();
    for directory in session_directories(paths) {
        let Ok(Ownership::Held(Some(owner))) = ownership(&directory) else {
            continue;
        };
        if ancestors.contains(&owner.process) {
            let session = directory.file_name().unwrap_or_default().to_string_lossy();
            tracing::warn!(%session, "a command from inside the session was refused");
            return Err(Failure::usage(format!(
                "this command runs inside session {session}; from inside one, no session is controlled \
                 and nothing that labproxy trusts is changed"
            ))
            .hint("use another terminal"));
        }
    }
    if let Some(session) = audit_of(paths, &ancestors) {
        tracing::warn!(%session, "a command from inside an audit was refused");
        return Err(Failure::usage(format!(
            "this command runs inside an audit of session {session}; a tool controls no session and \
             changes nothing that labproxy trusts"
        )));
    }
    Ok(())
}
