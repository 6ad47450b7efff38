//! What may stand at each path while steps are being done: by this an interrupted run of ours is told
//! from what somebody else did meanwhile.
//!
//! A plan is a pure function, so the steps of a run are known again by the two trees that it led
//! between. They are gone through here without doing anything: a path may be as it was before the
//! first step, or as any step left it. What stands there otherwise is somebody's, but for files whose
//! names say that an applier had not finished them ([`is_unfinished`]).

use std::collections::{BTreeMap, HashMap};

use crate::tree::apply::is_unfinished;
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, LinkText, SpecialKind};
use crate::tree::path::RelPath;
use crate::tree::step::Step;

/// What stands at one path. Of a directory only that it is one counts: what is in it has paths of its
/// own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Nothing,
    Directory,
    File {
        size: u64,
        executable: bool,
        content: ContentId,
    },
    Link(LinkText),
    Special(SpecialKind),
}

impl Place {
    fn of(entry: Option<&Entry>) -> Self {
        match entry {
            None => Self::Nothing,
            Some(Entry::Directory(_)) => Self::Directory,
            Some(Entry::File(file)) => Self::file(file),
            Some(Entry::Link(text)) => Self::Link(text.clone()),
            Some(Entry::Special(kind)) => Self::Special(*kind),
        }
    }

    const fn file(file: &crate::tree::entry::File) -> Self {
        Self::File {
            size: file.size,
            executable: file.executable,
            content: file.content,
        }
    }
}

/// The states of a tree between the first step and the last.
#[derive(Debug)]
pub struct Way<'a> {
    before: &'a Directory,
    /// What stands where steps came by, in the order in which it stood there; the first is what was
    /// before.
    touched: HashMap<RelPath, Vec<Place>>,
}

impl<'a> Way<'a> {
    /// Goes through steps that begin at `before`.
    pub fn of(before: &'a Directory, steps: &[Step]) -> Self {
        let mut tree = BTreeMap::new();
        before.walk(&mut |path, entry| {
            tree.insert(path.clone(), Place::of(Some(entry)));
        });
        let mut going = Going {
            tree,
            touched: HashMap::new(),
        };
        for step in steps {
            going.step(step);
        }
        Self {
            before,
            touched: going.touched,
        }
    }

    /// Paths of `now` that are as no step found or left them, and those that should stand there and do
    /// not: sorted.
    pub fn strangers(&self, now: &Directory) -> Vec<RelPath> {
        let mut strangers = Vec::new();
        now.walk(&mut |path, entry| {
            if !self.may_be(path, &Place::of(Some(entry))) && !is_leftover(path, entry) {
                strangers.push(path.clone());
            }
        });
        let mut gone = |path: &RelPath| {
            if now.find(path).is_none() && !self.may_be(path, &Place::Nothing) {
                strangers.push(path.clone());
            }
        };
        self.before.walk(&mut |path, _| gone(path));
        self.touched.keys().for_each(gone);
        strangers.sort_unstable();
        strangers.dedup();
        strangers
    }

    fn may_be(&self, path: &RelPath, place: &Place) -> bool {
        match self.touched.get(path) {
            Some(places) => places.contains(place),
            None => Place::of(self.before.find(path)) == *place,
        }
    }
}

/// Whether an applier was killed while it made this.
pub fn is_leftover(path: &RelPath, entry: &Entry) -> bool {
    matches!(entry, Entry::File(_) | Entry::Link(_))
        && path
            .split_last()
            .is_some_and(|(_, name)| is_unfinished(name.as_bytes()))
}

struct Going {
    tree: BTreeMap<RelPath, Place>,
    touched: HashMap<RelPath, Vec<Place>>,
}

impl Going {
    fn step(&mut self, step: &Step) {
        match step {
            Step::MakeDirectory { path } => self.put(path.clone(), Place::Directory),
            Step::Move { from, to } => self.relocate(from, to),
            Step::Copy { to, file, .. } => self.put(to.clone(), Place::file(file)),
            Step::Write { path, file } => self.put(path.clone(), Place::file(file)),
            Step::Link { path, text } => self.put(path.clone(), Place::Link(text.clone())),
            Step::SetExecutable { path, executable } => {
                if let Some(Place::File { size, content, .. }) = self.tree.get(path).cloned() {
                    let place = Place::File {
                        size,
                        executable: *executable,
                        content,
                    };
                    self.put(path.clone(), place);
                }
            }
            Step::Remove { path } | Step::RemoveDirectory { path } => {
                self.put(path.clone(), Place::Nothing);
            }
        }
    }

    /// A directory moves with all that is in it.
    fn relocate(&mut self, from: &RelPath, to: &RelPath) {
        let moved: Vec<(RelPath, Place)> = self
            .tree
            .range(from.clone()..)
            .take_while(|(path, _)| path.is_within(from))
            .map(|(path, place)| (path.clone(), place.clone()))
            .collect();
        for (path, place) in moved {
            if let Some(there) = path.rebase(from, to) {
                self.put(path, Place::Nothing);
                self.put(there, place);
            }
        }
    }

    fn put(&mut self, path: RelPath, place: Place) {
        let before = match place {
            Place::Nothing => self.tree.remove(&path),
            Place::Directory | Place::File { .. } | Place::Link(_) | Place::Special(_) => {
                self.tree.insert(path.clone(), place.clone())
            }
        };
        self.touched
            .entry(path)
            .or_insert_with(|| vec![before.unwrap_or(Place::Nothing)])
            .push(place);
    }
}
