//! Making files: of received contents, of other files of the tree, with another mode.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::content::GROUPED_ABOVE;
use super::super::entry::File;
use super::super::path::RelPath;
use super::super::stamp::Stamp;
use super::content::{self, BUFFER, Source};
use super::fresh::Fresh;
use super::ground::{Spot, permissions, stamp_of};
use super::grouped::{self, Grouped};
use super::outcome::{Failure, Undone, Why};
use super::steps::{Done, Hand};
use super::view::{View, is_unchanged};
use super::{Call, Parts};

/// Files above this are copied by sharing their blocks, where the file system can.
const CLONE_ABOVE: u64 = 128 * 1024;

impl<'g> Hand<'g> {
    pub(super) fn write(&mut self, view: &View<'_>, path: &RelPath, file: &File) -> Done {
        let (spot, expected) = self.replaced(view, path)?;
        if file.size > GROUPED_ABOVE
            && let Some(done) = self.put_ahead(&spot, expected, path, file)?
        {
            return Ok(done);
        }
        if file.size > GROUPED_ABOVE
            && let Some(parts) = grouped::open(self.ground.contents, file)?
        {
            return self.write_groups(&spot, expected, path, file, parts);
        }
        let given = self.ground.contents.open(file);
        let given = given.map_err(|error| content::unreadable(&error))?;
        let made = self.make_file(&spot, expected, path, file, &mut Source::Given(given));
        if matches!(made, Err(Undone::Failed(Failure::WrongContent))) {
            let doubted = self.ground.contents.doubt(file);
            doubted.map_err(|error| content::unreadable(&error))?;
        }
        made
    }

    fn write_groups(
        &self,
        spot: &Spot,
        expected: Option<Stamp>,
        path: &RelPath,
        file: &File,
        parts: Box<dyn Parts + '_>,
    ) -> Done {
        let older = expected
            .filter(|before| before.kind() == FileType::RegularFile)
            // One that may not be read is replaced all the same.
            .and_then(|before| open_regular(spot, &before, Why::Changed).ok());
        let mode = self.ground.modes.of(file);
        let fresh = Fresh::file(self.ground, spot, mode)?;
        let (into, groups) = (fresh.descriptor()?, parts.groups().clone());
        let older = older.as_ref().map(OwnedFd::as_fd);
        Grouped::new(self.ground, file, groups, into, older).write(parts, self.threads)?;
        fresh.seal(mode)?;
        let now = fresh.put(expected)?;
        Ok(vec![(path.clone(), Some(now))])
    }

    pub(super) fn copy(
        &mut self,
        view: &View<'_>,
        from: &RelPath,
        to: &RelPath,
        file: &File,
    ) -> Done {
        let (spot, expected) = self.replaced(view, to)?;
        let source = self.open_source(view, from)?;
        if file.size > CLONE_ABOVE
            && let Some(fresh) = self.shared(&spot, file, &source)?
        {
            let now = fresh.put(expected)?;
            return Ok(vec![(to.clone(), Some(now))]);
        }
        let made = self.make_file(&spot, expected, to, file, &mut Source::File(source.as_fd()));
        match made {
            Err(Undone::Failed(Failure::WrongContent)) => Err(Why::SourceChanged.into()),
            made => made,
        }
    }

