//! What each kind of step does.

use std::os::fd::AsFd as _;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::entry::LinkText;
use super::super::path::RelPath;
use super::super::stamp::Stamp;
use super::super::step::Step;
use super::Call;
use super::fresh::{Fresh, make_symlink};
use super::ground::{Ground, Spot, permissions, stamp_of};
use super::outcome::{Change, Failure, Undone, Why};
use super::view::View;

/// What a step changed, or why it did not.
pub(super) type Done = Result<Vec<Change>, Undone>;

/// A directory's bit that gives its group to what is made in it.
const SETGID: u32 = 0o2000;

/// Bytes of the file that a step makes.
pub(super) const fn size(step: &Step) -> u64 {
    match step {
        Step::Write { file, .. } | Step::Copy { file, .. } => file.size,
        Step::MakeDirectory { .. }
        | Step::Move { .. }
        | Step::Link { .. }
        | Step::SetExecutable { .. }
        | Step::Remove { .. }
        | Step::RemoveDirectory { .. } => 0,
    }
}

/// Executes steps one after the other.
pub(super) struct Hand<'g> {
    pub(super) ground: &'g Ground<'g>,
    pub(super) buffer: Vec<u8>,
    /// Threads that one large file may have.
    pub(super) threads: usize,
}

impl<'g> Hand<'g> {
    pub(super) const fn new(ground: &'g Ground<'g>, threads: usize) -> Self {
        Self {
            ground,
            threads,
            buffer: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, view: &View<'_>, step: &Step) -> Done {
        self.ground.go_on()?;
        let mut done = self.try_step(view, step);
        // The kernel was found to lack something on the way: the other way now.
        if matches!(done, Err(Undone::Failed(Failure::System(Errno::OPNOTSUPP)))) {
            done = self.try_step(view, step);
        }
        self.ground.count(1, 0);
        done
    }

    fn try_step(&mut self, view: &View<'_>, step: &Step) -> Done {
        match step {
            Step::MakeDirectory { path } => self.make_directory(view, path),
            Step::Move { from, to } => self.relocate(view, from, to),
            Step::Copy { from, to, file } => self.copy(view, from, to, file),
            Step::Write { path, file } => self.write(view, path, file),
            Step::Link { path, text } => self.link(view, path, text),
            Step::SetExecutable { path, executable } => {
                self.set_executable(view, path, *executable)
            }
            Step::Remove { path } => self.remove(view, path),
            Step::RemoveDirectory { path } => self.remove_directory(view, path),
        }
    }

    /// The place of a step's target, with what should stand there; what stands there now is that.
    pub(super) fn place(
        &self,
        view: &View<'_>,
        path: &RelPath,
    ) -> Result<(Spot, Option<Stamp>), Undone> {
        let spot = self.ground.spot(view, path)?;
        let expected = view.expected(path);
        if expected.is_some() {
            spot.confirm(expected)?;
        }
        Ok((spot, expected))
    }

    /// The same for what is replaced by a file or a symlink.
    pub(super) fn replaced(
        &self,
        view: &View<'_>,
        path: &RelPath,
    ) -> Result<(Spot, Option<Stamp>), Undone> {
        let (spot, expected) = self.place(view, path)?;
        match expected {
            Some(before) if before.kind() == FileType::Directory => {
                Err(Why::DirectoryStands.into())
            }
            Some(_) | None => Ok((spot, expected)),
        }
    }

    fn make_directory(&self, view: &View<'_>, path: &RelPath) -> Done {
        let (spot, expected) = self.place(view, path)?;
        if expected.is_some() {
            return Err(Errno::EXIST.into());
        }
        let mode = self.ground.modes.directory;
        self.ground.ask(Call::MakeDirectory)?;
        match rustix::fs::mkdirat(&spot.parent, spot.name.as_os_str(), mode) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(spot.taken()),
            Err(error) => return Err(self.ground.refused(error)),
        }
        let stands = spot.look()?.ok_or(Undone::Kept(Why::Gone))?;
        if permissions(&stands) == mode {
            return Ok(vec![(path.clone(), Some(stands))]);
        }
        // A directory that inherits its group goes on doing so.
        let mut wanted = mode;
        wanted.set(Mode::SGID, stands.mode & SETGID != 0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            match rustix::fs::openat(&spot.parent, spot.name.as_os_str(), flags, Mode::empty()) {
                Ok(opened) => opened,
                Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {
                    return Err(Why::Changed.into());
                }
                Err(error) => return Err(error.into()),
            };
        if !stands.is_same_file(&stamp_of(opened.as_fd())?) {
            return Err(Why::Changed.into());
        }
        self.ground.ask(Call::SetMode)?;
        rustix::fs::fchmod(&opened, wanted)?;
        Ok(vec![(path.clone(), Some(stamp_of(opened.as_fd())?))])
    }

    fn link(&self, view: &View<'_>, path: &RelPath, text: &LinkText) -> Done {
        let (spot, expected) = self.replaced(view, path)?;
        let now = if expected.is_some() {
            Fresh::symlink(self.ground, &spot, text)?.put(expected)?
        } else {
            match make_symlink(self.ground, &spot, text, &spot.name) {
                Ok(()) => spot.look()?.ok_or(Undone::Kept(Why::Gone))?,
                Err(Errno::EXIST) => return Err(spot.taken()),
                Err(error) => return Err(self.ground.refused(error)),
            }
        };
        Ok(vec![(path.clone(), Some(now))])
    }
}
