//! The tree that is changed, and the calls that change it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::super::path::{Name, RelPath};
use super::super::root::Root;
use super::super::stamp::Stamp;
use super::names::Names;
use super::outcome::{Fatal, Undone, Why};
use super::view::{View, is_same_directory, is_unchanged};
use super::{Ask, Call, Contents, Modes, Progress};

const PERMISSIONS: u32 = 0o777;
/// How a directory is opened in which names are changed.
#[cfg(target_os = "linux")]
const PARENT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
#[cfg(not(target_os = "linux"))]
const PARENT: OFlags = OFlags::DIRECTORY;

/// What all steps of one tree share.
pub(super) struct Ground<'a> {
    pub(super) root: &'a Root,
    pub(super) contents: &'a dyn Contents,
    pub(super) modes: Modes,
    pub(super) synced: bool,
    pub(super) ask: Option<Ask<'a>>,
    pub(super) progress: Option<&'a Progress>,
    pub(super) cancel: Option<&'a AtomicBool>,
    pub(super) names: Names,
    pub(super) lacks: Lacks,
}

/// What this file system or kernel was found not to have.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// Inodes without a name.
    pub(super) unnamed: Lack,
    /// Naming an inode by its descriptor; its entry in `/proc` is the other way.
    pub(super) link_by_descriptor: Lack,
    /// A rename that does not replace.
    pub(super) rename_new: Lack,
    /// Exchanging two names.
    pub(super) exchange: Lack,
    /// Sharing blocks.
    pub(super) clone: Lack,
}

/// Something that is not there.
#[derive(Debug, Default)]
pub(super) struct Lack(AtomicBool);