    /// A new file that shares the source's blocks, proven; nothing where that cannot be.
    fn shared<'s>(
        &mut self,
        spot: &'s Spot,
        file: &File,
        source: &OwnedFd,
    ) -> Result<Option<Fresh<'s>>, Undone>
    where
        'g: 's,
    {
        if self.ground.lacks.clone.is_known() {
            return Ok(None);
        }
        let mode = self.ground.modes.of(file);
        let fresh = Fresh::file(self.ground, spot, mode)?;
        self.ground.ask(Call::Clone)?;
        match share(fresh.descriptor()?, source) {
            Ok(()) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(error.into()),
            // Also said of a single file, such as one without copy on write: not asked again.
            Err(_) => {
                self.ground.lacks.clone.found();
                return Ok(None);
            }
        }
        self.buffer.resize(BUFFER, 0);
        let (size, content) = content::hash(fresh.descriptor()?, &mut self.buffer)?;
        if size != file.size || content != file.content {
            return Err(Why::SourceChanged.into());
        }
        fresh.seal(mode)?;
        Ok(Some(fresh))
    }

    fn make_file(
        &mut self,
        spot: &Spot,
        expected: Option<Stamp>,
        path: &RelPath,
        file: &File,
        source: &mut Source<'_>,
    ) -> Done {
        self.buffer.resize(BUFFER, 0);
        let mode = self.ground.modes.of(file);
        // A small content is proven before an inode is made for it.
        let fresh = if let Some(bytes) = content::whole(source, file, &mut self.buffer)? {
            let fresh = Fresh::file(self.ground, spot, mode)?;
            content::write_whole(self.ground, fresh.descriptor()?, bytes)?;
            fresh
        } else {
            let fresh = Fresh::file(self.ground, spot, mode)?;
            let into = fresh.descriptor()?;
            content::pour(self.ground, source, into, file, &mut self.buffer)?;
            fresh
        };
        fresh.seal(mode)?;
        let now = fresh.put(expected)?;
        Ok(vec![(path.clone(), Some(now))])
    }

    pub(super) fn set_executable(
        &mut self,
        view: &View<'_>,
        path: &RelPath,
        executable: bool,
    ) -> Done {
        let (spot, expected) = self.place(view, path)?;
        let Some(before) = expected.filter(|it| it.kind() == FileType::RegularFile) else {
            return Err(Why::Changed.into());
        };
        let file = open_regular(&spot, &before, Why::Changed)?;
        let mode = with_executable(permissions(&before), executable);
        // Another name of the inode may lie anywhere, also outside the root.
        if stamp_of(file.as_fd())?.links == 1 {
            self.ground.ask(Call::SetMode)?;
            rustix::fs::fchmod(&file, mode)?;
            return Ok(vec![(path.clone(), Some(stamp_of(file.as_fd())?))]);
        }
        self.buffer.resize(BUFFER, 0);
        let fresh = Fresh::file(self.ground, &spot, mode)?;
        let copied = content::copy(
            self.ground,
            &mut Source::File(file.as_fd()),
            fresh.descriptor()?,
            before.size,
            &mut self.buffer,
        );
        match copied {
            Ok(_) => {}
            Err(Undone::Failed(Failure::WrongContent)) => return Err(Why::Changed.into()),
            Err(undone) => return Err(undone),
        }
        if !is_unchanged(&before, &stamp_of(file.as_fd())?) {
            return Err(Why::Changed.into());
        }
        fresh.seal(mode)?;
        let now = fresh.put(expected)?;
        Ok(vec![(path.clone(), Some(now))])
    }

    /// Opens the file that a copy is made of.
    fn open_source(&self, view: &View<'_>, path: &RelPath) -> Result<OwnedFd, Undone> {
        let changed = |undone| match undone {
            Undone::Kept(_) => Why::SourceChanged.into(),
            other => other,
        };
        let spot = self.ground.spot(view, path).map_err(changed)?;
        let expected = view.expected(path);
        let before = expected.filter(|it| it.kind() == FileType::RegularFile);
        let before = before.ok_or(Undone::Kept(Why::SourceChanged))?;
        open_regular(&spot, &before, Why::SourceChanged)
    }
}

/// Whoever may read may execute, the owner in any case; or nobody may.
fn with_executable(mode: Mode, executable: bool) -> Mode {
    let pairs = [
        (Mode::RUSR, Mode::XUSR),
        (Mode::RGRP, Mode::XGRP),
        (Mode::ROTH, Mode::XOTH),
    ];
    let mut with = mode;
    for (reads, executes) in pairs {
        let owner = executes == Mode::XUSR;
        with.set(executes, executable && (owner || mode.contains(reads)));
    }
    with
}

/// Opens a regular file for reading, when it is what should stand there. Nothing else is opened,
/// not even for a moment: to open a device may do something.
fn open_regular(spot: &Spot, before: &Stamp, otherwise: Why) -> Result<OwnedFd, Undone> {
    let opened = match reopen(spot, before) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Err(otherwise.into()),
        Err(error) => return Err(error.into()),
    };
    match opened {
        Some(file) if is_unchanged(before, &stamp_of(file.as_fd())?) => Ok(file),
        Some(_) | None => Err(otherwise.into()),
    }
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Looks at what stands there through a descriptor that cannot do anything, and then opens just
/// that through `/proc`. Without `/proc` it is opened by its name: what is opened is compared
/// afterwards.
#[cfg(target_os = "linux")]
fn reopen(spot: &Spot, before: &Stamp) -> Result<Option<OwnedFd>, Errno> {
    use std::os::fd::AsRawFd as _;
    let name = spot.name.as_os_str();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = rustix::fs::openat(&spot.parent, name, flags, Mode::empty())?;
    if !is_unchanged(before, &stamp_of(seen.as_fd())?) {
        return Ok(None);
    }
    let path = format!("/proc/self/fd/{}", seen.as_raw_fd());
    match rustix::fs::open(path, READ, Mode::empty()) {
        Err(Errno::NOENT) => {
            rustix::fs::openat(&spot.parent, name, READ | OFlags::NOFOLLOW, Mode::empty()).map(Some)
        }
        opened => opened.map(Some),
    }
}

#[cfg(not(target_os = "linux"))]
fn reopen(spot: &Spot, before: &Stamp) -> Result<Option<OwnedFd>, Errno> {
    if !spot.look()?.is_some_and(|now| is_unchanged(before, &now)) {
        return Ok(None);
    }
    let flags = READ | OFlags::NOFOLLOW;
    rustix::fs::openat(&spot.parent, spot.name.as_os_str(), flags, Mode::empty()).map(Some)
}

#[cfg(target_os = "linux")]
fn share(into: BorrowedFd<'_>, source: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(into, source)
}

#[cfg(not(target_os = "linux"))]
fn share(_into: BorrowedFd<'_>, _source: &OwnedFd) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
