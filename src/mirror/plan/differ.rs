//! What differs, place by place, once the directories stand.

use std::collections::HashSet;

use super::shape::{Id, Node, ROOT, Shape};
use super::{Kept, KeptWhy};
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, File, LinkText, SpecialKind};
use crate::tree::path::{Name, RelPath};

/// What is to be done in each place.
#[derive(Default)]
pub(super) struct Changes<'a> {
    /// Files to be made.
    pub(super) files: Vec<Wanted<'a>>,
    /// Symlinks to be made.
    pub(super) links: Vec<(RelPath, &'a LinkText, Place)>,
    /// Directories that can be made once something is removed.
    pub(super) late_directories: Vec<RelPath>,
    /// Files whose mode becomes another one.
    pub(super) modes: Vec<(RelPath, &'a File)>,
    /// What is to go.
    pub(super) gone: Vec<(RelPath, Gone<'a>)>,
    /// Files that are replaced.
    pub(super) replaced: HashSet<RelPath>,
    /// What stays though it should not.
    pub(super) kept: Vec<Kept>,
}

/// A file to be made.
pub(super) struct Wanted<'a> {
    pub(super) path: RelPath,
    pub(super) file: &'a File,
    pub(super) place: Place,
}

/// What is in the place of an entry that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing.
    Free,
    /// A file or symlink, which it replaces.
    Taken,
    /// Something that must be removed before.
    Late,
}

/// What is to go.
#[derive(Clone, Copy)]
pub(super) enum Gone<'a> {
    File(&'a File),
    Directory,
    Other,
}

pub(super) fn changes<'a>(from: &'a Directory, shape: &Shape<'a>) -> Changes<'a> {
    let mut changes = Changes::default();
    Differ {
        shape,
        changes: &mut changes,
    }
    .compare(from, ROOT, &RelPath::ROOT);
    changes.gone.sort_by(|(one, _), (other, _)| one.cmp(other));
    changes
}

struct Differ<'a, 's> {
    shape: &'s Shape<'a>,
    changes: &'s mut Changes<'a>,
}

/// What stands under a name.
enum There<'a> {
    Nothing,
    Directory(Id),
    Other(&'a Entry),
    Protected(KeptWhy),
}

fn there<'a>(node: &Node<'a>, name: &Name) -> There<'a> {
    if let Some(why) = node.protected.get(name) {
        return There::Protected(*why);
    }
    match (node.children.get(name), node.other(name)) {
        (Some(id), _) => There::Directory(*id),
        (None, Some(entry)) => There::Other(entry),
        (None, None) => There::Nothing,
    }
}

impl<'a> Differ<'a, '_> {
    fn compare(&mut self, from: &'a Directory, id: Id, path: &RelPath) {
        let node = self.shape.node(id);
        if node.is(from) {
            return;
        }
        for (name, wanted) in from.entries() {
            self.entry(wanted, &there(node, name), path.join(name));
        }
        for (name, entry) in node.tree.map(Directory::entries).unwrap_or_default() {
            if from.get(name.as_bytes()).is_some() {
                continue;
            }
            let here = path.join(name);
            match there(node, name) {
                // Directories are looked at below: some were not here at first.
                There::Nothing | There::Directory(_) | There::Protected(KeptWhy::Excluded) => {}
                There::Other(_) => self.gone(entry, here),
                There::Protected(why @ KeptWhy::Mounted) => self.keep(here, why),
            }
        }
        for (name, child) in &node.children {
            if from.get(name.as_bytes()).is_none() {
                self.directory_gone(*child, &path.join(name));
            }
        }
    }

    fn entry(&mut self, wanted: &'a Entry, there: &There<'a>, path: RelPath) {
        match (wanted, there) {
            (Entry::Special(SpecialKind::Mountpoint), There::Protected(KeptWhy::Mounted)) => {}
            (_, There::Protected(why)) => self.keep(path, *why),
            (Entry::Directory(wanted), There::Directory(id)) => self.compare(wanted, *id, &path),
            (Entry::Special(_), There::Directory(id)) => self.directory_gone(*id, &path),
            (_, There::Directory(id)) => {
                if self.shape.node(*id).pinned.is_none() {
                    self.make(wanted, path.clone(), Place::Late);
                }
                self.directory_gone(*id, &path);
            }
            (_, There::Nothing) => self.make(wanted, path, Place::Free),
            (_, There::Other(entry)) => self.other(wanted, entry, path),
        }
    }

    /// Something is wanted where another thing stands that is no directory.
    fn other(&mut self, wanted: &'a Entry, there: &'a Entry, path: RelPath) {
        match (wanted, there) {
            (Entry::File(wanted), Entry::File(file)) if wanted.content == file.content => {
                if wanted.executable != file.executable {
                    self.changes.modes.push((path, wanted));
                }
            }
            (Entry::Link(wanted), Entry::Link(text)) if wanted == text => {}
            (Entry::Special(wanted), Entry::Special(kind)) if wanted == kind => {}
            (Entry::File(_) | Entry::Link(_), Entry::File(_)) => {
                self.changes.replaced.insert(path.clone());
                self.make(wanted, path, Place::Taken);
            }
            (Entry::File(_) | Entry::Link(_), Entry::Link(_)) => {
                self.make(wanted, path, Place::Taken);
            }
            (
                Entry::File(_) | Entry::Link(_) | Entry::Directory(_) | Entry::Special(_),
                Entry::File(_) | Entry::Link(_) | Entry::Directory(_) | Entry::Special(_),
            ) => {
                self.make(wanted, path.clone(), Place::Late);
                self.gone(there, path);
            }
        }
    }

    fn make(&mut self, wanted: &'a Entry, path: RelPath, place: Place) {
        match wanted {
            Entry::File(file) => self.changes.files.push(Wanted { path, file, place }),
            Entry::Link(text) => self.changes.links.push((path, text, place)),
            Entry::Directory(directory) => {
                for (name, entry) in directory.entries() {
                    self.make(entry, path.join(name), Place::Late);
                }
                self.changes.late_directories.push(path);
            }
            Entry::Special(_) => {}
        }
    }

    fn gone(&mut self, entry: &'a Entry, path: RelPath) {
        let gone = match entry {
            Entry::File(file) => Gone::File(file),
            Entry::Directory(_) | Entry::Link(_) | Entry::Special(_) => Gone::Other,
        };
        self.changes.gone.push((path, gone));
    }

    /// A directory that is to go; one that holds something that is left alone stays, and is told
    /// once.
    fn directory_gone(&mut self, id: Id, path: &RelPath) {
        if let Some(why) = self.shape.node(id).pinned {
            self.keep(path.clone(), why);
        }
        self.empty(id, path);
    }

    fn empty(&mut self, id: Id, path: &RelPath) {
        let node = self.shape.node(id);
        for (name, _) in node.tree.map(Directory::entries).unwrap_or_default() {
            if let There::Other(entry) = there(node, name) {
                self.gone(entry, path.join(name));
            }
        }
        for (name, child) in &node.children {
            self.empty(*child, &path.join(name));
        }
        if node.pinned.is_none() {
            self.changes.gone.push((path.clone(), Gone::Directory));
        }
    }

    fn keep(&mut self, path: RelPath, why: KeptWhy) {
        self.changes.kept.push(Kept { path, why });
    }
}