impl Lack {
    pub(super) fn found(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) parent: OwnedFd,
    pub(super) name: Name,
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        root: &'a Root,
        contents: &'a dyn Contents,
        modes: Modes,
    ) -> Result<Self, Errno> {
        Ok(Self {
            root,
            contents,
            modes,
            synced: false,
            ask: None,
            progress: None,
            cancel: None,
            names: Names::new()?,
            lacks: Lacks::default(),
        })
    }

    pub(super) fn ask(&self, call: Call) -> Result<(), Errno> {
        self.ask.map_or(Ok(()), |ask| ask(call))
    }

    /// Ends the work when somebody asked for that.
    pub(super) fn go_on(&self) -> Result<(), Undone> {
        let cancelled = self
            .cancel
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if cancelled {
            return Err(Undone::Fatal(Fatal::Cancelled));
        }
        Ok(())
    }

    pub(super) fn count(&self, steps: u64, bytes: usize) {
        if let Some(progress) = self.progress {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            progress.steps.fetch_add(steps, Ordering::Relaxed);
            progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The place of a path, in the directory that the scan saw or an earlier step made.
    pub(super) fn spot(&self, view: &View<'_>, path: &RelPath) -> Result<Spot, Undone> {
        let Some((above, name)) = path.split_last() else {
            return Err(Errno::INVAL.into());
        };
        let parent = match self.root.open_at(&above, PARENT, Mode::empty()) {
            Ok(parent) => parent,
            // A link, a mount, a file or nothing stands where a directory was.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                return Err(self.gone_or(Why::ParentChanged));
            }
            Err(error) => return Err(error.into()),
        };
        if !above.is_root() {
            let now = stamp_of(parent.as_fd())?;
            let same = view
                .expected(&above)
                .is_some_and(|before| is_same_directory(&before, &now));
            if !same {
                return Err(Why::ParentChanged.into());
            }
        }
        Ok(Spot { parent, name })
    }

    /// A reason, unless the root itself is gone.
    pub(super) fn gone_or(&self, why: Why) -> Undone {
        match rustix::fs::fstat(self.root) {
            Ok(seen) if seen.st_nlink == 0 => Undone::Fatal(Fatal::RootGone),
            Ok(_) => Undone::Kept(why),
            Err(error) => error.into(),
        }
    }

    /// A reading of `error` from a call in an open directory.
    pub(super) fn refused(&self, error: Errno) -> Undone {
        match error {
            // The directory was removed after it was opened.
            Errno::NOENT => self.gone_or(Why::ParentChanged),
            other => other.into(),
        }
    }

    /// Renames to a name of the same directory that nothing has; EXIST when something has it.
    pub(super) fn rename_new(&self, spot: &Spot, from: &Name, to: &Name) -> Result<(), Errno> {
        self.rename_between((&spot.parent, from), (&spot.parent, to))
    }

    /// The same from one directory to another.
    pub(super) fn rename_between(
        &self,
        (from, name): (&OwnedFd, &Name),
        (to, new): (&OwnedFd, &Name),
    ) -> Result<(), Errno> {
        if !self.lacks.rename_new.is_known() {
            let renamed = self.ask(Call::RenameNew).and_then(|()| {
                let flags = rustix::fs::RenameFlags::NOREPLACE;
                rustix::fs::renameat_with(from, name.as_os_str(), to, new.as_os_str(), flags)
            });
            match renamed {
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    self.lacks.rename_new.found();
                }
                done => return done,
            }
        }
        // RACE: where the file system has no such rename, what is made there between these two
        // calls is replaced.
        match rustix::fs::statat(to, new.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => {
                self.ask(Call::RenameOver)?;
                rustix::fs::renameat(from, name.as_os_str(), to, new.as_os_str())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn exchange(&self, spot: &Spot, one: &Name, other: &Name) -> Result<(), Errno> {
        self.ask(Call::Exchange)?;
        rustix::fs::renameat_with(
            &spot.parent,
            one.as_os_str(),
            &spot.parent,
            other.as_os_str(),
            rustix::fs::RenameFlags::EXCHANGE,
        )
    }

    pub(super) fn rename_over(&self, spot: &Spot, from: &Name, to: &Name) -> Result<(), Errno> {
        self.ask(Call::RenameOver)?;
        let parent = &spot.parent;
        rustix::fs::renameat(parent, from.as_os_str(), parent, to.as_os_str())
    }

    /// Gives a name that stays to what is a user's and has lost its place.
    pub(super) fn set_aside(&self, spot: &Spot, from: Name) -> Undone {
        let aside = match self.names.aside() {
            Ok(aside) => aside,
            Err(error) => return error.into(),
        };
        match self.rename_new(spot, &from, &aside) {
            Ok(()) => Why::SetAside(aside).into(),
            // It keeps the name that it has.
            Err(_) => Why::SetAside(from).into(),
        }
    }

    pub(super) fn unlink(&self, spot: &Spot, name: &Name) -> Result<(), Errno> {
        self.ask(Call::Unlink)?;
        rustix::fs::unlinkat(&spot.parent, name.as_os_str(), AtFlags::empty())
    }
}

impl Spot {
    /// What stands there now.
    pub(super) fn look(&self) -> Result<Option<Stamp>, Errno> {
        self.look_at(&self.name)
    }

    /// What another name of the directory stands for.
    pub(super) fn look_at(&self, name: &Name) -> Result<Option<Stamp>, Errno> {
        match rustix::fs::statat(&self.parent, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(seen) => Ok(Some(Stamp::of(&seen))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What stands there, when it is what should.
    pub(super) fn confirm(&self, expected: Option<Stamp>) -> Result<Option<Stamp>, Undone> {
        match (expected, self.look()?) {
            (None, None) => Ok(None),
            (Some(before), Some(now)) if is_unchanged(&before, &now) => Ok(Some(now)),
            (Some(_), None) => Err(Why::Gone.into()),
            (Some(_) | None, Some(_)) => Err(Why::Changed.into()),
        }
    }

    /// Why nothing can be made here although nothing should stand here.
    pub(super) fn taken(&self) -> Undone {
        match self.folded() {
            Ok(Some(other)) => Why::SameName(other).into(),
            Ok(None) => Why::Changed.into(),
            Err(error) => error.into(),
        }
    }

    /// The name that the file system takes for this one, when it is spelled otherwise.
    fn folded(&self) -> Result<Option<Name>, Errno> {
        let Some(now) = self.look()? else {
            return Ok(None);
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&self.parent, c".", flags, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::new(listed)? {
            let entry = entry?;
            entries.push((entry.file_name().to_bytes().to_vec(), entry.ino()));
        }
        Ok(spelled_otherwise(&entries, &self.name, now.inode))
    }
}

/// Under which name a directory lists the inode that it answers for `name`; nothing when it lists
/// `name` itself.
fn spelled_otherwise(entries: &[(Vec<u8>, u64)], name: &Name, inode: u64) -> Option<Name> {
    let itself = entries.iter().any(|(bytes, _)| bytes == name.as_bytes());
    let other = entries.iter().find(|(_, listed)| *listed == inode);
    let (other, _) = other.filter(|_| !itself)?;
    Name::new(other.as_slice()).ok()
}

/// The permissions that a stamp tells of, without setuid, setgid and sticky.
#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "a mode has another type on other systems"
)]
pub(super) fn permissions(stamp: &Stamp) -> Mode {
    Mode::from_raw_mode(RawMode::try_from(stamp.mode & PERMISSIONS).unwrap_or(0))
}

pub(super) fn stamp_of(file: BorrowedFd<'_>) -> Result<Stamp, Errno> {
    rustix::fs::fstat(file).map(|seen| Stamp::of(&seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a directory answers for `A` with what it lists as `a`, both names are told: no such
    /// file system can be mounted everywhere, so this is its listing.
    #[test]
    fn m51_two_names_that_are_one_are_both_told() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let entries = [(b".".to_vec(), 1), (b"a".to_vec(), 7), (b"b".to_vec(), 8)];
        assert_eq!(spelled_otherwise(&entries, &name("A"), 7), Some(name("a")));
        assert_eq!(spelled_otherwise(&entries, &name("a"), 7), None);
        // It was removed again while the directory was listed.
        assert_eq!(spelled_otherwise(&entries, &name("A"), 9), None);
    }
}
