//! Telling what the last scan saw: directories, and the groups of large contents.

use std::borrow::Cow;

use super::Line;
use crate::tree::content::Groups;
use crate::tree::directory::{Directory, Listed};
use crate::tree::path::{Name, RelPath};
use crate::wire::mirror::FromMirror;

/// Bytes of a listing in one message, as they are counted here.
const PART_BYTES: usize = 256 * 1024;
/// An entry without its name and text: kinds, sizes, hashes.
const ENTRY_BYTES: usize = 64;
/// Groups in one message: 512 KiB of values.
const GROUPS: usize = 16 * 1024;

/// Lists one directory.
pub(super) fn list(line: &mut Line, tree: &Directory, path: &RelPath) -> Result<(), String> {
    let directory = tree.directory(path).ok_or_else(|| {
        let path = path.as_bytes().escape_ascii();
        format!("the controller asked for a directory that the scan has not: {path}")
    })?;
    let (mut part, mut bytes) = (Vec::new(), 0);
    for (name, entry) in directory.entries() {
        let entry = entry.listed();
        let length = length_of(name, &entry);
        if bytes + length > PART_BYTES {
            let entries = std::mem::take(&mut part);
            line.say(&FromMirror::Listing {
                entries,
                last: false,
            })?;
            bytes = 0;
        }
        part.push((name.clone(), entry));
        bytes += length;
    }
    line.say(&FromMirror::Listing {
        entries: part,
        last: true,
    })
}

fn length_of(name: &Name, entry: &Listed) -> usize {
    let text = match entry {
        Listed::Link(text) => text.as_bytes().len(),
        Listed::File(_) | Listed::Directory { .. } | Listed::Special(_) => 0,
    };
    ENTRY_BYTES + name.as_bytes().len() + text
}

/// Tells the values of a content's groups; an empty list where there are none.
pub(super) fn groups(line: &mut Line, groups: Option<&Groups>) -> Result<(), String> {
    let values = groups.map_or(&[][..], Groups::values);
    let mut parts = values.chunks(GROUPS).peekable();
    loop {
        let part = parts.next().unwrap_or_default();
        let last = parts.peek().is_none();
        line.say(&FromMirror::Groups {
            values: Cow::Owned(part.concat()),
            last,
        })?;
        if last {
            return Ok(());
        }
    }
}
