//! The workspace that a user gives a session on a host, checked before anything is made.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::alone;
use crate::config::{Config, Paths};
use crate::escape::escape;
use crate::mirror::excludes::Frozen;
use crate::mirror::guard;
use crate::mirror::places::{self, What};
use crate::report::Failure;
use crate::tree::path::RelPath;

/// What a user says of the workspace.
#[derive(Debug, Default)]
pub struct Asked {
    /// The directory here.
    pub directory: PathBuf,
    /// Patterns of what stays here.
    pub excludes: Vec<String>,
    /// Files that look like secrets and go all the same.
    pub secrets: Vec<OsString>,
}

/// A workspace that was checked.
#[derive(Clone, Debug)]
pub struct PlannedWorkspace {
    /// The directory here, by its real path.
    pub local: PathBuf,
    /// Patterns of what stays here, of flags and of the configuration.
    pub excludes: Frozen,
    /// Files that look like secrets and go all the same.
    pub secrets: BTreeSet<RelPath>,
}

/// Checks the workspace. `files` are the shim and the receipt: an agent must write neither.
///
/// # Errors
/// When it is no directory, no root of a mirror, or another session's.
pub fn check(
    asked: &Asked,
    files: &[(What, PathBuf)],
    (paths, directory): (&Paths, &Path),
    config: &Config,
) -> Result<PlannedWorkspace, Failure> {
    let given = directory.join(&asked.directory);
    let shown = || escape(asked.directory.as_os_str().as_encoded_bytes());
    let local = places::resolve_root(&given).map_err(|error| Failure::usage(error.to_string()))?;
    match local.metadata() {
        Ok(about) if about.is_dir() => {}
        Ok(_) => {
            return Err(
                Failure::usage(format!("the workspace {} is no directory", shown()))
                    .hint("name the directory of the work"),
            );
        }
        Err(error) => {
            return Err(
                Failure::usage(format!("the workspace {} cannot be found", shown()))
                    .caused_by(&error),
            );
        }
    }
    let files: Vec<_> = files
        .iter()
        .map(|(what, path)| (*what, directory.join(path)))
        .collect();
    guard::judge(&local, (paths, directory), config, &files)?;
    alone::refuse_beside_another(&local, None, paths)?;
    Ok(PlannedWorkspace {
        local,
        excludes: Frozen {
            flags: asked.excludes.clone(),
            configured: config.mirror.patterns(),
            ..Frozen::default()
        },
        secrets: secret_paths(&asked.secrets)?,
    })
}

/// Paths of `--allow-secret`, as a refusal tells them.
///
/// # Errors
/// When one is no path in a tree.
pub fn secret_paths(given: &[OsString]) -> Result<BTreeSet<RelPath>, Failure> {
    let path = |path: &OsString| {
        RelPath::new(path.as_encoded_bytes()).map_err(|error| {
            let path = escape(path.as_encoded_bytes());
            Failure::usage(format!(
                "--allow-secret {path}: {error}; give a path in the tree"
            ))
        })
    };
    given.iter().map(path).collect()
}

/// The workspace of a session that goes on: the one that it began with.
///
/// # Errors
/// When another directory is given.
pub fn same(recorded: &Path, given: Option<&Path>, directory: &Path) -> Result<(), Failure> {
    let Some(given) = given else {
        return Ok(());
    };
    let real = places::resolve_root(&directory.join(given));
    if real.is_ok_and(|real| real == recorded) {
        return Ok(());
    }
    let shown = |path: &Path| escape(path.as_os_str().as_encoded_bytes());
    Err(Failure::usage(format!(
        "the session's workspace is {}, and it does not go on with {}",
        shown(recorded),
        shown(given)
    ))
    .hint("leave --workspace out, or begin anew with 'labproxy session start'"))
}
