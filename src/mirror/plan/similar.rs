//! Which directory was renamed to which, though not all in it is the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::shape::{Id, Shape, is_unwanted};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::{Name, RelPath};

/// Files with the same name and content speak for their directories, and as long as the names go
/// on being the same, for the directories above.
pub(super) struct Votes {
    /// For a new directory: how many files speak for each that is there.
    votes: HashMap<RelPath, BTreeMap<Id, u64>>,
}

impl Votes {
    /// Counts them, as the directories stand by now; `new` are those that were wanted where none
    /// was.
    pub(super) fn of(from: &Directory, shape: &Shape<'_>, new: &HashSet<RelPath>) -> Self {
        let gone = gone(from, shape);
        let mut directories: Vec<RelPath> = new.iter().cloned().collect();
        directories.sort();
        let mut wanted: HashMap<(ContentId, &Name), Vec<usize>> = HashMap::new();
        for (at, path) in directories.iter().enumerate() {
            for (name, content) in from.directory(path).into_iter().flat_map(contents) {
                wanted.entry((content, name)).or_default().push(at);
            }
        }
        let mut pairs: BTreeMap<(usize, Id), u64> = BTreeMap::new();
        for (key, old) in files(&gone, shape) {
            let new = wanted.get(&key).into_iter().flatten();
            for (new, old) in new.zip(old) {
                let count = pairs.entry((*new, old)).or_default();
                *count = count.saturating_add(1);
            }
        }
        let mut votes = Self {
            votes: HashMap::new(),
        };
        for ((at, old), count) in pairs {
            if let Some(path) = directories.get(at) {
                votes.speak(path.clone(), old, count, new, &gone, shape);
            }
        }
        votes
    }

    fn speak(
        &mut self,
        mut path: RelPath,
        mut old: Id,
        count: u64,
        new: &HashSet<RelPath>,
        gone: &HashSet<Id>,
        shape: &Shape<'_>,
    ) {
        loop {
            let above = path.split_last();
            let votes = self.votes.entry(path).or_default().entry(old).or_default();
            *votes = votes.saturating_add(count);
            let (Some((parent, name)), Some((old_parent, old_name))) =
                (above, &shape.node(old).place)
            else {
                return;
            };
            if name != *old_name || !new.contains(&parent) || !gone.contains(old_parent) {
                return;
            }
            (path, old) = (parent, *old_parent);
        }
    }

    /// The directory that most of a new one is in already: more than half of the files of both, and
    /// of such the one with the most, then the first. `files` says how many files one has that may
    /// be taken.
    pub(super) fn most(
        &self,
        path: &RelPath,
        wanted: &Directory,
        files: &mut dyn FnMut(Id) -> Option<u64>,
    ) -> Option<Id> {
        let mut best: Option<(u64, Id)> = None;
        for (id, votes) in self.votes.get(path)? {
            if best.is_some_and(|(most, _)| most >= *votes) {
                continue;
            }
            let Some(there) = files(*id) else { continue };
            if votes.saturating_mul(2) > there.max(wanted.totals().files) {
                best = Some((*votes, *id));
            }
        }
        best.map(|(_, id)| id)
    }
}

/// Directories that are there and not wanted there.
fn gone(from: &Directory, shape: &Shape<'_>) -> HashSet<Id> {
    let mut gone = HashSet::new();
    for id in shape.ids() {
        let parent = shape.node(id).place.as_ref();
        let within = parent.is_some_and(|(parent, _)| gone.contains(parent));
        if within || is_unwanted(from, shape, id) {
            gone.insert(id);
        }
    }
    gone
}

/// The files of those directories: in which each is, in the order of their paths.
fn files<'a>(gone: &HashSet<Id>, shape: &'a Shape<'_>) -> HashMap<(ContentId, &'a Name), Vec<Id>> {
    let mut files: HashMap<(ContentId, &Name), Vec<Id>> = HashMap::new();
    for id in shape.ids().filter(|id| gone.contains(id)) {
        let node = shape.node(id);
        for (name, content) in node.tree.into_iter().flat_map(contents) {
            if !node.protected.contains_key(name) {
                files.entry((content, name)).or_default().push(id);
            }
        }
    }
    files
}

/// The files right in a directory that have bytes.
fn contents(directory: &Directory) -> impl Iterator<Item = (&Name, ContentId)> {
    let entries = directory.entries().iter();
    entries.filter_map(|(name, entry)| match entry {
        Entry::File(file) if file.size > 0 => Some((name, file.content)),
        Entry::File(_) | Entry::Directory(_) | Entry::Link(_) | Entry::Special(_) => None,
    })
}
