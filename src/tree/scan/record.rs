//! What is known of a tree so far, directory by directory, and what must be looked at again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::content::{ContentId, Groups};
use super::super::entry::{LinkText, SpecialKind};
use super::super::path::{Name, RelPath};
use super::super::stamp::Stamp;
use super::Trouble;

/// A directory of the tree, by its path.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: usize,
    /// The directory that it lies in; the root's own number for the root.
    pub(super) parent: usize,
    pub(super) path: RelPath,
    /// Names of the path.
    pub(super) depth: usize,
}

/// One entry, as it was seen.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    /// Nothing for a directory, whose own record has it, and where there was none to get.
    pub(super) stamp: Option<Stamp>,
    pub(super) found: Found,
    /// A file that must be read once more: a write may have been under way.
    pub(super) unconfirmed: bool,
}

/// What an entry is.
#[derive(Debug, Clone)]
pub(super) enum Found {
    File(ContentId, Option<Arc<Groups>>),
    Directory(Arc<Place>),
    Link(LinkText),
    Special(SpecialKind),
    Trouble(Trouble),
}

/// What a directory is.
#[derive(Debug)]
pub(super) enum State {
    /// It was read.
    Listed {
        stamp: Stamp,
        /// Its stamp was the same before and after, and will tell the next change.
        steady: bool,
        /// Names in it that cannot be mirrored.
        bad: Vec<Vec<u8>>,
    },
    /// Another file system is mounted there.
    Mountpoint(Option<Stamp>),
    /// No directory was there any more.
    Gone,
    /// It could not be read.
    Trouble(Trouble),
}

/// One observation of a thread.
#[derive(Debug)]
pub(super) enum Output {
    State(Arc<Place>, State),
    Name(Arc<Place>, Name, Sighting),
}

/// All that is known of a directory.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) place: Arc<Place>,
    /// Nothing before it was tried.
    pub(super) state: Option<State>,
    /// In no order.
    pub(super) names: Vec<(Name, Sighting)>,
    /// It changed since it was listed.
    pub(super) changed: bool,
}

/// A directory to list, with what was known of it.
#[derive(Debug)]
pub(super) struct Todo {
    pub(super) place: Arc<Place>,
    pub(super) known: Arc<HashMap<Name, Sighting>>,
}

/// How much of a limit is used.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) paths: u64,
}

/// What must pass before directories are listed again.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wait {
    /// A write that may be under way goes on.
    pub(super) unfinished: bool,
    /// A stamp of whole seconds becomes old.
    pub(super) seconds: bool,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct Records {
    root: Arc<Place>,
    all: HashMap<usize, Record>,
}

impl Record {
    fn new(place: Arc<Place>) -> Self {
        Self {
            place,
            state: None,
            names: Vec::new(),
            changed: false,
        }
    }

    /// Whether it must be listed again, as far as can be told without looking.
    fn is_open(&self) -> bool {
        match &self.state {
            _ if self.changed => true,
            None | Some(State::Gone | State::Listed { steady: false, .. }) => true,
            Some(State::Listed { steady: true, .. }) => {
                self.names.iter().any(|(_, seen)| seen.unconfirmed)
            }
            Some(State::Mountpoint(_) | State::Trouble(_)) => false,
        }
    }
}

impl Records {
    /// Nothing but the root's place.
    pub(super) fn new() -> Self {
        let root = Arc::new(Place {
            id: 0,
            parent: 0,
            path: RelPath::ROOT,
            depth: 0,
        });
        let all = HashMap::from([(root.id, Record::new(Arc::clone(&root)))]);
        Self { root, all }
    }

    /// The root's record, and then each by its place.
    pub(super) fn root(&self) -> &Arc<Place> {
        &self.root
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, place: &Place) -> Option<Record> {
        self.all.remove(&place.id)
    }

    /// The root, to begin with.
    pub(super) fn everything(&self) -> Vec<Todo> {
        vec![Todo {
            place: Arc::clone(&self.root),
            known: Arc::default(),
        }]
    }

    /// Adds what the threads saw.
    pub(super) fn take(&mut self, seen: Vec<Output>) {
        for output in seen {
            match output {
                Output::State(place, state) => self.record(place).state = Some(state),
                Output::Name(place, name, sighting) => {
                    self.record(place).names.push((name, sighting));
                }
            }
        }
    }

    fn record(&mut self, place: Arc<Place>) -> &mut Record {
        self.all
            .entry(place.id)
            .or_insert_with(|| Record::new(place))
    }

    /// Forgets directories that no directory names any more.
    pub(super) fn prune(&mut self) {
        let mut reached = HashSet::from([self.root.id]);
        let mut waiting = vec![self.root.id];
        while let Some(record) = waiting.pop().and_then(|id| self.all.get(&id)) {
            for (_, seen) in &record.names {
                if let Found::Directory(below) = &seen.found
                    && reached.insert(below.id)
                {
                    waiting.push(below.id);
                }
            }
        }
        self.all.retain(|id, _| reached.contains(id));
    }

    /// The directories that seem whole, each with the stamp that it must still have.
    pub(super) fn whole(&self) -> Vec<(Arc<Place>, Stamp)> {
        self.all
            .values()
            .filter(|record| !record.is_open())
            .filter_map(|record| match &record.state {
                Some(State::Listed { stamp, .. }) => Some((Arc::clone(&record.place), *stamp)),
                _ => None,
            })
            .collect()
    }

    /// Marks those that were found `changed`, and those that named one that is gone. Says whether
    /// anything must be listed again.
    pub(super) fn mark(&mut self, changed: &HashSet<usize>) -> bool {
        let gone = |record: &&Record| matches!(record.state, None | Some(State::Gone));
        let parents: Vec<usize> = self
            .all
            .values()
            .filter(gone)
            .map(|record| record.place.parent)
            .collect();
        for id in changed.iter().chain(&parents) {
            if let Some(record) = self.all.get_mut(id) {
                record.changed = true;
            }
        }
        self.all.values().any(Record::is_open)
    }

    /// Takes out what must be listed again, and says what must be waited for before.
    pub(super) fn todo(&mut self) -> (Vec<Todo>, Wait) {
        let mut todo = Vec::new();
        let mut wait = Wait::default();
        for record in self.all.values_mut().filter(|record| record.is_open()) {
            record.changed = false;
            wait.unfinished |= record.names.iter().any(|(_, seen)| seen.unconfirmed);
            wait.seconds |= match &record.state {
                Some(State::Listed { stamp, steady, .. }) => !steady && stamp.changed.1 == 0,
                _ => false,
            };
            todo.push(Todo {
                place: Arc::clone(&record.place),
                known: Arc::new(record.names.drain(..).collect()),
            });
        }
        (todo, wait)
    }

    /// How much those that stay use; a directory itself is counted where it is named.
    pub(super) fn used(&self) -> Used {
        let mut used = Used::default();
        for record in self.all.values() {
            for (name, seen) in &record.names {
                used.entries += 1;
                used.paths += path_bytes(&record.place, name);
                if let (Found::File(..), Some(stamp)) = (&seen.found, seen.stamp) {
                    used.bytes = used.bytes.saturating_add(stamp.size);
                }
            }
        }
        used
    }
}

/// Bytes of a path in this directory.
pub(super) fn path_bytes(place: &Place, name: &Name) -> u64 {
    let length = place.path.as_bytes().len() + 1 + name.as_bytes().len();
    u64::try_from(length).unwrap_or(u64::MAX)
}
