//! Symlinks that lead out of their tree: named at each pull, since a program of the user's follows
//! them.
//!
//! Judged by text alone; nothing on a disk is looked at. A link leads out when its text is absolute,
//! when its `..` climb above the root, or when they do so because of another link of the tree on the
//! way.

use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, LinkText};
use crate::tree::path::RelPath;

/// Links that are followed on one way: what Linux follows.
pub const HOPS_MAX: usize = 40;
/// Names that are looked up for all links of a tree together: enough for a hundred thousand links
/// through others; a hostile tree must not take hours.
pub const LOOKUPS_MAX: u64 = 4_000_000;

/// A link that leads out, or may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Which link.
    pub path: RelPath,
    /// Its text.
    pub text: LinkText,
    /// How it leads out.
    pub way: Way,
}

/// How a link leads out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Way {
    /// Its text begins at the top of the file system.
    #[error("it is absolute")]
    Absolute,
    /// Its `..` climb above the root.
    #[error("it climbs above the root")]
    Above,
    /// It goes through another link that leads out, or with which it climbs above the root.
    #[error("it leads out through another link")]
    Through,
    /// It was not followed to its end: too many links on its way, or in the tree.
    #[error("it goes through too many links to tell")]
    Unknown,
}

/// The links of a tree that lead out of it, by path.
pub fn links_that_leave(tree: &Directory) -> Vec<Leaving> {
    let mut lookups = LOOKUPS_MAX;
    let mut leaving = Vec::new();
    tree.walk(&mut |path, entry| {
        if let Entry::Link(text) = entry
            && let Some(way) = way_out(tree, path, text, &mut lookups)
        {
            leaving.push(Leaving {
                path: path.clone(),
                text: text.clone(),
                way,
            });
        }
    });
    leaving
}

fn way_out(tree: &Directory, path: &RelPath, text: &LinkText, lookups: &mut u64) -> Option<Way> {
    let text = text.as_bytes();
    if text.starts_with(b"/") {
        return Some(Way::Absolute);
    }
    let mut depth = path.depth().saturating_sub(1);
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some(Way::Above),
            },
            _ => depth = depth.saturating_add(1),
        }
    }
    follow(tree, path, text, lookups)
}

/// Where a walk stands: in a directory of the tree, or in a place that is none.
type Here<'a> = Option<&'a Directory>;

/// Goes the way of a link as the system would.
fn follow(tree: &Directory, path: &RelPath, text: &[u8], lookups: &mut u64) -> Option<Way> {
    let mut above: Vec<Here<'_>> = Vec::new();
    let mut here: Here<'_> = Some(tree);
    let (parent, _) = path.split_last()?;
    for name in parent.components() {
        above.push(here);
        here = step(here, name).0;
    }
    let mut left: Vec<&[u8]> = text.rsplit(|byte| *byte == b'/').collect();
    let mut hops = 0;
    while let Some(part) = left.pop() {
        let Some(less) = lookups.checked_sub(1) else {
            return Some(Way::Unknown);
        };
        *lookups = less;
        if part == b".." {
            let Some(up) = above.pop() else {
                return Some(Way::Through);
            };
            here = up;
        } else if !matches!(part, b"" | b".") {
            let (next, link) = step(here, part);
            let Some(link) = link else {
                above.push(here);
                here = next;
                continue;
            };
            hops += 1;
            if hops > HOPS_MAX {
                return Some(Way::Unknown);
            }
            if link.as_bytes().starts_with(b"/") {
                return Some(Way::Through);
            }
            left.extend(link.as_bytes().rsplit(|byte| *byte == b'/'));
        }
    }
    None
}

/// What is under a name: where the walk stands then, or a link to be gone first.
fn step<'a>(here: Here<'a>, name: &[u8]) -> (Here<'a>, Option<&'a LinkText>) {
    match here.and_then(|directory| directory.get(name)) {
        Some(Entry::Directory(below)) => (Some(below), None),
        Some(Entry::Link(text)) => (None, Some(text)),
        Some(Entry::File(_) | Entry::Special(_)) | None => (None, None),
    }
}
