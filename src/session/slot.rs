//! A session's place: its name, directory and lock, and what an earlier run left.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::owner::{OwnerError, OwnerLock};
use super::start::Plan;
use crate::config::Paths;
use crate::id::SessionId;
use crate::ledger::Entry;
use crate::money::PicoUsd;
use crate::report::Failure;

/// A session that nobody else owns, before it is made live.
#[derive(Debug)]
pub struct Slot {
    /// Its name.
    pub session: SessionId,
    /// Its directory.
    pub directory: PathBuf,
    /// Its lock.
    pub lock: OwnerLock,
    /// What an earlier run left, when this one goes on with it.
    pub resumed: Option<Resumed>,
}

/// The money of a session that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Its cap.
    pub cap: PicoUsd,
    /// Charged so far, kept holds included.
    pub settled: PicoUsd,
}

impl Slot {
    /// A new session with a directory of its own.
    ///
    /// # Errors
    /// When the directory or its lock cannot be made.
    pub fn fresh(session: SessionId, paths: &Paths) -> Result<Self, Failure> {
        let directory = prepare_directory(&session, paths)?;
        let lock = OwnerLock::take(&directory)
            .map_err(|error| Failure::because("the new session cannot be locked", &error))?;
        Ok(Self {
            session,
            directory,
            lock,
            resumed: None,
        })
    }

    /// Its log, for the messages of this run and of later ones.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open_log(&self) -> Result<fs::File, Failure> {
        let path = self.directory.join("log");
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| {
                Failure::because(format!("the log {} cannot be made", path.display()), &error)
            })
    }

    /// Where its sockets are.
    pub fn sockets(&self, paths: &Paths) -> PathBuf {
        sockets_of(&self.session, paths)
    }

    /// Forgets a session that never began. A resumed one is left as it was.
    pub fn abandon(self, paths: &Paths) {
        let _gone = fs::remove_dir_all(self.sockets(paths));
        if self.resumed.is_none() {
            let _gone = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Makes the directory of a session.
///
/// # Errors
/// When it cannot be made.
pub fn prepare_directory(session: &SessionId, paths: &Paths) -> Result<PathBuf, Failure> {
    let directory = paths.session(session);
    make_private(&directory)?;
    Ok(directory)
}

/// Where the sockets of a session are.
pub fn sockets_of(session: &SessionId, paths: &Paths) -> PathBuf {
    paths.runtime().join(session.as_str())
}

/// Removes the sockets of sessions whose owners were killed; nothing listens on them. Those of a living
/// owner stay.
pub fn clear_dead_sockets(paths: &Paths) {
    let Ok(entries) = fs::read_dir(paths.runtime()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(Ok(session)) = name.to_str().map(str::parse::<SessionId>) else {
            continue;
        };
        // Held while they are removed, so that nobody goes on with the session meanwhile.
        let lock = OwnerLock::take(&paths.session(&session));
        if matches!(lock, Ok(_) | Err(OwnerError::Missing)) {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a directory and what is above it, for this user only.
pub(super) fn make_private(directory: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| {
            Failure::because(
                format!("the directory {} cannot be made", directory.display()),
                &error,
            )
        })
}

/// The entry that opens a session.
pub(super) fn opened_entry(slot: &Slot, cap: PicoUsd, plan: &Plan) -> Entry {
    let argv0 = plan
        .agent
        .as_ref()
        .map(|agent| agent.command.argv0().to_string_lossy().into_owned());
    Entry::Opened {
        cap,
        on_cap: plan.config.session.on_cap.value,
        pricing_digest: plan.book.digest().0.clone(),
        argv0,
        host: plan.host.as_ref().map(|host| host.name.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        resumed: slot.resumed.is_some(),
    }
}
