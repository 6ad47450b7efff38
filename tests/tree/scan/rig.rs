//! A tree in a temporary directory, and scans of it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use labproxy::tree::beneath::Beneath;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::{Entry, File};
use labproxy::tree::limits::Limits;
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{Options, Progress, Scan, ScanError, Skip, Trouble, scan};

/// A root with a place outside of it.
pub struct Tree {
    pub place: tempfile::TempDir,
    pub limits: Limits,
}

impl Tree {
    pub fn new() -> Self {
        Self::of(tempfile::tempdir().unwrap())
    }

    /// On a file system in memory, where there is one.
    pub fn in_memory() -> Self {
        Self::of(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn of(place: tempfile::TempDir) -> Self {
        fs::create_dir(place.path().join("root")).unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        Self {
            place,
            limits: Limits::default(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.place.path().join("root")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Where the secrets are.
    pub fn outside(&self) -> PathBuf {
        self.place.path().join("outside")
    }

    /// Writes a file, with the directories above it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), bytes).unwrap();
    }

    pub fn scan(&self) -> Scan {
        self.scan_by(4)
    }

    pub fn scan_by(&self, threads: usize) -> Scan {
        self.scan_with(&Root::open(&self.path()).unwrap(), threads, None)
            .unwrap()
    }

    /// Where no `openat2` is to be had.
    pub fn scan_walking(&self) -> Scan {
        let root = Root::open_with(&self.path(), Beneath::walking()).unwrap();
        self.scan_with(&root, 4, None).unwrap()
    }

    pub fn scan_with(
        &self,
        root: &Root,
        threads: usize,
        skip: Option<Skip<'_>>,
    ) -> Result<Scan, ScanError> {
        let options = Options {
            limits: self.limits,
            threads,
            skip,
            progress: &Progress::default(),
            cancel: &AtomicBool::new(false),
        };
        scan(root, &self.path(), options)
    }

    /// A scan that has no problem.
    pub fn whole(&self) -> Scan {
        let scan = self.scan();
        assert_eq!(scan.problems, []);
        scan
    }
}

/// Two scans that say the same.
pub fn assert_same(one: &Scan, other: &Scan) {
    assert_eq!(one.tree.hash(), other.tree.hash());
    assert!(one.tree == other.tree, "what was seen beside differs");
    assert_eq!(one.stamps.all(), other.stamps.all());
    assert_eq!(one.groups, other.groups);
    assert_eq!(one.problems, other.problems);
    assert_eq!(one.identity, other.identity);
}

pub fn path(path: impl Into<Vec<u8>>) -> RelPath {
    RelPath::new(path).unwrap()
}

/// The file at a path.
#[track_caller]
pub fn file<'a>(tree: &'a Directory, at: &str) -> &'a File {
    match tree.find(&path(at)) {
        Some(Entry::File(file)) => file,
        other => panic!("{at}: {other:?}"),
    }
}

/// All paths of a tree.
pub fn paths(tree: &Directory) -> Vec<String> {
    let mut paths = Vec::new();
    tree.walk(&mut |path, _| paths.push(path.as_bytes().escape_ascii().to_string()));
    paths
}

/// What is the matter where.
pub fn problems(scan: &Scan) -> Vec<(String, Trouble)> {
    scan.problems
        .iter()
        .map(|problem| {
            let path = problem.path.as_bytes().escape_ascii().to_string();
            (path, problem.trouble.clone())
        })
        .collect()
}

/// Runs something again and again until the other has ended.
pub fn beside<R>(mut again: impl FnMut() + Send, during: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                again();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        over.store(true, Ordering::Relaxed);
        running.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Renames one onto the place of the other, and back.
pub fn exchange(one: &Path, other: &Path) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags).unwrap();
}

/// A name of any bytes in a directory.
pub fn named(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(std::ffi::OsStr::from_bytes(name))
}
