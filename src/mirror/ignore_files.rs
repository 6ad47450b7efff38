//! The files of a workspace that name what is excluded: read when a mirror begins, and only
//! compared afterwards.

use std::io::Read as _;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::{End, MirrorError};
use super::excludes::{BadPattern, Excludes, FILE, Frozen, PATTERNS_MAX};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::{Name, RelPath};
use crate::tree::root::Root;

/// Adds the text of each [`FILE`] below a root that is in no excluded directory.
///
/// # Errors
/// When a directory or such a file cannot be read, or it holds what is no pattern: what it was to
/// keep in would go out.
pub(super) fn added(root: &Root, mut frozen: Frozen) -> Result<Frozen, MirrorError> {
    let mut excludes = Excludes::new(&frozen)?;
    let mut waiting = vec![RelPath::ROOT];
    while let Some(directory) = waiting.pop() {
        let Some((file, below)) = listed(root, &directory).map_err(unread(&directory))? else {
            continue;
        };
        if file {
            let path = below_name(&directory).ok_or(BadPattern::TooMany(0))?;
            frozen.add_file(directory.clone(), &text(root, &path)?)?;
            excludes = Excludes::new(&frozen)?;
        }
        let inside = below.iter().map(|name| directory.join(name));
        waiting.extend(inside.filter(|path| !excludes.is_excluded(path, true)));
    }
    Ok(frozen)
}

/// The directories whose [`FILE`] is not what was fixed when the mirror began.
pub(super) fn changed(frozen: &Frozen, tree: &Directory) -> Vec<RelPath> {
    let mut changed = Vec::new();
    for directory in Frozen::places(tree) {
        let now = below_name(&directory).and_then(|path| match tree.find(&path) {
            Some(Entry::File(file)) => Some(file.content),
            Some(Entry::Directory(_) | Entry::Link(_) | Entry::Special(_)) | None => None,
        });
        let was = frozen.files.get(&directory);
        if was.map(|text| ContentId::of(text.as_bytes())) != now {
            changed.push(directory);
        }
    }
    let gone = frozen
        .files
        .keys()
        .filter(|directory| below_name(directory).is_none_or(|path| tree.find(&path).is_none()));
    changed.extend(gone.cloned());
    changed.sort();
    changed.dedup();
    changed
}

fn below_name(directory: &RelPath) -> Option<RelPath> {
    Some(directory.join(&Name::new(FILE.as_bytes()).ok()?))
}

fn unread(path: &RelPath) -> impl FnOnce(Errno) -> MirrorError {
    let path = path.clone();
    move |error| incomplete(path, error.to_string())
}

fn incomplete(path: RelPath, why: String) -> MirrorError {
    MirrorError::Incomplete {
        end: End::Local,
        problems: vec![(path, why)],
        count: 1,
    }
}

/// Whether a directory has a [`FILE`], and the directories in it; nothing when it is gone or another
/// file system's.
fn listed(root: &Root, path: &RelPath) -> Result<Option<(bool, Vec<Name>)>, Errno> {
    let opened = match root.directory(path) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::XDEV | Errno::NOTDIR | Errno::LOOP) if !path.is_root() => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut has_file = false;
    let mut below = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") {
            continue;
        }
        has_file |= bytes == FILE.as_bytes();
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let seen = rustix::fs::statat(&opened, bytes, AtFlags::SYMLINK_NOFOLLOW);
                seen.map(|seen| FileType::from_raw_mode(seen.st_mode))
            }
            kind => Ok(kind),
        };
        // The scan says what is wrong with a name that no path can have.
        if let (Ok(FileType::Directory), Ok(name)) = (kind, Name::new(bytes)) {
            below.push(name);
        }
    }
    Ok(Some((has_file, below)))
}

fn text(root: &Root, path: &RelPath) -> Result<Vec<u8>, MirrorError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let no_file = || {
        let why = "it is no file, and what it should exclude cannot be known";
        incomplete(path.clone(), why.to_owned())
    };
    let opened = match root.open_at(path, flags, Mode::empty()) {
        // A link, which is never followed, or a socket.
        Err(Errno::LOOP | Errno::NXIO) => return Err(no_file()),
        opened => opened.map_err(unread(path))?,
    };
    let seen = rustix::fs::fstat(&opened).map_err(unread(path))?;
    if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
        return Err(no_file());
    }
    let most = u64::try_from(PATTERNS_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    std::fs::File::from(opened)
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| incomplete(path.clone(), error.to_string()))?;
    if bytes.len() > PATTERNS_MAX {
        return Err(BadPattern::TooMany(bytes.len()).into());
    }
    Ok(bytes)
}
