//! Looking for edits where none can be heard of: what the file system says of each entry.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType};

use super::walk::{Visit, walk};
use super::{Deaf, Skip};
use crate::tree::path::{Name, RelPath};
use crate::tree::root::Root;
use crate::tree::stamp::Stamp;

/// What a tree looked like. Two that are equal may still differ in what a file holds: it is a hint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(u128);

/// Looks at a tree, without reading a file.
pub(super) fn fingerprint(root: &Root, skip: Skip<'_>) -> Fingerprint {
    let mut look = Look(0);
    match walk(root, &RelPath::ROOT, skip, &mut look) {
        // This visit never stops.
        Ok(()) | Err(_) => Fingerprint(look.0),
    }
}

/// A sum over all entries, so that the order in which directories list them does not matter.
struct Look(u128);

impl Visit for Look {
    fn directory(&mut self, _path: &RelPath, _opened: BorrowedFd<'_>) -> Result<(), Deaf> {
        Ok(())
    }

    fn entry(&mut self, path: &RelPath, directory: BorrowedFd<'_>, name: &Name) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let Ok(seen) = rustix::fs::statat(directory, name.as_os_str(), flags) else {
            return;
        };
        let stamp = Stamp::of(&seen);
        let mut hasher = blake3::Hasher::new();
        hasher.update(path.as_bytes());
        hasher.update(b"\0");
        if stamp.kind() == FileType::Directory {
            // Its times change with what is left alone in it.
            hasher.update(&stamp.mode.to_le_bytes());
        } else {
            hasher.update(format!("{stamp:?}").as_bytes());
        }
        let mut first = [0; 16];
        hasher.finalize_xof().fill(&mut first);
        self.0 = self.0.wrapping_add(u128::from_le_bytes(first));
    }
}
