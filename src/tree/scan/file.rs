//! One regular file: opened so that nothing else can be, and read until its bytes are known to
//! have been its bytes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::content::ContentId;
use super::super::path::Name;
use super::super::stamp::Stamp;
use super::clock::{self, Naps};
use super::sight::Sight;

/// How often a file is read that changes each time.
const TRIES_MAX: u32 = 8;

/// How the files of one scan are opened.
#[derive(Debug)]
pub(super) struct Opener {
    /// `/proc/self/fd`, where it is there.
    descriptors: Option<OwnedFd>,
    /// Who asks.
    user: u32,
}

/// How an entry is opened as a mere place: nothing happens to what stands there.
#[cfg(target_os = "linux")]
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A FIFO does not block, and what is no terminal of ours does not become one.
const READ: OFlags = OFlags::NONBLOCK
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Opener {
    pub(super) fn new() -> Self {
        Self {
            descriptors: descriptors(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Opens the regular file that was seen at a place through that place, so that nothing else
    /// is opened, whatever stands under its name by now. `at` and `name` are where it was found.
    pub(super) fn open(
        &self,
        place: &Spot,
        seen: &Sight,
        at: BorrowedFd<'_>,
        name: &Name,
    ) -> Result<OwnedFd, Errno> {
        if self.user == 0 || self.user == seen.owner {
            match self.open_with(place, seen, at, name, READ | QUIET) {
                Err(Errno::PERM) => {}
                done => return done,
            }
        }
        self.open_with(place, seen, at, name, READ)
    }

    fn open_with(
        &self,
        place: &Spot,
        seen: &Sight,
        at: BorrowedFd<'_>,
        name: &Name,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        if let (Some(descriptors), Some(number)) = (&self.descriptors, place.number()) {
            return rustix::fs::openat(descriptors, number, flags, Mode::empty());
        }
        // Without /proc: what was put under the name since is recognised and closed again.
        let flags = flags | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(at, name.as_os_str(), flags, Mode::empty())?;
        let now = Sight::of(file.as_fd())?.stamp;
        let same = (now.device, now.inode) == (seen.stamp.device, seen.stamp.inode);
        if same { Ok(file) } else { Err(Errno::STALE) }
    }
}

/// Does not touch a file's time of access; only its owner may ask for that.
#[cfg(target_os = "linux")]
const QUIET: OFlags = OFlags::NOATIME;
#[cfg(not(target_os = "linux"))]
const QUIET: OFlags = OFlags::empty();

#[cfg(target_os = "linux")]
fn descriptors() -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).ok()?;
    let kind = rustix::fs::fstatfs(&opened).ok()?.f_type;
    (kind == rustix::fs::PROC_SUPER_MAGIC).then_some(opened)
}

#[cfg(not(target_os = "linux"))]
const fn descriptors() -> Option<OwnedFd> {
    None
}

/// An entry in its directory, whatever it is: held, where the system can hold one.
#[derive(Debug)]
pub(super) struct Spot {
    held: Option<OwnedFd>,
}

impl Spot {
    /// Takes hold of what has this name in a directory, and looks at it.
    #[cfg(target_os = "linux")]
    pub(super) fn at(directory: BorrowedFd<'_>, name: &Name) -> Result<(Self, Sight), Errno> {
        let held = rustix::fs::openat(directory, name.as_os_str(), PLACE, Mode::empty())?;
        let sight = Sight::of(held.as_fd())?;
        Ok((Self { held: Some(held) }, sight))
    }

    /// Looks at what has this name in a directory.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn at(directory: BorrowedFd<'_>, name: &Name) -> Result<(Self, Sight), Errno> {
        Ok((Self { held: None }, Sight::at(directory, name)?))
    }

    /// The text of the symlink that it is.
    pub(super) fn text(&self, directory: BorrowedFd<'_>, name: &Name) -> Result<Vec<u8>, Errno> {
        let text = match &self.held {
            Some(held) => rustix::fs::readlinkat(held, c"", Vec::new())?,
            None => rustix::fs::readlinkat(directory, name.as_os_str(), Vec::new())?,
        };
        Ok(text.into_bytes())
    }

    /// The descriptor's number as a name.
    fn number(&self) -> Option<rustix::path::DecInt> {
        self.held.as_ref().map(rustix::path::DecInt::from_fd)
    }
}

