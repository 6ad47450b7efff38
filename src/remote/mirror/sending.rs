//! Sending contents that the controller wishes for, as the last scan saw them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags};

use super::Line;
use crate::tree::root::Root;
use crate::tree::stamp::{Stamp, Stamps};
use crate::wire::mirror::{FromMirror, Wish};
use crate::wire::pieces::Packer;

/// Sends the parts that are wished for, in order. A file that is not what the scan saw is told as
/// gone; so is one that changes while it is sent, and what came of it before is worth nothing.
pub(super) fn send(
    line: &mut Line,
    root: &Root,
    stamps: &Stamps,
    wishes: &[Wish],
    packs: bool,
) -> Result<(), String> {
    let mut packer = Packer::new(packs);
    for (wish, index) in wishes.iter().zip(0..) {
        let sent = match open(root, stamps, wish) {
            Some(file) => send_one(line, &mut packer, &file, wish, index)?,
            None => false,
        };
        if !sent {
            flush(line, &mut packer)?;
            line.say(&FromMirror::Gone { wish: index })?;
        }
    }
    flush(line, &mut packer)?;
    line.say(&FromMirror::Done)
}

fn send_one(
    line: &mut Line,
    packer: &mut Packer,
    file: &File,
    wish: &Wish,
    index: u32,
) -> Result<bool, String> {
    let (mut at, mut left) = (wish.offset, wish.length);
    loop {
        if packer.room() == 0 {
            flush(line, packer)?;
        }
        let part = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(packer.room());
        let read = packer.add(index, part, |buffer| file.read_at(buffer, at));
        let Ok(count) = read else { return Ok(false) };
        if count == 0 && left > 0 {
            return Ok(false);
        }
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        at = at.saturating_add(count);
        left = left.saturating_sub(count);
        if left == 0 {
            return Ok(true);
        }
    }
}

/// The file, when it is still the one that the scan saw.
pub(super) fn open(root: &Root, stamps: &Stamps, wish: &Wish) -> Option<File> {
    let seen = stamps.get(&wish.path)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root.open_at(&wish.path, flags, Mode::empty()).ok()?;
    let now = Stamp::of(&rustix::fs::fstat(&opened).ok()?);
    now.is_same_file(seen).then(|| opened.into())
}

fn flush(line: &mut Line, packer: &mut Packer) -> Result<(), String> {
    if packer.is_empty() {
        return Ok(());
    }
    line.say(&FromMirror::Pieces(packer.take()))
}
