//! The directories of a tree that are not left alone, one after the other, without following a link.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType};

use super::{Deaf, Skip};
use crate::tree::limits::ENTRIES_MAX;
use crate::tree::path::{Name, RelPath};
use crate::tree::root::Root;

/// What is done on the way.
pub(super) trait Visit {
    /// A directory, before it is listed.
    fn directory(&mut self, path: &RelPath, opened: BorrowedFd<'_>) -> Result<(), Deaf>;
    /// An entry of one.
    fn entry(&mut self, path: &RelPath, directory: BorrowedFd<'_>, name: &Name);
}

/// Walks from a directory down. What is gone or cannot be read is passed over: the push that
/// follows reads it too, and says so. A tree beyond a mirror's limits is walked as far as they go.
pub(super) fn walk(
    root: &Root,
    from: &RelPath,
    skip: Skip<'_>,
    visit: &mut dyn Visit,
) -> Result<(), Deaf> {
    let mut left = vec![from.clone()];
    let mut entries = 0;
    while let Some(path) = left.pop() {
        let Ok(opened) = root.directory(&path) else {
            continue;
        };
        visit.directory(&path, opened.as_fd())?;
        let Ok(listed) = Dir::read_from(&opened) else {
            continue;
        };
        for entry in listed {
            let Ok(entry) = entry else { break };
            let bytes = entry.file_name().to_bytes();
            let Ok(name) = Name::new(bytes) else {
                continue;
            };
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => is_directory_at(opened.as_fd(), &name).unwrap_or(false),
                FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice => false,
            };
            let entry = path.join(&name);
            if skip(&entry, is_directory) {
                continue;
            }
            visit.entry(&entry, opened.as_fd(), &name);
            entries += 1;
            if entries > ENTRIES_MAX {
                return Ok(());
            }
            if is_directory {
                left.push(entry);
            }
        }
    }
    Ok(())
}

/// Whether a directory stands at a path; nothing when nothing does.
pub(super) fn is_directory(root: &Root, path: &RelPath) -> Option<bool> {
    let (parent, name) = root.parent(path).ok()?;
    is_directory_at(parent.as_fd(), &name)
}

fn is_directory_at(directory: BorrowedFd<'_>, name: &Name) -> Option<bool> {
    let seen = rustix::fs::statat(directory, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(seen.st_mode) == FileType::Directory)
}
