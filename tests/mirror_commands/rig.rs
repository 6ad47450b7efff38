//! A user with directories of their own, and the program run as that user.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Itself, when it ended with this status.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Its output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).expect(&self.stdout)
    }
}

/// A user with a home, and two directories to mirror: `local`, which is there, and `far`, which is
/// not yet.
pub(crate) struct Rig {
    root: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["home/.config/labproxy", "run", "work", "local"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        Self { root }
    }

    /// A path of the user's.
    pub(crate) fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(inside)
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, inside: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path(inside);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, inside: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.path(inside)).unwrap()
    }

    pub(crate) fn has(&self, inside: impl AsRef<Path>) -> bool {
        self.path(inside).symlink_metadata().is_ok()
    }

    /// The program with the user's environment and nothing else, in `work`.
    pub(crate) fn command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(words)
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
        Ran::of(&self.command(words).output().unwrap())
    }

    /// `mirror WHAT local far MORE…`, with spaces between the words of WHAT and of MORE.
    pub(crate) fn mirror(&self, what: &str, more: &str) -> Ran {
        let (local, far) = (self.path("local"), self.path("far"));
        let mut words = vec![OsStr::new("mirror")];
        words.extend(what.split_whitespace().map(OsStr::new));
        words.extend([local.as_os_str(), far.as_os_str()]);
        words.extend(more.split_whitespace().map(OsStr::new));
        self.run(words)
    }

    #[track_caller]
    pub(crate) fn push(&self, more: &str) -> Ran {
        self.mirror("push", more).expect(0)
    }

    #[track_caller]
    pub(crate) fn pull(&self, more: &str) -> Ran {
        self.mirror("pull", more).expect(0)
    }
}
