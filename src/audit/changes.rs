//! What differs between two trees, path by path.

use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::{Name, RelPath};

/// One path at which two trees differ. Of directories only those that are empty, or stand where
/// something else stood, are told by themselves; else what is in them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides<'a> {
    /// What the first tree has there.
    pub old: Option<&'a Entry>,
    /// What the second one has.
    pub new: Option<&'a Entry>,
}

/// Calls `visit` for every path at which `new` differs from `old`, sorted.
pub fn changes<'a>(
    old: &'a Directory,
    new: &'a Directory,
    visit: &mut dyn FnMut(&RelPath, Sides<'a>),
) {
    below(Some(old), Some(new), &RelPath::ROOT, visit);
}

fn below<'a>(
    old: Option<&'a Directory>,
    new: Option<&'a Directory>,
    here: &RelPath,
    visit: &mut dyn FnMut(&RelPath, Sides<'a>),
) {
    if let (Some(old), Some(new)) = (old, new)
        && old.hash() == new.hash()
    {
        return;
    }
    let names = |tree: Option<&'a Directory>| {
        let entries = tree.map(Directory::entries).unwrap_or_default();
        entries.iter().map(|(name, _)| name)
    };
    let mut all: Vec<&Name> = names(old).chain(names(new)).collect();
    all.sort_unstable();
    all.dedup();
    for name in all {
        let of = |tree: Option<&'a Directory>| tree.and_then(|tree| tree.get(name.as_bytes()));
        let sides = Sides {
            old: of(old),
            new: of(new),
        };
        let path = here.join(name);
        let (was, is) = (directory(sides.old), directory(sides.new));
        let only_directories =
            (was.is_some() || sides.old.is_none()) && (is.is_some() || sides.new.is_none());
        let holds = |tree: Option<&Directory>| tree.is_some_and(|tree| !tree.entries().is_empty());
        let tells_itself = if only_directories {
            (was.is_some() != is.is_some() && !holds(was) && !holds(is))
                || matches!((was, is), (Some(was), Some(is)) if was.seen() != is.seen())
        } else {
            sides.old != sides.new
        };
        if tells_itself {
            visit(&path, sides);
        }
        if was.is_some() || is.is_some() {
            below(was, is, &path, visit);
        }
    }
}

const fn directory(entry: Option<&Entry>) -> Option<&Directory> {
    match entry {
        Some(Entry::Directory(directory)) => Some(directory),
        Some(Entry::File(_) | Entry::Link(_) | Entry::Special(_)) | None => None,
    }
}
