//! Where labproxy keeps its state and its sockets.

use std::path::{Path, PathBuf};

use super::Environment;
use crate::id::SessionId;
use crate::report::Failure;

/// The directories of one user.
#[derive(Clone, Debug)]
pub struct Paths {
    config: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
}

impl Paths {
    /// The directories that the environment names; creates nothing.
    ///
    /// # Errors
    /// When there is no home directory to put them in.
    pub fn of(environment: &Environment) -> Result<Self, Failure> {
        let _ = environment;
        todo!()
    }

    /// The user's configuration file.
    pub fn user_config(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The state directory; [`Paths::prepare_state`] creates it.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The ledger.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger.sqlite3")
    }

    /// The ledger's high-water file.
    pub fn anchor(&self) -> PathBuf {
        self.state.join("ledger.anchor")
    }

    /// The hashes of the files that the user trusts.
    pub fn trusted(&self) -> PathBuf {
        self.state.join("trusted")
    }

    /// The directory of all sessions.
    pub fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }

    /// The directory of one session.
    pub fn session(&self, id: &SessionId) -> PathBuf {
        self.sessions().join(id.as_str())
    }

    /// The directory of sockets; [`Paths::prepare_runtime`] creates it.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Creates the state directory and checks that it is ours alone (owner, 0700, no link).
    ///
    /// # Errors
    /// When it cannot be created or somebody else could change it.
    pub fn prepare_state(&self) -> Result<(), Failure> {
        todo!()
    }

    /// Creates the directory of sockets and checks that it is ours alone.
    ///
    /// # Errors
    /// When it cannot be created or somebody else could change it.
    pub fn prepare_runtime(&self) -> Result<(), Failure> {
        todo!()
    }
}
