//! Where labproxy keeps its state and its sockets, and the checks that nobody else does.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::Environment;
use crate::id::SessionId;
use crate::report::Failure;

/// Longest path of the directory of sockets, in bytes: a socket's path has at most 107, and
/// `/ses_…/proxy.sock` takes 42 of them.
const MAX_RUNTIME: usize = 64;

/// The directories of one user.
#[derive(Clone, Debug)]
pub struct Paths {
    home: Option<PathBuf>,
    config: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
}

/// Why a directory is not ours alone.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    /// It cannot be created, opened or looked at.
    #[error("it cannot be created or opened")]
    Io(#[from] io::Error),
    /// It is a link or no directory.
    #[error("it is a link, or not a directory")]
    NotADirectory,
    /// Somebody else owns it.
    #[error("it belongs to user {owner}, not to user {us}")]
    Foreign {
        /// The owner's number.
        owner: u32,
        /// Our number.
        us: u32,
    },
    /// Others may move it away: the directory that holds it is open to everybody.
    #[error("everybody may write in the directory that holds it (mode {mode:o})")]
    OpenParent {
        /// The holding directory's mode.
        mode: u32,
    },
    /// Others may write in it, so what is in it may be theirs.
    #[error("other users may write in it (mode {mode:o})")]
    Writable {
        /// Its mode.
        mode: u32,
    },
}

impl Paths {
    /// The directories that the environment names; creates nothing.
    ///
    /// # Errors
    /// When there is no home directory to put them in.
    pub fn of(environment: &Environment) -> Result<Self, Failure> {
        let absolute = |name: &str| {
            let path = PathBuf::from(environment.get(name)?);
            path.is_absolute().then_some(path)
        };
        let home = absolute("HOME").or_else(|| environment.account_home());
        let below_home = |name: &str, usual: &str| {
            absolute(name)
                .or_else(|| Some(home.as_ref()?.join(usual)))
                .map(|directory| directory.join("labproxy"))
                .ok_or_else(|| {
                    Failure::usage(format!("there is no home directory, and {name} is not set"))
                        .hint("set HOME to a directory of yours")
                })
        };
        Ok(Self {
            config: below_home("XDG_CONFIG_HOME", ".config")?,
            state: below_home("XDG_STATE_HOME", ".local/state")?,
            runtime: absolute("XDG_RUNTIME_DIR")
                .map(|directory| directory.join("labproxy"))
                .filter(|directory| directory.as_os_str().len() <= MAX_RUNTIME)
                .unwrap_or_else(own_in_tmp),
            home,
        })
    }

    /// The user's home directory.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The directory of the user's configuration.
    pub fn config(&self) -> &Path {
        &self.config
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
        prepare(&self.state, "state directory", "XDG_STATE_HOME")
    }

    /// Creates the directory of sockets and checks that it is ours alone.
    ///
    /// # Errors
    /// When it cannot be created or somebody else could change it.
    pub fn prepare_runtime(&self) -> Result<(), Failure> {
        prepare(&self.runtime, "directory of sockets", "XDG_RUNTIME_DIR")
    }
}

fn own_in_tmp() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/labproxy-{uid}"))
}

fn prepare(path: &Path, what: &str, variable: &str) -> Result<(), Failure> {
    private_dir(path).map_err(|error| {
        Failure::because(
            format!("the {what} {} cannot be used", path.display()),
            &error,
        )
        .hint(format!(
            "make it yours alone, or set {variable} to a directory that is"
        ))
    })
}

/// Creates a directory with mode 0700 where it is missing, and makes sure that it is ours alone.
///
/// One of ours that others can only read is closed to them; one that others could write in is
/// refused, since what is in it may be theirs.
///
/// # Errors
/// When it cannot be created, is a link, is somebody else's, or was open for writing.
pub fn private_dir(path: &Path) -> Result<(), PrivateDirError> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        let mode = std::fs::metadata(parent)?.mode() & 0o7777;
        // In a sticky directory such as /tmp only the owner moves a directory.
        if mode & 0o1002 == 0o002 {
            return Err(PrivateDirError::OpenParent { mode });
        }
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => PrivateDirError::NotADirectory,
        error => PrivateDirError::Io(error.into()),
    })?;
    let directory = File::from(opened);
    let about = directory.metadata()?;
    let (owner, us) = (about.uid(), rustix::process::geteuid().as_raw());
    if owner != us {
        return Err(PrivateDirError::Foreign { owner, us });
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(PrivateDirError::Writable { mode });
    }
    if mode & 0o077 != 0 {
        directory.set_permissions(PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A missing directory is made for us alone, and one that others could read is closed.
    #[test]
    fn a_private_directory_is_made_and_closed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        private_dir(&path).unwrap();
        assert_eq!(mode_of(&path), 0o700);
        chmod(&path, 0o755);
        private_dir(&path).unwrap();
        assert_eq!(mode_of(&path), 0o700);
    }

    /// A link, a file, and a directory that others may write in are refused as they are.
    #[test]
    fn what_others_could_have_filled_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("real");
        private_dir(&real).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(matches!(
            private_dir(&link),
            Err(PrivateDirError::NotADirectory)
        ));
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(
            private_dir(&file),
            Err(PrivateDirError::NotADirectory)
        ));
        chmod(&real, 0o777);
        assert!(matches!(
            private_dir(&real),
            Err(PrivateDirError::Writable { mode: 0o777 })
        ));
        assert_eq!(mode_of(&real), 0o777);
    }

    /// A directory that everybody may move away is refused, one under a sticky directory is not.
    #[test]
    fn what_others_could_move_away_is_refused() {
        let root = tempfile::tempdir().unwrap();
        chmod(root.path(), 0o777);
        let path = root.path().join("a");
        assert!(matches!(
            private_dir(&path),
            Err(PrivateDirError::OpenParent { mode: 0o777 })
        ));
        chmod(root.path(), 0o1777);
        private_dir(&path).unwrap();
    }

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).into());
        Environment::Fixed(variables.iter().map(owned).collect())
    }

    /// The base directories are followed where they are absolute; a socket directory that is too
    /// long for a socket's path gives way to one of ours under /tmp.
    #[test]
    fn directories_follow_the_environment() {
        let paths = Paths::of(&environment(&[
            ("HOME", "/home/u"),
            ("XDG_STATE_HOME", "/state"),
            ("XDG_CONFIG_HOME", "relative"),
            ("XDG_RUNTIME_DIR", "/run/user/7"),
        ]))
        .unwrap();
        assert_eq!(paths.ledger(), Path::new("/state/labproxy/ledger.sqlite3"));
        assert_eq!(
            paths.user_config(),
            Path::new("/home/u/.config/labproxy/config.toml")
        );
        assert_eq!(paths.runtime(), Path::new("/run/user/7/labproxy"));
        let long = format!("/{}", "x".repeat(60));
        let paths = Paths::of(&environment(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", &long)]));
        assert_eq!(paths.unwrap().runtime(), own_in_tmp());
        assert!(Paths::of(&environment(&[])).is_err());
    }
}