/// One reading of a file, which is to give the bytes that it had when this stamp was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) stamp: Stamp,
    /// Whether it has holes.
    pub(super) sparse: bool,
    /// A change right after the stamp was taken might not show.
    recent: bool,
    /// What changed it last may not have ended.
    unfinished: bool,
    /// What a reading of the same bytes gave before.
    earlier: Option<ContentId>,
    tries: u32,
}

/// What follows a reading.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The file had these bytes when its stamp was taken.
    Good,
    /// The same, if a later reading with this stamp gives the same bytes: a write may have been
    /// under way.
    Unconfirmed,
    /// Another reading.
    Again(Reading),
    /// It changes too fast.
    Changing,
}

impl Reading {
    /// The first; `asked` is the moment before the look.
    pub(super) fn first(sight: &Sight, asked: clock::Moment) -> Self {
        Self {
            stamp: sight.stamp,
            sparse: sight.is_sparse(),
            recent: clock::may_hide_a_change(sight.stamp.changed, asked),
            unfinished: clock::may_be_unfinished(sight.stamp.changed, asked),
            earlier: None,
            tries: 1,
        }
    }

    /// With what an earlier reading gave at the same stamp.
    pub(super) fn after(self, earlier: Option<ContentId>) -> Self {
        Self { earlier, ..self }
    }

    /// Judges what was read, nothing when the file was shorter than its stamp says.
    ///
    /// Bytes that are read while no stamp changes are the file's. Of a file that only grows, the
    /// first bytes count, as many as it had when it was first looked at: they are read twice.
    pub(super) fn judge(
        self,
        content: Option<ContentId>,
        file: BorrowedFd<'_>,
        naps: &Naps,
    ) -> Result<Verdict, Errno> {
        let after = Sight::of(file)?.stamp;
        if content.is_some() {
            if after == self.stamp && !self.recent {
                return Ok(if self.unfinished && content != self.earlier {
                    Verdict::Unconfirmed
                } else {
                    Verdict::Good
                });
            }
            if content == self.earlier && self.has_grown_to(&after) {
                return Ok(Verdict::Good);
            }
        }
        if self.tries == TRIES_MAX {
            return Ok(Verdict::Changing);
        }
        if content.is_some() && self.recent {
            naps.take(self.stamp.changed);
        }
        let asked = clock::now();
        let sight = Sight::of(file)?;
        let next = match content {
            Some(_) if self.has_grown_to(&sight.stamp) => Self {
                earlier: content,
                ..self
            },
            Some(_) | None => Self::first(&sight, asked),
        };
        Ok(Verdict::Again(Self {
            tries: self.tries + 1,
            ..next
        }))
    }

    /// The same file, longer.
    fn has_grown_to(&self, other: &Stamp) -> bool {
        (self.stamp.device, self.stamp.inode) == (other.device, other.inode)
            && other.size > self.stamp.size
    }
}

/// Reads until `buffer` is full; false when the file ends before.
pub(super) fn read_at(
    file: BorrowedFd<'_>,
    mut offset: u64,
    mut buffer: &mut [u8],
) -> Result<bool, Errno> {
    while !buffer.is_empty() {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                offset = offset.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
                buffer = buffer.get_mut(read..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads a file's first bytes, as many as said, in pieces of the buffer's size.
pub(super) fn read_whole(
    file: BorrowedFd<'_>,
    size: u64,
    buffer: &mut [u8],
) -> Result<Option<ContentId>, Errno> {
    let step = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
    if size <= step {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let all = buffer.get_mut(..length).unwrap_or_default();
        let whole = read_at(file, 0, all)?;
        return Ok(whole.then(|| ContentId::of(all)));
    }
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    while at < size {
        let length = usize::try_from(step.min(size - at)).unwrap_or(usize::MAX);
        let piece = buffer.get_mut(..length).unwrap_or_default();
        if !read_at(file, at, piece)? {
            return Ok(None);
        }
        hasher.update(piece);
        at = at.saturating_add(step);
    }
    Ok(Some(ContentId(*hasher.finalize().as_bytes())))
}
