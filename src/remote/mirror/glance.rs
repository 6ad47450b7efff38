//! A look at files without reading them, so that the controller knows early which have changed.

use rustix::fs::{FileType, Mode, OFlags};

use super::Line;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::stamp::Stamp;
use crate::wire::mirror::{ASKED_MAX, FromMirror, Glimpse};

/// Nothing is opened: a device or a pipe may stand there.
#[cfg(target_os = "linux")]
const PLACE: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PLACE: OFlags = OFlags::NONBLOCK;

/// Tells what these files look like.
pub(super) fn glance(line: &mut Line, root: &Root, files: &[RelPath]) -> Result<(), String> {
    if files.len() > ASKED_MAX {
        return Err("too many files in one order".to_owned());
    }
    let seen = files.iter().map(|path| look(root, path)).collect();
    line.say(&FromMirror::Glanced { seen })
}

fn look(root: &Root, path: &RelPath) -> Option<Glimpse> {
    let opened = root.open_at(path, PLACE, Mode::empty()).ok()?;
    let stamp = Stamp::of(&rustix::fs::fstat(&opened).ok()?);
    (stamp.kind() == FileType::RegularFile).then_some(Glimpse {
        inode: stamp.inode,
        size: stamp.size,
        modified: stamp.modified,
        changed: stamp.changed,
    })
}
