//! The directories: which stand where they shall, which are moved there, which are made.
//!
//! What is there is kept as a tree of its directories that changes as steps are decided, from the
//! root down, so that every path is the one at its step's turn.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::similar::Votes;
use super::{KeptWhy, Plan, Protects};
use crate::tree::directory::{Directory, TreeHash};
use crate::tree::entry::{Entry, File, SpecialKind};
use crate::tree::path::{Name, RelPath};
use crate::tree::step::Step;

/// One of the directories that are there.
pub(super) type Id = usize;
/// The root.
pub(super) const ROOT: Id = 0;

/// The directories that are there.
pub(super) struct Shape<'a> {
    nodes: Vec<Node<'a>>,
    /// What an id that is none would be: ids are made here only.
    nothing: Node<'a>,
}

/// One directory that is there.
#[derive(Default)]
pub(super) struct Node<'a> {
    /// The directory that it lies in, and its name there; nothing for the root.
    pub(super) place: Option<(Id, Name)>,
    /// As it was seen; nothing for one that a step makes.
    pub(super) tree: Option<&'a Directory>,
    /// The directories in it by now.
    pub(super) children: BTreeMap<Name, Id>,
    /// What in it is left alone.
    pub(super) protected: BTreeMap<Name, KeptWhy>,
    /// Why it cannot go: something in it, at any depth, is left alone.
    pub(super) pinned: Option<KeptWhy>,
    /// Something in it was moved away.
    touched: bool,
}

impl<'a> Shape<'a> {
    pub(super) fn of(tree: &'a Directory, protected: &Protects<'_>) -> Self {
        let mut shape = Self {
            nodes: Vec::new(),
            nothing: Node::default(),
        };
        shape.add(tree, None, &RelPath::ROOT, protected);
        shape
    }

    fn add(
        &mut self,
        tree: &'a Directory,
        place: Option<(Id, Name)>,
        path: &RelPath,
        protects: &Protects<'_>,
    ) -> Id {
        let id = self.nodes.len();
        self.nodes.push(Node {
            place,
            tree: Some(tree),
            ..Node::default()
        });
        let mut children = BTreeMap::new();
        let mut protected = BTreeMap::new();
        let mut pinned = None;
        for (name, entry) in tree.entries() {
            let here = path.join(name);
            if let Some(why) = left_alone(entry, &here, protects) {
                pinned = pinned.or(Some(why));
                protected.insert(name.clone(), why);
            } else if let Entry::Directory(below) = entry {
                let child = self.add(below, Some((id, name.clone())), &here, protects);
                pinned = pinned.or(self.node(child).pinned);
                children.insert(name.clone(), child);
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.children = children;
            node.protected = protected;
            node.pinned = pinned;
        }
        id
    }

    pub(super) fn node(&self, id: Id) -> &Node<'a> {
        self.nodes.get(id).unwrap_or(&self.nothing)
    }

    pub(super) fn ids(&self) -> std::ops::Range<Id> {
        ROOT..self.nodes.len()
    }

    /// Where a directory is by now.
    pub(super) fn path(&self, id: Id) -> RelPath {
        let mut names = Vec::new();
        let mut at = id;
        while let Some((parent, name)) = &self.node(at).place {
            names.push(name);
            at = *parent;
        }
        let down = names.iter().rev();
        down.fold(RelPath::ROOT, |path, name| path.join(name))
    }

