//! A disk that records what is written to it, or fails: `disk.c`, loaded into a child process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::Numbers;

/// Builds the library with the C compiler that built SQLite.
pub(crate) fn library(directory: &Path) -> PathBuf {
    let library = directory.join("disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ledger/disk.c");
    let status = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wno-unused-result",
            "-o",
        ])
        .arg(&library)
        .arg(&source)
        .args(["-lpthread", "-ldl"])
        .status()
        .expect("a C compiler, which SQLite needs as well");
    assert!(status.success());
    library
}

/// One recorded change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These bytes were written there.
    Write {
        file: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// The file got this length.
    Resize { file: String, length: usize },
    /// What was written to the file before is on the disk.
    Sync { file: String },
    /// The file was removed.
    Remove { file: String },
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
        let file = String::from_utf8(name.to_vec()).unwrap();
        let length = if op == b'W' { length } else { 0 };
        let bytes = data[..length].to_vec();
        changes.push(match op {
            b'W' if file == "1" => Change::Told(String::from_utf8(bytes).unwrap()),
            b'W' => Change::Write {
                file,
                offset,
                bytes,
            },
            b'T' => Change::Resize {
                file,
                length: offset,
            },
            b'S' => Change::Sync { file },
            b'U' => Change::Remove { file },
            other => panic!("{other}"),
        });
        rest = &data[length..];
    }
    changes
}

/// The files of a disk.
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

    /// What the files may hold after these changes and a power cut: of the writes since a file was
    /// last synced, any may be missing.
    pub(crate) fn after_power_cut(changes: &[Change], numbers: &mut Numbers) -> Self {
        let mut files = Self::default();
        for (at, change) in changes.iter().enumerate() {
            let is_synced = |file: &str| {
                changes[at..]
                    .iter()
                    .any(|later| matches!(later, Change::Sync { file: synced } if synced == file))
            };
            let may_be_missing = match change {
                Change::Write { file, .. } | Change::Resize { file, .. } => !is_synced(file),
                _ => false,
            };
            if !may_be_missing || numbers.below(2) == 0 {
                files.apply(change);
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
            Change::Sync { .. } | Change::Told(_) => {}
        }
    }

    /// Writes them into an empty directory.
    pub(crate) fn write_to(&self, directory: &Path) {
        for (name, content) in &self.0 {
            // The shared memory beside the log is no part of the disk: it is made anew.
            if !name.ends_with("-shm") {
                std::fs::write(directory.join(name), content).unwrap();
            }
        }
    }
}
