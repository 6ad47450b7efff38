//! The tree that a workspace becomes while something waits.

use std::collections::{BTreeMap, HashSet};

use super::{Held, below};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::Name;

/// The new tree, in which what is held back is as it was.
pub(in crate::mirror) fn without(old: &Directory, new: &Directory, held: &[Held]) -> Directory {
    let mut places: Vec<Place<'_>> = held
        .iter()
        .map(|one| (one.path.components().collect(), old.find(&one.path)))
        .collect();
    places.sort_by(|(one, _), (other, _)| one.cmp(other));
    replaced(new, &places, 0)
}

/// A path, by its names, and what shall stand there.
type Place<'a> = (Vec<&'a [u8]>, Option<&'a Entry>);

/// The tree with other entries, or none, at some paths; `depth` names of each lead here. Directories
/// above are made where one is put, also where something else took their place.
fn replaced(tree: &Directory, places: &[Place<'_>], depth: usize) -> Directory {
    let mut entries: BTreeMap<&[u8], Entry> = BTreeMap::new();
    let changed: HashSet<&[u8]> = places
        .iter()
        .filter_map(|place| place.0.get(depth).copied())
        .collect();
    for (name, entry) in tree.entries() {
        if !changed.contains(name.as_bytes()) {
            entries.insert(name.as_bytes(), entry.clone());
        }
    }
    for group in places.chunk_by(|one, other| one.0.get(depth) == other.0.get(depth)) {
        let Some((names, entry)) = group.first() else {
            continue;
        };
        let Some(name) = names.get(depth) else {
            continue;
        };
        let here = if names.len() == depth + 1 {
            entry.cloned()
        } else {
            let there = tree.get(name);
            let empty = Directory::empty();
            let below = replaced(below(there, &empty), group, depth + 1);
            let put = group.iter().any(|(_, entry)| entry.is_some());
            match there {
                Some(Entry::Directory(_)) => Some(Entry::Directory(below)),
                _ if put => Some(Entry::Directory(below)),
                other => other.cloned(),
            }
        };
        if let Some(entry) = here {
            entries.insert(name, entry);
        }
    }
    let entries = entries
        .into_iter()
        .filter_map(|(name, entry)| Some((Name::new(name).ok()?, entry)));
    // Names of a map are no two of one name.
    Directory::new(entries.collect(), tree.seen()).unwrap_or_else(|_| Directory::empty())
}
