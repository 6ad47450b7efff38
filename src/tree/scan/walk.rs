//! The threads of a scan: what each does with a directory, an entry, a span.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::limits::PATHS_MAX;
use super::super::path::Name;
use super::super::root::Root;
use super::super::stamp::Stamp;
use super::cache::Cache;
use super::clock::Naps;
use super::file::Opener;
use super::queue::Queue;
use super::record::{Output, Place, Todo, Used, Wait};
use super::sight::Sight;
use super::spans::Large;
use super::worker::Worker;
use super::{Options, THREADS_MAX, Trouble};

/// Directories that a thread looks at again at a time.
const CHECKS: usize = 64;

/// A scan that is under way.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) root: &'a Root,
    pub(super) options: Options<'a>,
    pub(super) cache: Option<&'a Cache>,
    pub(super) mount: Option<u64>,
    pub(super) opener: Opener,
    pub(super) naps: Naps,
    next: AtomicUsize,
    entries: AtomicU64,
    bytes: AtomicU64,
    paths: AtomicU64,
    excess: Mutex<Option<Trouble>>,
    stop: AtomicBool,
}

/// A piece of work.
#[derive(Debug)]
pub(super) enum Task {
    /// Lists a directory.
    Directory(Todo),
    /// Looks at entries of a directory that is open.
    Entries(Arc<Opened>, Vec<Name>),
    /// Reads a part of a large file.
    Span(Arc<Large>, usize),
    /// Looks whether directories stand as they were listed.
    Check(Vec<(Arc<Place>, Stamp)>),
}

/// A directory that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) directory: OwnedFd,
    pub(super) todo: Todo,
}

/// What a thread found out.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) seen: Vec<Output>,
    /// Directories that do not stand as they were listed.
    pub(super) changed: Vec<usize>,
}

/// How a directory is opened to be looked at.
#[cfg(target_os = "linux")]
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
#[cfg(not(target_os = "linux"))]
const LOOK: OFlags = OFlags::DIRECTORY;

impl<'a> Walk<'a> {
    pub(super) fn new(
        root: &'a Root,
        options: Options<'a>,
        cache: Option<&'a Cache>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            root,
            options,
            cache,
            mount: Sight::of(root.as_fd())?.mount,
            opener: Opener::new(),
            naps: Naps::default(),
            // The root has the first number.
            next: AtomicUsize::new(1),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            paths: AtomicU64::new(0),
            excess: Mutex::new(None),
            stop: AtomicBool::new(false),
        })
    }

    /// Lists these directories, with all that is new below them.
    pub(super) fn list(&self, todo: Vec<Todo>) -> Vec<Output> {
        self.run(todo.into_iter().map(Task::Directory).collect())
            .seen
    }

    /// The numbers of those that do not stand any more as they were listed.
    pub(super) fn check(&self, mut listed: Vec<(Arc<Place>, Stamp)>) -> HashSet<usize> {
        let mut tasks = Vec::with_capacity(listed.len().div_ceil(CHECKS));
        while !listed.is_empty() {
            tasks.push(Task::Check(
                listed.split_off(listed.len().saturating_sub(CHECKS)),
            ));
        }
        self.run(tasks).changed.into_iter().collect()
    }

    fn run(&self, tasks: Vec<Task>) -> Findings {
        // One piece of looking again is done before a second thread has started.
        let alone = matches!(tasks.as_slice(), [] | [Task::Check(_)]);
        let threads = self.options.threads.clamp(1, THREADS_MAX);
        let others = if alone { 0 } else { threads - 1 };
        let queue = Queue::new(tasks);
        thread::scope(|scope| {
            // Where no more threads are to be had, there are fewer.
            let started: Vec<_> = (0..others)
                .map_while(|_| {
                    thread::Builder::new()
                        .name("scan".to_owned())
                        .spawn_scoped(scope, || Worker::new(self, &queue).work())
                        .ok()
                })
                .collect();
            let mut all = Worker::new(self, &queue).work();
            for thread in started {
                match thread.join() {
                    Ok(findings) => {
                        all.seen.extend(findings.seen);
                        all.changed.extend(findings.changed);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }

    /// Waits until the next change of any directory gets a stamp of its own, and counts what is
    /// known from now on.
    pub(super) fn settle(&self, wait: Wait, used: Used) {
        self.entries.store(used.entries, Ordering::Relaxed);
        self.bytes.store(used.bytes, Ordering::Relaxed);
        self.paths.store(used.paths, Ordering::Relaxed);
        if wait.unfinished && !wait.seconds {
            self.naps.let_finish();
        } else {
            // Any moment with a fraction stands for a clock that keeps fractions.
            self.naps.take((0, u64::from(!wait.seconds)));
        }
    }

    /// Whether it ends early.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.options.cancel.load(Ordering::Relaxed)
    }

    /// The limit of the whole tree that was passed.
    pub(super) fn excess(&self) -> Option<Trouble> {
        self.excess
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Counts what was found; a tree above its limits ends the scan.
    pub(super) fn spend(&self, found: Used) {
        let limits = self.options.limits;
        let spend = |counter: &AtomicU64, found: u64, limit: u64| {
            let before = counter.fetch_add(found, Ordering::Relaxed);
            before.saturating_add(found) > limit
        };
        let trouble = if spend(&self.entries, found.entries, limits.entries) {
            let limit = limits.entries;
            Trouble::TooMany { limit }
        } else if spend(&self.bytes, found.bytes, limits.tree) {
            let limit = limits.tree;
            Trouble::TreeTooLarge { limit }
        } else if spend(&self.paths, found.paths, PATHS_MAX) {
            Trouble::PathsTooLong { limit: PATHS_MAX }
        } else {
            return;
        };
        let mut excess = self.excess.lock().unwrap_or_else(PoisonError::into_inner);
        excess.get_or_insert(trouble);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A new directory of a directory.
    pub(super) fn below(&self, parent: &Place, name: &Name) -> Arc<Place> {
        Arc::new(Place {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            parent: parent.id,
            path: parent.path.join(name),
            depth: parent.depth + 1,
        })
    }

    /// Whether it is left out.
    pub(super) fn skips(&self, parent: &Place, name: &Name, kind: FileType) -> bool {
        let is_directory = kind == FileType::Directory;
        self.options
            .skip
            .is_some_and(|skip| skip(&parent.path.join(name), is_directory))
    }

    /// What stands at a directory's path now, when it is a directory.
    pub(super) fn look(&self, place: &Place) -> Result<Sight, Errno> {
        let opened = self.root.open_at(&place.path, LOOK, Mode::empty())?;
        Sight::of(opened.as_fd())
    }
}