    /// Calls `visit` for each file that is there and not left alone, with its path by now.
    pub(super) fn files(&self, visit: &mut dyn FnMut(RelPath, &'a File)) {
        self.files_below(ROOT, &RelPath::ROOT, visit);
    }

    fn files_below(&self, id: Id, path: &RelPath, visit: &mut dyn FnMut(RelPath, &'a File)) {
        let node = self.node(id);
        for (name, entry) in node.tree.map(Directory::entries).unwrap_or_default() {
            if let Entry::File(file) = entry
                && !node.protected.contains_key(name)
            {
                visit(path.join(name), file);
            }
        }
        for (name, child) in &node.children {
            self.files_below(*child, &path.join(name), visit);
        }
    }

    /// Makes a directory that a step makes.
    fn make(&mut self, parent: Id, name: &Name) -> Id {
        let id = self.nodes.len();
        self.nodes.push(Node {
            place: Some((parent, name.clone())),
            ..Node::default()
        });
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.insert(name.clone(), id);
        }
        id
    }

    /// Moves a directory.
    fn reattach(&mut self, id: Id, parent: Id, name: &Name) {
        let old = self.node(id).place.clone();
        if let Some((old_parent, old_name)) = old {
            if let Some(node) = self.nodes.get_mut(old_parent) {
                node.children.remove(&old_name);
            }
            self.touch(old_parent);
        }
        if let Some(node) = self.nodes.get_mut(parent) {
            node.children.insert(name.clone(), id);
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.place = Some((parent, name.clone()));
        }
    }

    fn touch(&mut self, id: Id) {
        let mut at = Some(id);
        while let Some(id) = at {
            let Some(node) = self.nodes.get_mut(id) else {
                return;
            };
            node.touched = true;
            at = node.place.as_ref().map(|(parent, _)| *parent);
        }
    }
}

impl<'a> Node<'a> {
    /// What stands in it under a name and is neither a directory nor left alone.
    pub(super) fn other(&self, name: &Name) -> Option<&'a Entry> {
        match self.tree?.get(name.as_bytes())? {
            Entry::Directory(_) => None,
            entry => (!self.protected.contains_key(name)).then_some(entry),
        }
    }

    /// Whether it is just what shall be in its place.
    pub(super) fn is(&self, from: &Directory) -> bool {
        let same = self.tree.is_some_and(|tree| tree.hash() == from.hash());
        same && !self.touched && self.pinned.is_none()
    }
}

fn left_alone(entry: &Entry, path: &RelPath, protected: &Protects<'_>) -> Option<KeptWhy> {
    if protected(path, super::is_directory(entry)) {
        return Some(KeptWhy::Excluded);
    }
    let mounted = matches!(entry, Entry::Special(SpecialKind::Mountpoint));
    mounted.then_some(KeptWhy::Mounted)
}

/// Decides which directories are moved and made, but those that must wait for a delete.
pub(super) fn bring<'a>(from: &'a Directory, shape: &mut Shape<'a>, plan: &mut Plan) {
    let there: HashSet<RelPath> = shape.ids().map(|id| shape.path(id)).collect();
    let mut new = HashSet::new();
    let mut exact = HashSet::new();
    from.walk(&mut |path, entry| {
        if let Entry::Directory(directory) = entry
            && !there.contains(path)
        {
            new.insert(path.clone());
            exact.insert(directory.hash());
        }
    });
    let mut bringing = Bringing {
        movable: Movable::of(from, shape),
        votes: None,
        new,
        exact,
        from,
        shape,
        plan,
    };
    bringing.below(from, &RelPath::ROOT, ROOT);
}

struct Bringing<'a, 'p> {
    from: &'a Directory,
    shape: &'p mut Shape<'a>,
    plan: &'p mut Plan,
    movable: Movable,
    /// Counted when the first is needed.
    votes: Option<Votes>,
    /// Directories that were wanted where none was.
    new: HashSet<RelPath>,
    /// Hashes of new directories: one that is wanted just as it is, is not spent on a similar one.
    exact: HashSet<TreeHash>,
}

impl Bringing<'_, '_> {
    fn below(&mut self, from: &Directory, path: &RelPath, id: Id) {
        for (name, entry) in from.entries() {
            let Entry::Directory(wanted) = entry else {
                continue;
            };
            let here = path.join(name);
            let node = self.shape.node(id);
            let child = match node.children.get(name) {
                Some(child) => *child,
                None if node.protected.contains_key(name) || node.other(name).is_some() => continue,
                None => self.place(wanted, &here, id, name),
            };
            if !self.shape.node(child).is(wanted) {
                self.below(wanted, &here, child);
            }
        }
    }

