//! One thread of a scan: what it does with a directory, an entry, a span.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::path::{DEPTH_MAX, Name};
use super::super::stamp::Stamp;
use super::Trouble;
use super::clock;
use super::entries::unreadable;
use super::listing::Piece;
use super::queue::Queue;
use super::record::{Found, Output, Place, Sighting, State, Todo, Used, path_bytes};
use super::sight::Sight;
use super::walk::{Findings, Opened, Task, Walk};

/// Entries of one directory that a thread takes at a time: few enough that the last ones do not
/// keep one thread busy while others wait.
const ENTRIES: usize = 32;
/// Bytes of one read: whole groups.
const BUFFER: usize = 4 * 64 * 1024;

/// One thread of a scan.
#[derive(Debug)]
pub(super) struct Worker<'w, 'a> {
    pub(super) walk: &'w Walk<'a>,
    pub(super) queue: &'w Queue<Task>,
    pub(super) buffer: Vec<u8>,
    piece: Piece,
    pub(super) found: Findings,
}

impl<'w, 'a> Worker<'w, 'a> {
    pub(super) fn new(walk: &'w Walk<'a>, queue: &'w Queue<Task>) -> Self {
        Self {
            walk,
            queue,
            buffer: vec![0; BUFFER],
            piece: Piece::new(),
            found: Findings::default(),
        }
    }

    /// Works until there is nothing left.
    pub(super) fn work(mut self) -> Findings {
        while let Some((task, taken)) = self.queue.next() {
            match task {
                Task::Directory(todo) => self.directory(todo),
                Task::Entries(opened, names) => self.entries(&opened, names),
                Task::Span(large, index) => self.span(&large, index),
                Task::Check(listed) => self.check(listed),
            }
            if self.walk.is_over() {
                self.queue.stop();
            }
            drop(taken);
        }
        self.found
    }

    fn check(&mut self, listed: Vec<(Arc<Place>, Stamp)>) {
        for (place, stamp) in listed {
            let same = self
                .walk
                .look(&place)
                .is_ok_and(|sight| sight.stamp == stamp);
            if !same {
                self.found.changed.push(place.id);
            }
        }
    }

    fn directory(&mut self, todo: Todo) {
        let place = Arc::clone(&todo.place);
        let state = match self.list(todo) {
            Ok(state) => state,
            Err(Errno::XDEV) => State::Mountpoint(self.mountpoint(&place)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => State::Gone,
            Err(error) => State::Trouble(unreadable(error)),
        };
        self.found.seen.push(Output::State(place, state));
    }

    /// The stamp of what is mounted over a directory.
    fn mountpoint(&self, place: &Place) -> Option<Stamp> {
        let (parent, name) = self.walk.root.parent(&place.path).ok()?;
        Sight::at(parent.as_fd(), &name)
            .ok()
            .map(|sight| sight.stamp)
    }

    fn list(&mut self, todo: Todo) -> Result<State, Errno> {
        let place = Arc::clone(&todo.place);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let directory = self.walk.root.open_at(&place.path, flags, Mode::empty())?;
        let asked = clock::now();
        let before = Sight::of(directory.as_fd())?.stamp;
        let most = self.walk.options.limits.entries;
        let names = self.piece.names(directory.as_fd(), most)?;
        let after = Sight::of(directory.as_fd())?.stamp;
        let steady = before == after && !clock::may_hide_a_change(before.changed, asked);
        if place.depth >= DEPTH_MAX && !(names.good.is_empty() && names.bad.is_empty()) {
            return Ok(State::Trouble(Trouble::TooDeep));
        }
        let opened = Arc::new(Opened { directory, todo });
        let kept = self.keep(&opened, names.good);
        self.share(&opened, kept);
        Ok(State::Listed {
            stamp: before,
            steady,
            bad: names.bad,
        })
    }

    /// Takes up the directories in a directory, and gives the names of the rest that is not left
    /// out.
    fn keep(&mut self, opened: &Opened, names: Vec<(Name, FileType)>) -> Vec<Name> {
        let place = &opened.todo.place;
        let mut used = Used::default();
        let mut directories = Vec::new();
        let mut kept = Vec::new();
        for (name, mut kind) in names {
            if kind == FileType::Unknown {
                match Sight::at(opened.directory.as_fd(), &name) {
                    Ok(sight) => kind = sight.stamp.kind(),
                    Err(Errno::NOENT) => continue,
                    // What the matter is with it is told when it is looked at.
                    Err(_) => {}
                }
            }
            if self.walk.skips(place, &name, kind) {
                continue;
            }
            used.entries += 1;
            used.paths = used.paths.saturating_add(path_bytes(place, &name));
            if kind == FileType::Directory {
                directories.extend(self.below(opened, name));
            } else {
                kept.push(name);
            }
        }
        let progress = &self.walk.options.progress.entries;
        progress.fetch_add(used.entries, Ordering::Relaxed);
        self.walk.spend(used);
        if !directories.is_empty() {
            // The last is taken first.
            directories.reverse();
            self.queue.add_new(directories);
        }
        kept
    }

    /// Names a directory in its directory; one that was known stays the same, and is looked after
    /// by itself.
    fn below(&mut self, opened: &Opened, name: Name) -> Option<Task> {
        let parent = Arc::clone(&opened.todo.place);
        let known = opened.todo.known.get(&name).map(|seen| &seen.found);
        let (place, task) = if let Some(Found::Directory(known)) = known {
            (Arc::clone(known), None)
        } else {
            let place = self.walk.below(&parent, &name);
            let todo = Todo {
                place: Arc::clone(&place),
                known: Arc::default(),
            };
            (place, Some(Task::Directory(todo)))
        };
        let sighting = Sighting {
            stamp: None,
            found: Found::Directory(place),
            unconfirmed: false,
        };
        self.found.seen.push(Output::Name(parent, name, sighting));
        task
    }

    /// Looks at these entries, or lets other threads look at most of them.
    fn share(&mut self, opened: &Arc<Opened>, mut names: Vec<Name>) {
        let mut parts = Vec::with_capacity(names.len().div_ceil(ENTRIES));
        while names.len() > ENTRIES {
            let part = names.split_off(names.len().saturating_sub(ENTRIES));
            parts.push(Task::Entries(Arc::clone(opened), part));
        }
        if !parts.is_empty() {
            self.queue.add_begun(parts);
        }
        self.entries(opened, names);
    }
}
