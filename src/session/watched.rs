//! Files that a session has read once: their later change does not reach it, and it says so.

use std::fs;
use std::path::PathBuf;

use crate::config::{Config, Paths, load};

/// Digests of the configuration and price files as they were at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedFiles {
    files: Vec<(PathBuf, Option<blake3::Hash>)>,
}

impl WatchedFiles {
    /// The files that `config` was read from, and those that would have been. `given` is what
    /// `--config` names: it is read in place of the working directory's file.
    pub fn of(config: &Config, paths: &Paths, given: Option<PathBuf>) -> Self {
        let price_file = config.pricing.file.as_ref().map(|file| file.value.clone());
        let files = [
            paths.user_config(),
            given.unwrap_or_else(|| load::WORKING_FILE.into()),
        ]
        .into_iter()
        .chain(price_file)
        .map(|path| {
            // The agent, or what follows it, may run elsewhere.
            let path = std::path::absolute(&path).unwrap_or(path);
            let digest = digest(&path);
            (path, digest)
        })
        .collect();
        Self { files }
    }

    /// Those that are not what they were.
    pub fn changed(&self) -> Vec<PathBuf> {
        self.files
            .iter()
            .filter(|(path, before)| digest(path) != *before)
            .map(|(path, _)| path.clone())
            .collect()
    }
}

fn digest(path: &PathBuf) -> Option<blake3::Hash> {
    fs::read(path).ok().map(|bytes| blake3::hash(&bytes))
}
