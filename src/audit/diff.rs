//! What differs between two trees, as unified diffs for a person to read.
//!
//! Names and lines are foreign: they are escaped, so that what is printed is exactly what is there
//! and nothing that a terminal obeys. It is no patch to be applied.

use std::io::Read as _;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use super::changes::{Sides, changes};
use super::view::text;
use crate::escape::escape_capped;
use crate::mirror::store::Store;
use crate::report::Failure;
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, File, SpecialKind};
use crate::tree::path::RelPath;

/// Longest file whose lines are compared, bytes; of longer ones it is told that they differ.
pub const COMPARED_MAX: u64 = 8 * 1024 * 1024;
/// How long the lines of one file are compared; then what is left of it is told as replaced.
pub const COMPARED_FOR: Duration = Duration::from_secs(5);
/// Characters of a line that are shown.
pub const LINE_MAX: usize = 4_096;
/// Lines around a change.
const CONTEXT: usize = 3;
/// A file with a NUL among its first bytes is no text.
const LOOKED_AT: usize = 8_192;

/// Prints what makes `old` to `new`; gives the number of paths that differ. `print` takes one line,
/// and says whether anybody still reads.
///
/// # Errors
/// When a content cannot be read, or nobody takes the lines.
pub fn diff(
    old: &Directory,
    new: &Directory,
    store: &Store,
    print: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let mut count = 0_u64;
    let mut done = Ok(true);
    changes(old, new, &mut |path, sides| {
        count = count.saturating_add(1);
        if matches!(done, Ok(true)) {
            done = one(path, sides, store, print);
        }
    });
    done.map(|_| count)
}

/// What stands at a path, in a word.
pub fn kind(entry: Option<&Entry>) -> &'static str {
    match entry {
        None => "nothing",
        Some(Entry::File(file)) if file.executable => "executable file",
        Some(Entry::File(_)) => "file",
        Some(Entry::Directory(_)) => "directory",
        Some(Entry::Link(_)) => "symlink",
        Some(Entry::Special(SpecialKind::Fifo)) => "pipe",
        Some(Entry::Special(SpecialKind::Socket)) => "socket",
        Some(Entry::Special(SpecialKind::Mountpoint)) => "mountpoint",
        Some(Entry::Special(SpecialKind::CharacterDevice | SpecialKind::BlockDevice)) => "device",
    }
}

fn one(
    path: &RelPath,
    sides: Sides<'_>,
    store: &Store,
    print: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let name = text(path);
    print(&format!("diff a/{name} b/{name}"))?;
    let (was, is) = (kind(sides.old), kind(sides.new));
    if was != is {
        print(&format!("{was} -> {is}"))?;
    }
    if let Some(Entry::Link(link)) = sides.old {
        print(&format!("-{}", escape_capped(link.as_bytes(), LINE_MAX)))?;
    }
    if let Some(Entry::Link(link)) = sides.new {
        print(&format!("+{}", escape_capped(link.as_bytes(), LINE_MAX)))?;
    }
    let seen = |entry: Option<&Entry>| match entry {
        Some(Entry::File(file)) => file.seen,
        Some(Entry::Directory(directory)) => directory.seen(),
        Some(Entry::Link(_) | Entry::Special(_)) | None => crate::tree::entry::Seen::default(),
    };
    for (now, bit) in [
        (seen(sides.new).setuid && !seen(sides.old).setuid, "setuid"),
        (seen(sides.new).setgid && !seen(sides.old).setgid, "setgid"),
    ] {
        if now {
            print(&format!("{bit} bit set"))?;
        }
    }
    let file = |entry: Option<&Entry>| match entry {
        Some(Entry::File(file)) => Some(file.clone()),
        Some(Entry::Directory(_) | Entry::Link(_) | Entry::Special(_)) | None => None,
    };
    match (file(sides.old), file(sides.new)) {
        (None, None) => print(""),
        (Some(old), Some(new)) if old.content == new.content => print(""),
        (old, new) => contents(&name, old.as_ref(), new.as_ref(), store, print),
    }
}

fn contents(
    name: &str,
    old: Option<&File>,
    new: Option<&File>,
    store: &Store,
    print: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let size = |file: Option<&File>| file.map_or(0, |file| file.size);
    let (was, is) = (size(old), size(new));
    if was.max(is) > COMPARED_MAX {
        return print(&format!("too long to be compared: {was} -> {is} bytes"));
    }
    let (old, new) = (read(name, old, store)?, read(name, new, store)?);
    if is_binary(&old) || is_binary(&new) {
        return print(&format!("no text: {was} -> {is} bytes"));
    }
    let (old, new) = (lines(&old), lines(&new));
    print(&format!("--- a/{name}"))?;
    print(&format!("+++ b/{name}"))?;
    let deadline = Some(Instant::now() + COMPARED_FOR);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    for hunk in group_diff_ops(ops, CONTEXT) {
        if !print_hunk(&hunk, &old, &new, print)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn print_hunk(
    hunk: &[DiffOp],
    old: &[&[u8]],
    new: &[&[u8]],
    print: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return Ok(true);
    };
    let span = |from: usize, to: usize| {
        let length = to.saturating_sub(from);
        // Of no lines the one before is named, as diff does.
        let from = if length == 0 {
            from
        } else {
            from.saturating_add(1)
        };
        format!("{from},{length}")
    };
    print(&format!(
        "@@ -{} +{} @@",
        span(first.old_range().start, last.old_range().end),
        span(first.new_range().start, last.new_range().end)
    ))?;
    let mut go_on = true;
    let mut side = |mark: char, lines: Option<&[&[u8]]>| -> Result<(), Failure> {
        for line in lines.unwrap_or_default() {
            if !go_on {
                break;
            }
            go_on = print_line(mark, line, print)?;
        }
        Ok(())
    };
    for op in hunk {
        match op {
            DiffOp::Equal { .. } => side(' ', old.get(op.old_range()))?,
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                side('-', old.get(op.old_range()))?;
                side('+', new.get(op.new_range()))?;
            }
        }
    }
    Ok(go_on)
}

fn print_line(
    mark: char,
    line: &[u8],
    print: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let (body, ended) = match line.strip_suffix(b"\n") {
        Some(body) => (body, true),
        None => (line, false),
    };
    // A tab moves to the next stop and does no harm.
    let parts = body.split(|byte| *byte == b'\t');
    let shown: Vec<String> = parts.map(|part| escape_capped(part, LINE_MAX)).collect();
    let go_on = print(&format!("{mark}{}", shown.join("\t")))?;
    if ended {
        return Ok(go_on);
    }
    print("\\ No newline at end of file")
}

fn read(name: &str, file: Option<&File>, store: &Store) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let Some(file) = file else { return Ok(bytes) };
    let unreadable = |error: &dyn std::error::Error| {
        Failure::because(format!("the content of {name} cannot be read"), error)
            .hint("labproxy audit verify says what else is damaged")
    };
    let content = store
        .open_content(&file.content)
        .map_err(|error| unreadable(&error))?;
    let read = content.take(COMPARED_MAX).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&error))?;
    Ok(bytes)
}

fn is_binary(bytes: &[u8]) -> bool {
    let looked_at = bytes.get(..LOOKED_AT).unwrap_or(bytes);
    looked_at.contains(&0)
}

/// The lines of a text, each with its end.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}
