//! A scan beside one parallel BLAKE3 pass over the same files.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use labproxy::tree::directory::TreeHash;
use labproxy::tree::limits::Limits;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{Options, Progress, Scan, scan};

/// What a thread of the pass takes of a large file at a time, bytes.
const PART: u64 = 64 * 1024 * 1024;
/// Bytes of one read of the pass.
const READ: usize = 1024 * 1024;

/// Seconds of one run of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) pass: f64,
    pub(crate) scan: f64,
}

/// Runs both once, by as many threads each. The pass finds its files by walking the tree, and
/// hashes whole files, large ones in parts; it proves nothing about what it read.
pub(crate) fn pair(tree: &Path, threads: usize) -> Pair {
    let start = Instant::now();
    pass(tree, threads);
    let pass = start.elapsed().as_secs_f64();

    let progress = Progress::default();
    let start = Instant::now();
    let scanned = scanned(tree, threads, &progress);
    let scan = start.elapsed().as_secs_f64();
    std::hint::black_box(scanned);
    Pair { pass, scan }
}

/// Passes over several trees at the same time, each by as many threads.
pub(crate) fn passes(trees: &[PathBuf], threads: usize) {
    std::thread::scope(|scope| {
        for tree in trees {
            scope.spawn(move || pass(tree, threads));
        }
    });
}

/// What a tree is.
pub(crate) fn hash_of(tree: &Path) -> TreeHash {
    scanned(tree, 2, &Progress::default()).tree.plain().hash()
}

fn pass(tree: &Path, threads: usize) {
    let mut files = Vec::new();
    find(tree, &mut files);
    hash(&files, threads);
}

fn scanned(tree: &Path, threads: usize, progress: &Progress) -> Scan {
    let options = Options {
        limits: Limits::default(),
        threads,
        skip: None,
        progress,
        cancel: &AtomicBool::new(false),
    };
    let root = Root::open(tree).unwrap();
    let scanned = scan(&root, tree, options).unwrap();
    assert!(scanned.is_complete(), "{:?}", scanned.problems);
    scanned
}

fn find(directory: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            find(&entry.path(), files);
        } else if kind.is_file() {
            files.push((entry.path(), entry.metadata().unwrap().len()));
        }
    }
}

fn hash(files: &[(PathBuf, u64)], threads: usize) {
    let parts: Vec<(&Path, u64, u64)> = files
        .iter()
        .flat_map(|(path, size)| {
            let starts = (0..(*size).max(1)).step_by(usize::try_from(PART).unwrap());
            starts.map(|start| (path.as_path(), start, PART.min(*size - start)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![0; READ];
                while let Some((path, start, length)) =
                    parts.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    hash_part(path, *start, *length, &mut buffer);
                }
            });
        }
    });
}

fn hash_part(path: &Path, start: u64, length: u64, buffer: &mut [u8]) {
    let file = fs::File::open(path).unwrap();
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    while done < length {
        let read = file.read_at(buffer, start + done).unwrap();
        assert!(read > 0, "{} became shorter", path.display());
        hasher.update(&buffer[..read]);
        done += u64::try_from(read).unwrap();
    }
    std::hint::black_box(hasher.finalize());
}
