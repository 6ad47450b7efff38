//! A large file that is read and written anew in one pass, when it is known early that it will be
//! replaced: its bytes are hashed once, to tell what stood there and to prove what is taken over.

use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;

use super::super::entry::File;
use super::super::path::RelPath;
use super::super::root::Root;
use super::super::scan::{Late, Unread, processors};
use super::ahead::Unnamed;
use super::ground::Ground;
use super::grouped::{self, Grouped};
use super::outcome::Undone;
use super::{Contents, Modes, WRITERS_MAX};

/// Writes a new inode for the file at a path, and reads the one that stands there. Gives both, until
/// `cancel` is set; nothing where that is not how it can be done: what stands there is no file, has
/// several names, changes or cannot be read, the new content has no groups, or there is no room. Then
/// the tree is as it was, and whoever reads and writes on the usual way hears why.
pub fn rewrite(
    root: &Root,
    path: &RelPath,
    contents: &dyn Contents,
    file: &File,
    cancel: &AtomicBool,
) -> Option<(Unnamed, Late)> {
    rewritten(root, path, contents, file, cancel).ok().flatten()
}

fn rewritten(
    root: &Root,
    path: &RelPath,
    contents: &dyn Contents,
    file: &File,
    cancel: &AtomicBool,
) -> Result<Option<(Unnamed, Late)>, Undone> {
    let Some(unread) = Unread::open(root, path)? else {
        return Ok(None);
    };
    let Some(parts) = grouped::open(contents, file)? else {
        return Ok(None);
    };
    let unnamed = Unnamed::near(root, path)?;
    let mut ground = Ground::new(root, contents, Modes::PRIVATE)?;
    ground.cancel = Some(cancel);
    let groups = parts.groups().clone();
    let new = Grouped::new(&ground, file, groups, unnamed.as_fd(), Some(unread.file()));
    let threads = processors().min(WRITERS_MAX);
    let had = new.telling(unread.size()).write(parts, threads)?;
    let late = match had {
        Some(had) => unread.known(had)?,
        None => None,
    };
    Ok(late.map(|late| (unnamed, late)))
}
