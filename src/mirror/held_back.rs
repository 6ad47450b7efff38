//! What of a pulled tree waits for a person before it comes into the workspace, because a program of
//! theirs would run it: `docs/held-back.md` has the table.
//!
//! Inside every git directory these are its configuration, hooks and what leads to others; objects,
//! refs, index and HEAD flow, so that commits arrive. A git directory is what is named `.git`, and
//! every directory that git would take for one (HEAD beside objects and refs, or beside
//! `commondir`): bare repositories, submodules and worktrees. A directory that becomes one is held
//! back by its HEAD as long as it holds something that would have been held back. What git has
//! locked when it is read waits too, for another reason: it would stop git here. Outside, they are
//! files that a shell, an editor or an agent runs by itself. Only what differs from the agreed tree
//! waits. Names are compared as file systems do that fold case or drop invisible letters.

mod names;
mod without;

pub(super) use self::without::without;

use self::names::{AUTO_RUN, AUTO_RUN_DIRECTORIES, IN_GIT, IN_GIT_DIRECTORIES, LOCK, folded};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::{Name, RelPath};

/// A path of a pulled tree that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub path: RelPath,
    /// What a program would do with it.
    pub why: &'static str,
}

/// Why the HEAD of a directory waits that holds what was never judged as part of a repository.
const BECOMES: &str = "git would take the directory for a repository, with a configuration or hooks that were pulled as plain files";
/// Why all waits.
const ENDLESS: &str = "what it would make of the workspace could not be judged to its end";
/// Why what is named `.git` and is no directory waits.
const ELSEWHERE: &str = "git takes its configuration and hooks from where it points";

/// Times that what waits is judged again: what stays because of it may, beside what comes, be another
/// repository. Trees that people make need two.
pub const ROUNDS_MAX: usize = 32;

/// What of `new` waits, by path. `old` is the tree that was agreed last.
pub fn held_back(old: &Directory, new: &Directory) -> Vec<Held> {
    let mut held = judged(old, new);
    for _ in 0..ROUNDS_MAX {
        let more = judged(old, &without(old, new, &held));
        if more.is_empty() {
            return held;
        }
        held.extend(more);
        held.sort_by(|one, other| one.path.cmp(&other.path));
    }
    everything(old, new)
}

/// All that differs: of a tree that was made to be judged without end nothing comes.
fn everything(old: &Directory, new: &Directory) -> Vec<Held> {
    let names = names_of(old, new).into_iter();
    let differ = names.filter(|name| !same(old.get(name.as_bytes()), new.get(name.as_bytes())));
    differ
        .map(|name| Held {
            path: RelPath::ROOT.join(name),
            why: ENDLESS,
        })
        .collect()
}

