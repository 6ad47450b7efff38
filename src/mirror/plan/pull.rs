//! The plan of a pull's workspace, where three trees are looked at: what was agreed last, the new
//! generation, and what stands there now.

use super::{Options, Plan, plan};
use crate::mirror::held_back::{Held, below, same, without};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::{Name, RelPath};

/// How a workspace becomes a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullPlan {
    /// The steps and what goes with them.
    pub plan: Plan,
    /// What somebody changed here since the last agreed tree, and not to what the generation has,
    /// by path. While there is one, nothing may be applied.
    pub local_edits: Vec<RelPath>,
    /// What waits to be accepted, and stays here as it was agreed.
    pub held_back: Vec<Held>,
    /// What the workspace is after the steps: the next agreed tree.
    pub target: Directory,
}

/// Plans how `now`, the workspace, becomes `new`, the generation. `old` is the tree that was agreed
/// last: what a workspace was after the last pull, without what was held back then; the empty one
/// before the first. `held` is what of `new` waits: it stays as `old` has it.
pub fn plan_pull(old: &Directory, new: &Directory, now: &Directory, held: Vec<Held>) -> PullPlan {
    let target = without(old, new, &held);
    let mut local_edits = Vec::new();
    edits(old, &target, now, &RelPath::ROOT, &mut local_edits);
    local_edits.sort();
    PullPlan {
        plan: plan(&target, now, Options::default()),
        local_edits,
        held_back: held,
        target,
    }
}

/// Paths where `now` is neither what was agreed nor what it shall become.
fn edits(
    old: &Directory,
    new: &Directory,
    now: &Directory,
    path: &RelPath,
    found: &mut Vec<RelPath>,
) {
    if now.hash() == old.hash() || now.hash() == new.hash() {
        return;
    }
    let empty = Directory::empty();
    let mut names: Vec<&Name> = [old, now]
        .iter()
        .flat_map(|tree| tree.entries().iter().map(|(name, _)| name))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let bytes = name.as_bytes();
        let (was, wanted, is) = (old.get(bytes), new.get(bytes), now.get(bytes));
        if same(was, is) || same(wanted, is) {
            continue;
        }
        let here = path.join(name);
        match (was, is) {
            // A pull never makes it here: that it is not there is nobody's edit.
            (Some(Entry::Special(_)), None) => {}
            (_, Some(Entry::Directory(now))) if now.entries().is_empty() => {
                // Emptied or made here: it is told only where no entry below tells it.
                let before = found.len();
                edits(below(was, &empty), below(wanted, &empty), now, &here, found);
                if found.len() == before && !has_only_special(was) {
                    found.push(here);
                }
            }
            (_, Some(Entry::Directory(now))) => {
                edits(below(was, &empty), below(wanted, &empty), now, &here, found);
            }
            (
                Some(Entry::File(_) | Entry::Link(_) | Entry::Special(_) | Entry::Directory(_))
                | None,
                Some(Entry::File(_) | Entry::Link(_) | Entry::Special(_)) | None,
            ) => found.push(here),
        }
    }
}

/// Whether a directory has nothing that a pull makes: then it was empty here from the start.
fn has_only_special(entry: Option<&Entry>) -> bool {
    let Some(Entry::Directory(directory)) = entry else {
        return false;
    };
    let mut entries = directory.entries().iter();
    entries.all(|(_, entry)| matches!(entry, Entry::Special(_)))
}
