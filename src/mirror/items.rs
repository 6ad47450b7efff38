//! What a plan does, path by path, for a person.

use super::plan::PARKED;
use crate::tree::directory::Directory;
use crate::tree::path::RelPath;
use crate::tree::step::Step;

/// What happens to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What.
    pub what: What,
    /// Which path, as it is afterwards.
    pub path: RelPath,
    /// Where it was, or what it is copied from.
    pub from: Option<RelPath>,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It is made where nothing was.
    New,
    /// It is replaced, or its mode changes.
    Changed,
    /// It is renamed.
    Moved,
    /// It is made as another file that is there.
    Copied,
    /// It is removed.
    Deleted,
}

impl What {
    /// The word for it, also in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Moved => "moved",
            Self::Copied => "copied",
            Self::Deleted => "deleted",
        }
    }
}

/// The items of steps that are done to a tree, in the steps' order. A file that only waits under
/// another name until its place is free is none, and comes from where it was before.
pub fn items(steps: &[Step], before: &Directory) -> Vec<Item> {
    let mut moves: Vec<(&RelPath, &RelPath)> = Vec::new();
    let mut items = Vec::new();
    for step in steps {
        let stood = || before.find(&origin(step.target(), &moves)).is_some();
        let made = || if stood() { What::Changed } else { What::New };
        let (what, from) = match step {
            Step::MakeDirectory { .. } => (What::New, None),
            Step::Write { .. } | Step::Link { .. } => (made(), None),
            Step::SetExecutable { .. } => (What::Changed, None),
            Step::Move { from, to } => {
                moves.push((from, to));
                (What::Moved, Some(from))
            }
            Step::Copy { from, to, .. } if is_parked(to) => {
                moves.push((from, to));
                (What::Copied, Some(from))
            }
            Step::Copy { from, .. } if stood() => (What::Changed, Some(from)),
            Step::Copy { from, .. } => (What::Copied, Some(from)),
            Step::Remove { .. } | Step::RemoveDirectory { .. } => (What::Deleted, None),
        };
        if !is_parked(step.target()) {
            items.push(Item {
                what,
                path: step.target().clone(),
                from: from.map(|from| {
                    if is_parked(from) {
                        origin(from, &moves)
                    } else {
                        from.clone()
                    }
                }),
            });
        }
    }
    items
}

/// Where a path was before some moves.
fn origin(path: &RelPath, moves: &[(&RelPath, &RelPath)]) -> RelPath {
    let mut path = path.clone();
    for (from, to) in moves.iter().rev() {
        if let Some(before) = path.rebase(to, from) {
            path = before;
        }
    }
    path
}

fn is_parked(path: &RelPath) -> bool {
    path.depth() == 1 && path.as_bytes().starts_with(PARKED.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::content::ContentId;
    use crate::tree::entry::{Entry, File, Seen};

    #[test]
    fn a_file_in_a_moved_directory_is_changed_and_not_new() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let file = File {
            size: 1,
            executable: false,
            content: ContentId::of(b"x"),
            seen: Seen::default(),
        };
        let below = vec![(name("a"), Entry::File(file.clone()))];
        let below = Directory::new(below, Seen::default()).unwrap();
        let before = vec![(name("d"), Entry::Directory(below))];
        let before = Directory::new(before, Seen::default()).unwrap();
        let write = |to: &str| Step::Write {
            path: path(to),
            file: file.clone(),
        };
        let renamed = Step::Move {
            from: path("d"),
            to: path("e"),
        };
        let items = items(&[renamed, write("e/a"), write("e/b")], &before);
        let words: Vec<_> = items.iter().map(|item| item.what.word()).collect();
        assert_eq!(words, ["moved", "changed", "new"]);
    }

    /// The name under which a file waits is nobody's business.
    #[test]
    fn a_file_that_waited_comes_from_where_it_was() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let waits = format!("{PARKED}0");
        let moved = |from: &str, to: &str| Step::Move {
            from: path(from),
            to: path(to),
        };
        let copied = Step::Copy {
            from: path("a"),
            to: path(&waits),
            file: File {
                size: 1,
                executable: false,
                content: ContentId::of(b"x"),
                seen: Seen::default(),
            },
        };
        for first in [moved("a", &waits), copied] {
            let steps = [first, moved("b", "a"), moved(&waits, "b")];
            let from: Vec<_> = items(&steps, &Directory::empty())
                .into_iter()
                .map(|item| (item.path, item.from.unwrap()))
                .collect();
            assert_eq!(from, [(path("a"), path("b")), (path("b"), path("a"))]);
        }
    }

    use crate::tree::path::Name;
}
