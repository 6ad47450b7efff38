//! The real credential: where it comes from, and reading it again when the provider refuses it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::secret::{Credential, CredentialKind};

/// Where a credential comes from.
pub enum CredentialSource {
    /// Read once from the environment or a pipe; cannot be read again.
    Given(Credential),
    /// A file that only its owner can read.
    File {
        /// Its kind.
        kind: CredentialKind,
        /// The file.
        path: PathBuf,
    },
    /// A command that prints it.
    Command {
        /// Its kind.
        kind: CredentialKind,
        /// Program and arguments; run with cwd `/` and a built environment.
        argv: Vec<String>,
    },
    /// A worthless one, for an upstream that no credential was named for.
    Dummy,
}

/// Why there is no credential. Never holds the secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file is readable by others, missing, or holds no credential.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The command failed.
    #[error("the credential command '{program}' {what}")]
    Command {
        /// argv\[0\].
        program: String,
        /// Why.
        what: String,
    },
}

/// The credential of one proxy; single-flight re-reads with a minimum interval.
pub struct CredentialStore {
    source: CredentialSource,
    clock: SharedClock,
}

impl std::fmt::Debug for CredentialStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialStore")
    }
}

impl CredentialStore {
    /// Reads the credential for the first time.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn open(
        source: CredentialSource,
        clock: SharedClock,
    ) -> Result<Self, CredentialError> {
        Ok(Self { source, clock })
    }

    /// The credential now.
    pub fn current(&self) -> Arc<Credential> {
        let _ = (&self.source, &self.clock);
        todo!()
    }

    /// Reads it again after a 401, at most once per interval and once at a time; `None` when it did
    /// not change or cannot be read again.
    pub async fn refreshed(&self, refused: &Arc<Credential>) -> Option<Arc<Credential>> {
        let _ = refused;
        todo!()
    }
}
