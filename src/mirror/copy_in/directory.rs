//! A directory that is brought: read through its descriptor, following nothing.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};

use super::staged::{Growing, NotTaken, Staging};
use super::{CopyInError, Refusal, Refusals};
use crate::tree::entry::{Entry, File, Seen, SpecialKind};
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::{self, Scan};
use crate::tree::stamp::Stamp;

/// Reads it: everything is judged before any file is copied.
pub(super) fn read(
    path: &Path,
    to: &RelPath,
    (tree, staging): (&mut Growing, &mut Staging),
    cancel: &AtomicBool,
) -> Result<Refusals, CopyInError> {
    let unreadable = |why: String| CopyInError::unreadable(path, &why);
    let root = Root::open(path).map_err(|error| unreadable(error.to_string()))?;
    let counters = scan::Progress::default();
    let options = scan::Options {
        limits: *tree.limits(),
        threads: scan::processors(),
        skip: None,
        progress: &counters,
        cancel,
    };
    let seen = scan::scan(&root, path, options).map_err(|error| unreadable(error.to_string()))?;
    let mut refusals = Refusals::default();
    for problem in &seen.problems {
        let why = Refusal::Unreadable(problem.trouble.to_string());
        refusals.add(problem.path.as_bytes(), why);
    }
    seen.tree.walk(&mut |path, entry| {
        if let Err(why) = judge(entry) {
            refusals.add(path.as_bytes(), why);
        }
    });
    if !refusals.is_empty() {
        return Ok(refusals);
    }
    let mut all = Vec::new();
    seen.tree.walk(&mut |path, entry| match entry {
        Entry::File(file) => all.push((path.clone(), Some(file))),
        Entry::Directory(_) => all.push((path.clone(), None)),
        // Judged above.
        Entry::Link(_) | Entry::Special(_) => {}
    });
    for (path, file) in all {
        match put(&path, file, to, (tree, staging), (&root, &seen)) {
            Ok(()) => {}
            Err(NotPut::Refused(why)) => refusals.add(path.as_bytes(), why),
            Err(NotPut::Disk(error)) => return Err(CopyInError::Staging(error)),
        }
    }
    Ok(refusals)
}

enum NotPut {
    Refused(Refusal),
    Disk(std::io::Error),
}

impl From<Refusal> for NotPut {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn put(
    path: &RelPath,
    file: Option<&File>,
    to: &RelPath,
    (tree, staging): (&mut Growing, &mut Staging),
    (root, seen): (&Root, &Scan),
) -> Result<(), NotPut> {
    let place = super::below(to, path.as_bytes())?;
    let Some(file) = file else {
        return Ok(tree.directory(&place)?);
    };
    let changed = || Refusal::Unreadable("it changed while it was read".to_owned());
    let system = |error: rustix::io::Errno| Refusal::Unreadable(error.to_string());
    tree.reserve(file.size)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root.open_at(path, flags, Mode::empty()).map_err(system)?;
    let now = Stamp::of(&rustix::fs::fstat(&opened).map_err(system)?);
    if !seen
        .stamps
        .get(path)
        .is_some_and(|was| now.is_same_file(was))
    {
        return Err(changed().into());
    }
    let content = match staging.take(&mut std::fs::File::from(opened), file.size) {
        Ok(content) if content == file.content => content,
        Ok(_) | Err(NotTaken::Size) => return Err(changed().into()),
        Err(NotTaken::Source(error)) => {
            return Err(Refusal::Unreadable(error.to_string()).into());
        }
        Err(NotTaken::Disk(error)) => return Err(NotPut::Disk(error)),
    };
    let file = File {
        size: file.size,
        executable: file.executable,
        content,
        seen: Seen::default(),
    };
    Ok(tree.file(&place, file)?)
}

fn judge(entry: &Entry) -> Result<(), Refusal> {
    let seen = match entry {
        Entry::Link(_) => return Err(Refusal::Symlink),
        Entry::Special(SpecialKind::Fifo) => return Err(Refusal::Fifo),
        Entry::Special(SpecialKind::Socket) => return Err(Refusal::Socket),
        Entry::Special(SpecialKind::CharacterDevice | SpecialKind::BlockDevice) => {
            return Err(Refusal::Device);
        }
        Entry::Special(SpecialKind::Mountpoint) => return Err(Refusal::Mountpoint),
        Entry::File(file) => file.seen,
        Entry::Directory(directory) => directory.seen(),
    };
    if seen.hard_link != 0 && matches!(entry, Entry::File(_)) {
        return Err(Refusal::HardLink);
    }
    if seen.setuid || seen.setgid {
        return Err(Refusal::Setuid);
    }
    Ok(())
}