fn names_of<'a>(old: &'a Directory, new: &'a Directory) -> Vec<&'a Name> {
    let both = [old, new].into_iter();
    let mut names: Vec<&Name> = both
        .flat_map(|tree| tree.entries().iter().map(|(name, _)| name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn judged(old: &Directory, new: &Directory) -> Vec<Held> {
    let mut walk = Walk {
        held: Vec::new(),
        above: Vec::new(),
    };
    walk.directory(old, new, &RelPath::ROOT);
    walk.held.sort_by(|one, other| one.path.cmp(&other.path));
    walk.held.dedup_by(|one, other| one.path == other.path);
    walk.held
}

struct Walk {
    held: Vec<Held>,
    /// The directories that the walk is in, the root first.
    above: Vec<Above>,
}

struct Above {
    /// Its name, folded.
    name: Vec<u8>,
    /// Git would use it.
    is_git: bool,
    /// Everything in it waits.
    whole: Option<&'static str>,
}

impl Walk {
    fn directory(&mut self, old: &Directory, new: &Directory, path: &RelPath) {
        if old.hash() == new.hash() {
            return;
        }
        let name = path
            .components()
            .next_back()
            .map(folded)
            .unwrap_or_default();
        let is_bare = is_repository(new) || is_repository(old);
        let is_named = name == b".git";
        let whole = self.above.last().and_then(|above| above.whole);
        let whole =
            whole.or_else(|| self.reason(&name, AUTO_RUN_DIRECTORIES, IN_GIT_DIRECTORIES, false));
        if is_repository(new) && !is_repository(old) && !is_named {
            self.becomes(old, new, path);
        }
        self.above.push(Above {
            name,
            is_git: is_named || is_bare,
            whole,
        });
        for name in names_of(old, new) {
            let (was, is) = (old.get(name.as_bytes()), new.get(name.as_bytes()));
            self.entry(was, is, name, &path.join(name));
        }
        self.above.pop();
    }

    fn entry(&mut self, was: Option<&Entry>, is: Option<&Entry>, name: &Name, path: &RelPath) {
        if same(was, is) {
            return;
        }
        let empty = Directory::empty();
        let is_directory = |entry: Option<&Entry>| matches!(entry, Some(Entry::Directory(_)));
        if is_directory(was) || is_directory(is) {
            self.directory(below(was, &empty), below(is, &empty), path);
        }
        // A directory alone does nothing; what is in it was judged. Where one is on one side only,
        // the other side's file or link is judged here.
        let plain = |entry: Option<&Entry>| entry.is_some() && !is_directory(entry);
        if !plain(was) && !plain(is) {
            return;
        }
        let name = folded(name.as_bytes());
        let whole = self.above.last().and_then(|above| above.whole);
        let elsewhere = (name == b".git").then_some(ELSEWHERE);
        let is_link = matches!(is, Some(Entry::Link(_)));
        let by_name = || {
            self.reason(&name, AUTO_RUN, IN_GIT, is_link)
                .or_else(|| self.reason(&name, AUTO_RUN_DIRECTORIES, IN_GIT_DIRECTORIES, is_link))
        };
        let locks = || {
            let in_git = self.above.iter().any(|above| above.is_git);
            (in_git && name.ends_with(LOCK.0)).then_some(LOCK.1)
        };
        if let Some(why) = whole.or(elsewhere).or_else(by_name).or_else(locks) {
            self.held.push(Held {
                path: path.clone(),
                why,
            });
        }
    }

    /// The reason of the lists for a name in the directory that the walk is in: anywhere by the
    /// first, below a git directory by the second. A link has the reason of what it leads to:
    /// `.claude` as a link is as good as the file in it.
    fn reason(
        &self,
        name: &[u8],
        anywhere: List,
        in_git: List,
        is_link: bool,
    ) -> Option<&'static str> {
        let fits = |path: &str, in_git: bool| {
            // Nearly every name ends here: nothing is split and looked for above.
            if !path.as_bytes().ends_with(name) {
                return false;
            }
            let git = self.above.len().checked_sub(path.split('/').count());
            let git = git.and_then(|at| self.above.get(at));
            (!in_git || git.is_some_and(|above| above.is_git)) && self.ends(name, path)
        };
        let find = |list: List, in_git| {
            list.iter().find(|(path, _)| {
                let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
                fits(path, in_git) || is_link && above.into_iter().any(|path| fits(path, in_git))
            })
        };
        let found = find(in_git, true).or_else(|| find(anywhere, false));
        found.map(|(_, why)| *why)
    }

    /// Whether a name, after those of the directories above it, ends with a path.
    fn ends(&self, name: &[u8], path: &str) -> bool {
        let above = self.above.iter().rev().map(|above| above.name.as_slice());
        let mut here = std::iter::once(name).chain(above);
        path.rsplit('/')
            .all(|part| here.next().is_some_and(|name| name == part.as_bytes()))
    }

    /// A directory becomes a repository: its HEAD waits while something in it would wait.
    fn becomes(&mut self, old: &Directory, new: &Directory, path: &RelPath) {
        let lists = IN_GIT.iter().chain(IN_GIT_DIRECTORIES);
        let holds_some = lists.map(|(at, _)| at).any(|at| has(old, at));
        if !holds_some {
            return;
        }
        for (name, _) in new.entries() {
            // Its HEAD or, where that was there, what else makes it a repository.
            let makes = ["head", "objects", "refs", "commondir"]
                .iter()
                .any(|part| folded(name.as_bytes()) == part.as_bytes());
            if makes && old.get(name.as_bytes()).is_none() {
                self.held.push(Held {
                    path: path.join(name),
                    why: BECOMES,
                });
            }
        }
    }
}

type List = &'static [(&'static str, &'static str)];

/// Whether git would take a directory for a git directory.
fn is_repository(directory: &Directory) -> bool {
    has(directory, "head")
        && (has(directory, "commondir") || (has(directory, "objects") && has(directory, "refs")))
}

/// Whether something stands below a directory under a folded path.
fn has(directory: &Directory, path: &str) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    directory.entries().iter().any(|(name, entry)| {
        let fits = folded(name.as_bytes()) == first.as_bytes();
        fits && match entry {
            Entry::Directory(below) => rest.is_empty() || has(below, rest),
            // A link may lead to whatever is asked for.
            Entry::Link(_) => true,
            Entry::File(_) | Entry::Special(_) => rest.is_empty(),
        }
    })
}

/// The directory that an entry is; the empty one when it is none.
pub(super) fn below<'a>(entry: Option<&'a Entry>, empty: &'a Directory) -> &'a Directory {
    match entry {
        Some(Entry::Directory(directory)) => directory,
        Some(Entry::File(_) | Entry::Link(_) | Entry::Special(_)) | None => empty,
    }
}

/// Whether what is mirrored of two entries is the same.
pub(super) fn same(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(Entry::Directory(one)), Some(Entry::Directory(other))) => one.hash() == other.hash(),
        (Some(Entry::File(one)), Some(Entry::File(other))) => {
            one.content == other.content && one.executable == other.executable
        }
        (Some(one), Some(other)) => one == other,
        (None, Some(_)) | (Some(_), None) => false,
    }
}
