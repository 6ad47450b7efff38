//! Taking things out of their places: moves and removals.

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::super::path::RelPath;
use super::super::stamp::Stamp;
use super::Call;
use super::ground::Spot;
use super::outcome::{Undone, Why};
use super::steps::{Done, Hand};
use super::view::{View, is_same_directory};

impl Hand<'_> {
    pub(super) fn relocate(&self, view: &View<'_>, from: &RelPath, to: &RelPath) -> Done {
        if to.is_within(from) {
            return Err(Errno::INVAL.into());
        }
        let target = self.ground.spot(view, to)?;
        let source = self.ground.spot(view, from).map_err(of_source)?;
        let before = view.expected(from);
        let before = before.ok_or(Undone::Kept(Why::SourceChanged))?;
        source.confirm(Some(before)).map_err(of_source)?;
        let put = |from: &Spot, to: &Spot| {
            let (here, there) = ((&from.parent, &from.name), (&to.parent, &to.name));
            self.ground.rename_between(here, there)
        };
        match put(&source, &target) {
            Ok(()) => {}
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(target.taken()),
            Err(Errno::NOENT) => return Err(self.ground.gone_or(Why::SourceChanged)),
            Err(error) => return Err(error.into()),
        }
        let now = target.look()?.ok_or(Undone::Kept(Why::Gone))?;
        if is_still(&before, &now) {
            return Ok(vec![(to.clone(), Some(now))]);
        }
        // Something else was put there in between: back with it.
        match put(&target, &source) {
            Ok(()) => Err(Why::SourceChanged.into()),
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTEMPTY) => Err(Why::Changed.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes it out of its place first, so that it can be looked at where nobody changes the name.
    pub(super) fn remove(&self, view: &View<'_>, path: &RelPath) -> Done {
        let spot = self.ground.spot(view, path)?;
        let Some(before) = view.expected(path) else {
            return Err(Why::Changed.into());
        };
        if before.kind() == FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        match spot.confirm(Some(before)) {
            Ok(_) => {}
            // It is as the step wants it.
            Err(Undone::Kept(Why::Gone)) => return Ok(vec![(path.clone(), None)]),
            Err(undone) => return Err(undone),
        }
        let aside = self.ground.names.next()?;
        match self.ground.rename_new(&spot, &spot.name, &aside) {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                return match self.ground.gone_or(Why::Gone) {
                    Undone::Kept(_) => Ok(vec![(path.clone(), None)]),
                    other => Err(other),
                };
            }
            Err(error) => return Err(error.into()),
        }
        let out = spot.look_at(&aside)?;
        if out.is_some_and(|out| before.is_same_file(&out)) {
            match self.ground.unlink(&spot, &aside) {
                Ok(()) => return Ok(vec![(path.clone(), None)]),
                Err(error) => {
                    let _put_back = self.ground.rename_new(&spot, &aside, &spot.name);
                    return Err(error.into());
                }
            }
        }
        match self.ground.rename_new(&spot, &aside, &spot.name) {
            Ok(()) => Err(Why::Changed.into()),
            Err(Errno::EXIST) => Err(self.ground.set_aside(&spot, aside)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn remove_directory(&self, view: &View<'_>, path: &RelPath) -> Done {
        let spot = self.ground.spot(view, path)?;
        let Some(before) = view.expected(path) else {
            return Err(Why::Changed.into());
        };
        match spot.confirm(Some(before)) {
            Ok(_) => {}
            Err(Undone::Kept(Why::Gone)) => return Ok(vec![(path.clone(), None)]),
            Err(undone) => return Err(undone),
        }
        self.ground.ask(Call::RemoveDirectory)?;
        let name = spot.name.as_os_str();
        match rustix::fs::unlinkat(&spot.parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(vec![(path.clone(), None)]),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Why::NotEmpty.into()),
            Err(Errno::NOTDIR | Errno::NOENT) => Err(self.ground.gone_or(Why::Changed)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether what was moved is what should have been.
fn is_still(before: &Stamp, now: &Stamp) -> bool {
    is_same_directory(before, now) || before.is_same_file(now)
}

/// What is said of a target, said of a source.
fn of_source(undone: Undone) -> Undone {
    match undone {
        Undone::Kept(_) => Why::SourceChanged.into(),
        other => other,
    }
}
