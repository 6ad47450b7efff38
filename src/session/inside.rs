//! Whether this command runs inside a session: then it may not control any, nor widen what is trusted.
//!
//! A fence, not a wall: `docs/threats.md` says what it does not stop.

use std::fs;
use std::path::PathBuf;

use super::owner::{Ownership, ownership};
use super::processes::ProcessStamp;
use crate::config::Paths;
use crate::report::Failure;

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

/// Refuses when one of this process's ancestors owns a session.
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
    Ok(())
}
