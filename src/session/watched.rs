//! Files that a session has read once: their later change does not reach it, and it says so.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::config::{Config, Paths, load};
use crate::plain_file::{self, Links};

/// More than any configuration or price file has; what is longer has changed.
const FILE_BYTES_MAX: u64 = 16 << 20;

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

/// The digest of a file, as far as one that was read can be long. The agent may have put anything in
/// its place, so nothing is waited for and nothing is read without an end.
fn digest(path: &Path) -> Option<blake3::Hash> {
    let (file, _) = plain_file::open(path, Links::Follow).ok()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file.take(FILE_BYTES_MAX)).ok()?;
    Some(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    /// A file that became a pipe or an endless device has changed, and ends no command's end.
    #[test]
    fn what_an_agent_puts_in_place_of_a_file_is_only_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("labproxy.toml");
        std::fs::write(&path, "").unwrap();
        let watched = WatchedFiles {
            files: vec![(path.clone(), digest(&path))],
        };
        assert!(watched.changed().is_empty());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(watched.changed(), std::slice::from_ref(&path));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(watched.changed(), [path]);
    }
}
