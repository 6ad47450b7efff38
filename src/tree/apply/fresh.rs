//! A new inode, and how it gets its name.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::entry::LinkText;
use super::super::path::Name;
use super::super::stamp::Stamp;
use super::Call;
use super::ground::{Ground, Spot, permissions, stamp_of};
use super::outcome::{Undone, Why};

/// How often a name is exchanged back when somebody changes it at the same time.
const TURNS_MAX: u32 = 8;

/// A new inode that does not stand in its place yet. Dropped, its name goes as well, if it has one.
pub(super) struct Fresh<'g> {
    ground: &'g Ground<'g>,
    spot: &'g Spot,
    inode: Inode,
    /// What it is called for now.
    name: Option<Name>,
}

enum Inode {
    File(OwnedFd),
    /// A symlink is nothing that could be opened; this is what it was when it was made.
    Link(Stamp),
}

impl<'g> Fresh<'g> {
    /// A new file in the directory of `spot`.
    pub(super) fn file(ground: &'g Ground<'g>, spot: &'g Spot, mode: Mode) -> Result<Self, Undone> {
        if let Some(file) = unnamed(ground, spot, mode)? {
            return Ok(Self {
                ground,
                spot,
                inode: Inode::File(file),
                name: None,
            });
        }
        let name = ground.names.next()?;
        ground.ask(Call::CreateNamed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(
            &spot.parent,
            name.as_os_str(),
            flags | OFlags::CLOEXEC,
            mode,
        )
        .map_err(|error| ground.refused(error))?;
        Ok(Self {
            ground,
            spot,
            inode: Inode::File(file),
            name: Some(name),
        })
    }

    /// A file that was written before it was known where its place is: it has no name yet.
    pub(super) const fn ahead(ground: &'g Ground<'g>, spot: &'g Spot, inode: OwnedFd) -> Self {
        Self {
            ground,
            spot,
            inode: Inode::File(inode),
            name: None,
        }
    }

    /// A new symlink in the directory of `spot`, under a name for now.
    pub(super) fn symlink(
        ground: &'g Ground<'g>,
        spot: &'g Spot,
        text: &LinkText,
    ) -> Result<Self, Undone> {
        let name = ground.names.next()?;
        make_symlink(ground, spot, text, &name).map_err(|error| ground.refused(error))?;
        match spot.look_at(&name)? {
            Some(made) => Ok(Self {
                ground,
                spot,
                inode: Inode::Link(made),
                name: Some(name),
            }),
            None => Err(Why::ParentChanged.into()),
        }
    }

    pub(super) fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        match &self.inode {
            Inode::File(file) => Ok(file.as_fd()),
            Inode::Link(_) => Err(Errno::BADF),
        }
    }

    /// What the inode is.
    fn own(&self) -> Result<Stamp, Errno> {
        match &self.inode {
            Inode::File(file) => stamp_of(file.as_fd()),
            Inode::Link(made) => Ok(*made),
        }
    }

    /// Gives the file its mode, which the umask or the directory's own rules may have changed, and
    /// writes it to the disk where that is wanted.
    pub(super) fn seal(&self, mode: Mode) -> Result<(), Undone> {
        let file = self.descriptor()?;
        if permissions(&stamp_of(file)?) != mode {
            self.ground.ask(Call::SetMode)?;
            rustix::fs::fchmod(file, mode)?;
        }
        if self.ground.synced {
            self.ground.ask(Call::Sync)?;
            rustix::fs::fsync(file)?;
        }
        Ok(())
    }

    /// Puts it in its place: where nothing stands, or in exchange for what should stand there.
    pub(super) fn put(mut self, expected: Option<Stamp>) -> Result<Stamp, Undone> {
        match expected {
            None => self.put_new()?,
            Some(before) => self.replace(&before)?,
        }
        match &self.inode {
            Inode::File(file) => Ok(stamp_of(file.as_fd())?),
            Inode::Link(_) => self.spot.look()?.ok_or(Undone::Kept(Why::Gone)),
        }
    }

    fn put_new(&mut self) -> Result<(), Undone> {
        let put = match &self.name {
            None => self.link(&self.spot.name),
            Some(name) => self.ground.rename_new(self.spot, name, &self.spot.name),
        };
        match put {
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            Err(Errno::EXIST) => Err(self.spot.taken()),
            Err(error) => Err(self.ground.refused(error)),
        }
    }

    /// Gives a file without a name its first one.
    fn link(&self, name: &Name) -> Result<(), Errno> {
        let file = self.descriptor()?;
        link_descriptor(self.ground, file, self.spot, name)
    }