    /// A directory where nothing stands: moves one there, or makes it.
    fn place(&mut self, wanted: &Directory, path: &RelPath, parent: Id, name: &Name) -> Id {
        let Some(id) = self.choose(wanted, path, name) else {
            self.plan
                .steps
                .push(Step::MakeDirectory { path: path.clone() });
            self.plan.summary.created.add(None);
            return self.shape.make(parent, name);
        };
        self.plan.steps.push(Step::Move {
            from: self.shape.path(id),
            to: path.clone(),
        });
        let totals = self.shape.node(id).tree.map(Directory::totals);
        let totals = totals.unwrap_or_default();
        let moved = &mut self.plan.summary.moved;
        moved.entries = moved
            .entries
            .saturating_add(totals.entries.saturating_add(1));
        moved.files = moved.files.saturating_add(totals.files);
        moved.bytes = moved.bytes.saturating_add(totals.bytes);
        self.shape.reattach(id, parent, name);
        id
    }

    fn choose(&mut self, wanted: &Directory, path: &RelPath, name: &Name) -> Option<Id> {
        if wanted.totals().bytes == 0 {
            return None;
        }
        let (from, shape) = (self.from, &*self.shape);
        let usable = |id: Id| leaves(from, shape, id);
        if let Some(id) = self.movable.take(wanted.hash(), name, &usable) {
            return Some(id);
        }
        let votes = self
            .votes
            .get_or_insert_with(|| Votes::of(from, shape, &self.new));
        votes.most(path, wanted, &mut |id| {
            let tree = shape.node(id).tree?;
            let free = !self.exact.contains(&tree.hash()) && usable(id);
            free.then_some(tree.totals().files)
        })
    }
}

/// Whether a directory is to go from where it is by now. No directory above a place that is wanted
/// is: a directory never moves into itself.
fn leaves(from: &Directory, shape: &Shape<'_>, id: Id) -> bool {
    shape.node(id).pinned.is_none() && from.directory(&shape.path(id)).is_none()
}

/// Directories that are there and not wanted there, by hash, in the order of their paths.
struct Movable {
    named: HashMap<(TreeHash, Name), VecDeque<Id>>,
    any: HashMap<TreeHash, VecDeque<Id>>,
}

impl Movable {
    fn of(from: &Directory, shape: &Shape<'_>) -> Self {
        let mut movable = Self {
            named: HashMap::new(),
            any: HashMap::new(),
        };
        let mut gone = BTreeSet::new();
        // Ids were given on a walk: a directory's before those in it, by path.
        for id in shape.ids() {
            let node = shape.node(id);
            let (Some(tree), Some((parent, name))) = (node.tree, &node.place) else {
                continue;
            };
            if !gone.contains(parent) && !is_unwanted(from, shape, id) {
                continue;
            }
            gone.insert(id);
            if tree.totals().bytes > 0 && node.pinned.is_none() {
                let hash = tree.hash();
                movable.any.entry(hash).or_default().push_back(id);
                let named = movable.named.entry((hash, name.clone())).or_default();
                named.push_back(id);
            }
        }
        movable
    }

    fn take(&mut self, hash: TreeHash, name: &Name, usable: &dyn Fn(Id) -> bool) -> Option<Id> {
        let named = self.named.get_mut(&(hash, name.clone()));
        let mut lists = named.into_iter().chain(self.any.get_mut(&hash));
        lists.find_map(|list| std::iter::from_fn(|| list.pop_front()).find(|id| usable(*id)))
    }
}

/// Whether nothing wanted is in a directory's place.
pub(super) fn is_unwanted(from: &Directory, shape: &Shape<'_>, id: Id) -> bool {
    from.directory(&shape.path(id)).is_none()
}
