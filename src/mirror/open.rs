//! Opening a mirror by its two ends: where its state is, and whether both ends are what they were.

use std::path::{Path, PathBuf};

use super::agreed::Agreed;
use super::durable;
use super::error::MirrorError;
use super::excludes::{Excludes, Frozen};
use super::far::Far;
use super::ignore_files;
use super::journal::Journal;
use super::pair::{LANDING, Local, Pair};
use super::pushing::Pushing;
use super::state::{MirrorDirectory, MirrorState, StateError, random_mirror_id};
use super::stop::Stop;
use crate::tree::limits::Limits;

/// Hexadecimal digits of the hash that names a mirror's directory.
const NAME_DIGITS: usize = 32;

/// Where the state of a mirror of these two ends is, below the user's state directory. Both paths
/// are real ones, so that two ways of writing one directory are one mirror.
pub fn place_of(state: &Path, local: &Path, far: &Far) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    let far: (&[u8], &[u8]) = match far {
        Far::Here(path) => (b"", path.as_os_str().as_encoded_bytes()),
        Far::Host { host, path } => (host.as_bytes(), path.as_bytes()),
    };
    for part in [local.as_os_str().as_encoded_bytes(), far.0, far.1] {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        hasher.update(&length.to_le_bytes());
        hasher.update(part);
    }
    let name = hasher.finalize().to_hex();
    let name: String = name.chars().take(NAME_DIGITS).collect();
    state.join("mirrors").join(name)
}

impl Pair {
    /// Opens the mirror whose state is in `place`, and makes the state when there is none. The
    /// local root exists. Until both ends have agreed on something the excludes are the ones given
    /// here, with those of the local tree; from then on they are fixed.
    ///
    /// # Errors
    /// When another process works with it, or another directory stands where its local root was. Before
    /// anything was mirrored any directory may be its local root.
    pub fn open(
        place: &Path,
        local: &Local,
        far: &Far,
        excludes: Frozen,
        limits: Limits,
    ) -> Result<Self, MirrorError> {
        let root = local.root()?;
        let directory = MirrorDirectory::take(place)?;
        let agreed = Agreed::read(directory.path(), &limits)?;
        let excludes = match &agreed {
            Some(_) => Frozen::default(),
            None => ignore_files::added(root, excludes)?,
        };
        let identity = root.identity();
        let state = match directory.state()? {
            Some(state) if state.identity != identity && has_begun(&directory, agreed.as_ref()) => {
                return Err(MirrorError::LocalReplaced);
            }
            Some(state)
                if agreed.is_some()
                    || (state.identity == identity && state.excludes == excludes) =>
            {
                state
            }
            // Nothing was ever mirrored by the excludes before, nor with the directory before, which
            // may be one that a pull made and took back.
            Some(state) => {
                let state = MirrorState {
                    identity,
                    excludes,
                    ..state
                };
                directory.save(&state)?;
                state
            }
            None => {
                let state = MirrorState {
                    mirror: random_mirror_id()?,
                    local: local.path.clone(),
                    identity,
                    remote: far.to_string().into(),
                    excludes,
                };
                directory.save(&state)?;
                state
            }
        };
        // What a killed run left; the lock says that nobody uses it.
        durable::remove_directory(&directory.path().join(LANDING)).map_err(|source| {
            StateError::Io {
                what: "removed",
                path: directory.path().join(LANDING),
                source,
            }
        })?;
        Ok(Self {
            store: directory.store(state.mirror, limits)?,
            agreed,
            excludes: Excludes::new(&state.excludes)?,
            directory,
            state,
            limits,
            stop: Stop::default(),
        })
    }
}

/// Whether the local directory, or the other end by it, was ever changed, or both agreed as they were.
fn has_begun(directory: &MirrorDirectory, agreed: Option<&Agreed>) -> bool {
    let path = directory.path();
    agreed.is_some() || Journal::is_there(path) || Pushing::is_there(path)
}

impl Local {
    /// Opens the local root, or makes it where nothing stands: for a pull, whose destination may be
    /// absent. Says whether it was made.
    ///
    /// # Errors
    /// When something else stands there, or it cannot be made.
    pub fn open_or_make(path: &Path) -> Result<(Self, bool), MirrorError> {
        let mut local = Self::open(path)?;
        let made = local.root.is_none();
        if made {
            local.make()?;
        }
        Ok((local, made))
    }

    /// Takes back that it was made, as long as nothing is in it.
    pub fn unmake(&self) {
        // Something is in it: then it stays.
        let _stays = std::fs::remove_dir(&self.path);
    }
}