    fn replace(&mut self, before: &Stamp) -> Result<(), Undone> {
        let name = if let Some(name) = self.name.clone() {
            name
        } else {
            let name = self.ground.names.next()?;
            let linked = self.link(&name);
            linked.map_err(|error| self.ground.refused(error))?;
            self.name = Some(name.clone());
            name
        };
        if self.ground.lacks.exchange.is_known() {
            return self.replace_blindly(before, &name);
        }
        let own = self.own()?;
        match self.ground.exchange(self.spot, &name, &self.spot.name) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.ground.lacks.exchange.found();
                return self.replace_blindly(before, &name);
            }
            Err(Errno::NOENT) => return Err(self.ground.gone_or(Why::Gone)),
            Err(error) => return Err(error.into()),
        }
        // What has the name now is not ours to remove before it was looked at.
        self.name = None;
        let out = self.spot.look_at(&name)?;
        if out.is_none_or(|out| !before.is_same_file(&out)) {
            return Err(self.put_back(name, &own));
        }
        if let Err(error) = self.ground.unlink(self.spot, &name) {
            // What cannot be removed stays where it was.
            return match self.put_back(name, &own) {
                Undone::Kept(Why::Changed) => Err(error.into()),
                other => Err(other),
            };
        }
        Ok(())
    }

    /// What came out is not what should have stood there: back with it.
    fn put_back(&mut self, name: Name, own: &Stamp) -> Undone {
        for _ in 0..TURNS_MAX {
            match self.ground.exchange(self.spot, &name, &self.spot.name) {
                Ok(()) => {}
                Err(Errno::NOENT) => return self.bring_back(name),
                Err(error) => return error.into(),
            }
            match self.spot.look_at(&name) {
                Ok(Some(out)) if own.is_same_file(&out) => {
                    self.name = Some(name);
                    return Why::Changed.into();
                }
                Ok(_) => {}
                Err(error) => return error.into(),
            }
        }
        self.ground.set_aside(self.spot, name)
    }

    /// The place is empty by now: what was taken out of it goes there again.
    fn bring_back(&self, name: Name) -> Undone {
        match self.ground.rename_new(self.spot, &name, &self.spot.name) {
            Ok(()) => Why::Changed.into(),
            Err(Errno::EXIST) => self.ground.set_aside(self.spot, name),
            Err(error) => error.into(),
        }
    }

    /// RACE: where two names cannot be exchanged, what is written between the look and the rename
    /// is lost.
    fn replace_blindly(&mut self, before: &Stamp, name: &Name) -> Result<(), Undone> {
        self.spot.confirm(Some(*before))?;
        self.ground.rename_over(self.spot, name, &self.spot.name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    /// A name that was only for now goes. Should that fail, the name says what it is.
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _left_behind = self.ground.unlink(self.spot, name);
        }
    }
}

/// Makes a symlink where nothing stands.
pub(super) fn make_symlink(
    ground: &Ground<'_>,
    spot: &Spot,
    text: &LinkText,
    name: &Name,
) -> Result<(), Errno> {
    ground.ask(Call::Symlink)?;
    rustix::fs::symlinkat(text.as_bytes(), &spot.parent, name.as_os_str())
}

/// A new inode without a name: whatever happens, nothing is left behind. Nothing where the file
/// system has none.
#[cfg(target_os = "linux")]
fn unnamed(ground: &Ground<'_>, spot: &Spot, mode: Mode) -> Result<Option<OwnedFd>, Undone> {
    if ground.lacks.unnamed.is_known() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let opened = ground
        .ask(Call::CreateUnnamed)
        .and_then(|()| rustix::fs::openat(&spot.parent, c".", flags, mode));
    match opened {
        Ok(file) => Ok(Some(file)),
        // What file systems and kernels without them say.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
            ground.lacks.unnamed.found();
            Ok(None)
        }
        Err(error) => Err(ground.refused(error)),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(ground: &Ground<'_>, _spot: &Spot, _mode: Mode) -> Result<Option<OwnedFd>, Undone> {
    ground.lacks.unnamed.found();
    Ok(None)
}

/// Names an inode that has no name, where nothing has it. By its descriptor alone that takes a
/// right or a kernel that not every user has; then through `/proc`. Without either, NOTSUP, and
/// from then on every new file begins with a name.
#[cfg(target_os = "linux")]
fn link_descriptor(
    ground: &Ground<'_>,
    file: BorrowedFd<'_>,
    spot: &Spot,
    name: &Name,
) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::AtFlags;
    let to = name.as_os_str();
    ground.ask(Call::Link)?;
    if !ground.lacks.link_by_descriptor.is_known() {
        match rustix::fs::linkat(file, c"", &spot.parent, to, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::INVAL | Errno::PERM) => {
                ground.lacks.link_by_descriptor.found();
            }
            done => return done,
        }
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    match rustix::fs::linkat(rustix::fs::CWD, path.as_str(), &spot.parent, to, follow) {
        Err(Errno::NOENT) if rustix::fs::lstat(path.as_str()).is_err() => {
            ground.lacks.unnamed.found();
            Err(Errno::OPNOTSUPP)
        }
        done => done,
    }
}

#[cfg(not(target_os = "linux"))]
fn link_descriptor(
    _ground: &Ground<'_>,
    _file: BorrowedFd<'_>,
    _spot: &Spot,
    _name: &Name,
) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
