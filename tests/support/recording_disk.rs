//! A disk that records what is written to it, or fails: `recording_disk.c`, loaded into a child process.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library with the C compiler that builds SQLite.
pub(crate) fn library(directory: &Path) -> PathBuf {
    let library = directory.join("disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/recording_disk.c");
    let flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-result"];
    let status = Command::new("cc")
        .args(flags)
        .arg("-o")
        .args([&library, &source])
        .args(["-lpthread", "-ldl"])
        .status()
        .expect("a C compiler, which SQLite needs as well");
    assert!(status.success());
    library
}

/// One recorded change; names are those in the directory, `.` is itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Write {
        file: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Resize {
        file: String,
        length: usize,
    },
    Sync {
        file: String,
    },
    Remove {
        file: String,
    },
    Rename {
        from: String,
        to: String,
    },
    /// The process told its parent something: whatever that depends on must be durable.
    Told(String),
}

/// Reads a `DISK_LOG`: op, length of the name, offset or length (8 bytes), length of the data (8
/// bytes), name, data.
pub(crate) fn read_log(path: &Path) -> Vec<Change> {
    let log = std::fs::read(path).unwrap();
    let mut rest = log.as_slice();
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap()) as usize;
        let (op, name_length, offset, length) = (rest[0], rest[1] as usize, number(2), number(10));
        let (name, data) = rest[18..].split_at(name_length);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let file = text(name);
        let (bytes, behind) = data.split_at(length);
        changes.push(match op {
            b'W' if file == "1" => Change::Told(text(bytes)),
            b'W' => Change::Write {
                file,
                offset,
                bytes: bytes.to_vec(),
            },
            b'T' => Change::Resize {
                file,
                length: offset,
            },
            b'S' => Change::Sync { file },
            b'U' => Change::Remove { file },
            b'R' => Change::Rename {
                from: file,
                to: text(bytes),
            },
            other => panic!("{other}"),
        });
        rest = behind;
    }
    changes
}

/// Whether a power cut may lose a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Until its directory is synced.
    NeedSync,
    /// Never: what makes the files sees to it before.
    #[allow(dead_code, reason = "not every test has such")]
    Stay,
}

/// The files of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    /// What the files hold after these changes.
    pub(crate) fn after(changes: &[Change]) -> Self {
        let mut files = Self::default();
        for change in changes {
            files.apply(change);
        }
        files
    }

    /// What the files may hold after these changes and a power cut: of what was not synced since,
    /// `choose` says what is missing.
    pub(crate) fn after_power_cut(
        changes: &[Change],
        kept: Names,
        choose: &mut dyn FnMut() -> bool,
    ) -> Self {
        let mut files = Self::default();
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        let synced = |name: &str, since: usize| {
            changes[since..]
                .iter()
                .any(|later| matches!(later, Change::Sync { file } if file == name))
        };
        for (at, change) in changes.iter().enumerate() {
            let may_be_missing = match change {
                Change::Write { file, .. } | Change::Resize { file, .. } => !synced(file, at),
                Change::Remove { .. } | Change::Rename { .. } => {
                    kept == Names::NeedSync && !synced(".", at)
                }
                Change::Sync { .. } | Change::Told(_) => false,
            };
            if may_be_missing && choose() {
                continue;
            }
            files.apply(change);
            match change {
                Change::Write { file, .. } => drop(named.entry(file.clone()).or_insert(at)),
                Change::Rename { to, .. } => drop(named.insert(to.clone(), at)),
                _ => {}
            }
        }
        for (file, at) in named {
            if kept == Names::NeedSync && !synced(".", at) && choose() {
                files.0.remove(&file);
            }
        }
        files
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write {
                file,
                offset,
                bytes,
            } => {
                let content = self.0.entry(file.clone()).or_default();
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Change::Resize { file, length } => {
                self.0.entry(file.clone()).or_default().resize(*length, 0);
            }
            Change::Remove { file } => drop(self.0.remove(file)),
            Change::Rename { from, to } => {
                let content = self.0.remove(from).unwrap_or_default();
                self.0.insert(to.clone(), content);
            }
            Change::Sync { .. } | Change::Told(_) => {}
        }
    }

    /// Writes them into a directory, which is made where it is not there.
    pub(crate) fn write_to(&self, directory: &Path) {
        let mut private = DirBuilder::new();
        let made = private.recursive(true).mode(0o700).create(directory);
        made.unwrap();
        for (name, content) in &self.0 {
            // The shared memory beside a log of SQLite is no part of the disk: it is made anew.
            if !name.ends_with("-shm") {
                std::fs::write(directory.join(name), content).unwrap();
            }
        }
    }
}
