//! Trees in few words, and a strict file system in memory: a step onto something unexpected panics.

use std::collections::BTreeMap;

use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::{Entry, File, LinkText, Seen, SpecialKind};
use labproxy::tree::path::{Name, RelPath};
use labproxy::tree::step::Step;

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

pub(crate) fn file(bytes: &str) -> File {
    File {
        size: bytes.len() as u64,
        executable: false,
        content: ContentId::of(bytes.as_bytes()),
        seen: Seen::default(),
    }
}

/// A tree of paths and what stands there: `d/`, `f=content`, `x*content` (executable), `l->text`,
/// `p|` (a named pipe), `s~` (a socket), `m^` (a mountpoint). Directories above are made.
pub(crate) fn tree(text: &str) -> Directory {
    let mut model = Model::default();
    for word in text.split_whitespace() {
        let (at, node) = if let Some((at, text)) = word.split_once("->") {
            (at, Node::Link(LinkText::new(text.as_bytes()).unwrap()))
        } else if let Some((at, bytes)) = word.split_once('=') {
            (at, Node::File(file(bytes)))
        } else if let Some((at, bytes)) = word.split_once('*') {
            let executable = true;
            (
                at,
                Node::File(File {
                    executable,
                    ..file(bytes)
                }),
            )
        } else if let Some(at) = word.strip_suffix('|') {
            (at, Node::Special(SpecialKind::Fifo))
        } else if let Some(at) = word.strip_suffix('~') {
            (at, Node::Special(SpecialKind::Socket))
        } else if let Some(at) = word.strip_suffix('^') {
            (at, Node::Special(SpecialKind::Mountpoint))
        } else {
            (word.trim_end_matches('/'), Node::Directory)
        };
        model.put(&path(at), node);
    }
    model.tree()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File(File),
    Link(LinkText),
    Special(SpecialKind),
}

/// What stands where, without the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<RelPath, Node>);

impl Model {
    pub(crate) fn of(tree: &Directory) -> Self {
        let mut all = BTreeMap::new();
        tree.walk(&mut |path, entry| {
            let node = match entry {
                Entry::Directory(_) => Node::Directory,
                Entry::File(file) => Node::File(file.clone()),
                Entry::Link(text) => Node::Link(text.clone()),
                Entry::Special(kind) => Node::Special(*kind),
            };
            all.insert(path.clone(), node);
        });
        Self(all)
    }

    /// Puts something, and the directories above it; whatever stood in the way is gone.
    pub(crate) fn put(&mut self, at: &RelPath, node: Node) {
        if let Some((parent, _)) = at.split_last()
            && !parent.is_root()
            && self.0.get(&parent) != Some(&Node::Directory)
        {
            self.put(&parent, Node::Directory);
        }
        if node != Node::Directory || self.0.get(at) != Some(&Node::Directory) {
            self.cut(at);
            self.0.insert(at.clone(), node);
        }
    }

    /// Takes something out with all that is in it.
    pub(crate) fn cut(&mut self, at: &RelPath) -> Vec<(RelPath, Node)> {
        let within: Vec<RelPath> = self
            .0
            .keys()
            .filter(|one| one.is_within(at))
            .cloned()
            .collect();
        let cut = within.into_iter();
        cut.map(|one| self.0.remove_entry(&one).unwrap()).collect()
    }

    pub(crate) fn tree(&self) -> Directory {
        self.below(&RelPath::ROOT)
    }

    fn below(&self, at: &RelPath) -> Directory {
        let mut entries: Vec<(Name, Entry)> = Vec::new();
        let all = self
            .0
            .range(at.clone()..)
            .take_while(|(one, _)| one.is_within(at));
        for (one, node) in all {
            let Some((parent, name)) = one.split_last() else {
                continue;
            };
            if parent != *at || one == at {
                continue;
            }
            let entry = match node {
                Node::Directory => Entry::Directory(self.below(one)),
                Node::File(file) => Entry::File(file.clone()),
                Node::Link(text) => Entry::Link(text.clone()),
                Node::Special(kind) => Entry::Special(*kind),
            };
            entries.push((name, entry));
        }
        Directory::new(entries, Seen::default()).unwrap()
    }

    fn parent_stands(&self, at: &RelPath) {
        let (parent, _) = at.split_last().unwrap();
        let stands = parent.is_root() || self.0.get(&parent) == Some(&Node::Directory);
        assert!(stands, "no directory above {at:?}");
    }

    fn free(&self, at: &RelPath) {
        self.parent_stands(at);
        assert_eq!(self.0.get(at), None, "{at:?} is taken");
    }

    fn replaceable(&self, at: &RelPath) {
        self.parent_stands(at);
        let there = self.0.get(at);
        let fits = matches!(there, None | Some(Node::File(_) | Node::Link(_)));
        assert!(fits, "{at:?} is {there:?}");
    }

    /// Executes a step; what it does must be needed. `received` are contents that may be written.
    pub(crate) fn step(&mut self, step: &Step, received: &[ContentId]) {
        let before = self.clone();
        match step {
            Step::MakeDirectory { path } => {
                self.free(path);
                self.0.insert(path.clone(), Node::Directory);
            }
            Step::Move { from, to } => {
                self.free(to);
                assert!(!to.is_within(from), "{from:?} into itself");
                let cut = self.cut(from);
                assert!(!cut.is_empty(), "{from:?} is not there");
                for (one, node) in cut {
                    self.0.insert(one.rebase(from, to).unwrap(), node);
                }
            }
            Step::Copy { from, to, file } => {
                self.replaceable(to);
                let Some(Node::File(source)) = self.0.get(from) else {
                    panic!("{from:?} is no file");
                };
                assert_eq!((source.content, source.size), (file.content, file.size));
                self.0.insert(to.clone(), Node::File(file.clone()));
            }
            Step::Write { path, file } => {
                self.replaceable(path);
                assert!(file.size == 0 || received.contains(&file.content));
                self.0.insert(path.clone(), Node::File(file.clone()));
            }
            Step::Link { path, text } => {
                self.replaceable(path);
                self.0.insert(path.clone(), Node::Link(text.clone()));
            }
            Step::SetExecutable { path, executable } => {
                let Some(Node::File(file)) = self.0.get_mut(path) else {
                    panic!("{path:?} is no file");
                };
                file.executable = *executable;
            }
            Step::Remove { path } => {
                let cut = self.0.remove(path).unwrap();
                assert_ne!(cut, Node::Directory, "{path:?}");
            }
            Step::RemoveDirectory { path } => {
                assert_eq!(self.cut(path), [(path.clone(), Node::Directory)]);
            }
        }
        assert_ne!(before, *self, "{step:?} does nothing");
    }
}
