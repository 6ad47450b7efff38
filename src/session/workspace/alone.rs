//! One directory is the workspace of one session that lives: two agents' work in one directory would
//! be each other's edits.

use std::fs::File;
use std::path::Path;

use super::record::RecordFile;
use crate::config::Paths;
use crate::escape::escape;
use crate::id::SessionId;
use crate::mirror::durable;
use crate::report::Failure;
use crate::session::inside::session_directories;
use crate::session::owner::{Ownership, ownership};

/// Refuses a directory that is, holds or lies in the workspace of a living session other than `own`.
///
/// # Errors
/// Which session it is.
pub fn refuse_beside_another(
    root: &Path,
    own: Option<&SessionId>,
    paths: &Paths,
) -> Result<(), Failure> {
    for directory in session_directories(paths) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        if own.is_some_and(|own| own.as_str() == name)
            || !matches!(ownership(&directory), Ok(Ownership::Held(_)))
        {
            continue;
        }
        // A record that cannot be read names no directory; its own session will say so.
        let Ok(Some(file)) = RecordFile::read(&directory) else {
            continue;
        };
        let taken = file.record.local();
        let how = if taken == root {
            "is"
        } else if root.starts_with(&taken) {
            "lies in"
        } else if taken.starts_with(root) {
            "contains"
        } else {
            continue;
        };
        let shown = |path: &Path| escape(path.as_os_str().as_encoded_bytes());
        let taken = if taken == root {
            String::new()
        } else {
            format!(" {}", shown(&taken))
        };
        return Err(Failure::usage(format!(
            "{} {how} the workspace{taken} of session {name}, which runs",
            shown(root)
        ))
        .hint(format!(
            "'labproxy session stop {name}' ends it; 'labproxy mirror pull --session {name}' brings its \
             work here meanwhile"
        )));
    }
    Ok(())
}

/// Held while a session looks for others and writes down its own directory: of two that begin at once,
/// one sees the other.
///
/// # Errors
/// When the lock's file cannot be made.
pub(super) fn choosing(paths: &Paths) -> Result<File, Failure> {
    let path = paths.state().join("workspaces.lock");
    durable::lock_file(&path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| Failure::because(format!("{} cannot be locked", path.display()), &error))
}
