//! The root that a controller names: found, judged, and taken.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::marks::{Mark, Marks};
use crate::remote::directory;
use crate::remote::login::Login;
use crate::tree::mirror_id::MirrorId;
use crate::tree::root::{Root, RootError};
use crate::wire::bytes::ByteString;
use crate::wire::mirror::{Open, RootState};

/// Directories in a user's home that no mirror may read or write: who holds them holds the account.
const NEVER: [&str; 2] = [".ssh", ".gnupg"];

/// A root that a controller has opened.
#[derive(Debug)]
pub(super) struct OpenRoot {
    pub(super) path: PathBuf,
    pub(super) root: Option<Root>,
    pub(super) marks: Marks,
    mark: MirrorId,
    state: RootState,
}

impl OpenRoot {
    /// Finds it and says what it is.
    ///
    /// # Errors
    /// When no mirror may be there, or another controller works on it.
    pub(super) fn find(open: &Open, login: &Login) -> Result<(Self, RootState), String> {
        let asked = expand(&open.root, login)?;
        let (path, root) = match Root::open(&asked) {
            Ok(root) => (real(&asked)?, Some(root)),
            Err(RootError::Missing) => (real_parent(&asked)?, None),
            Err(error) => return Err(format!("{}: {error}", shown(&asked))),
        };
        let (mirrors, opened) = directory::mirrors(&open.workdir, login).map_err(|refusal| {
            // A refusal of a directory says which and why.
            format!("no state can be kept here: {refusal:?}")
        })?;
        refuse_dangerous(&path, &mirrors, login)?;
        let marks = Marks::open(&mirrors, opened, &path)?;
        let state = judge(root.as_ref(), marks.read()?, open.mark)?;
        let found = Self {
            path,
            root,
            marks,
            mark: open.mark,
            state: state.clone(),
        };
        Ok((found, state))
    }

    /// Makes it when it is absent, and marks it as this mirror's.
    ///
    /// # Errors
    /// When it is not free to be taken, or cannot be made.
    pub(super) fn take(&mut self, any: bool) -> Result<(), String> {
        match self.state {
            RootState::Absent => self.make()?,
            // Its mark says so already.
            RootState::Ours => return Ok(()),
            RootState::Empty => {}
            RootState::Unmarked | RootState::Another | RootState::Replaced if any => {}
            RootState::Unmarked | RootState::Another | RootState::Replaced => {
                return Err(format!("{} is not this mirror's", shown(&self.path)));
            }
        }
        let root = self.root.as_ref().ok_or("a root that was not made")?;
        self.marks.write(&Mark {
            path: ByteString::from(self.path.as_os_str()),
            mirror: self.mark,
            identity: root.identity(),
        })?;
        self.state = RootState::Ours;
        Ok(())
    }

    /// Whether it may be changed: it was this mirror's, or was taken.
    pub(super) fn is_ours(&self) -> bool {
        self.state == RootState::Ours
    }

    fn make(&mut self) -> Result<(), String> {
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        let cannot = |why: String| format!("{} cannot be made: {why}", shown(&self.path));
        match rustix::fs::mkdir(&self.path, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Err(cannot("its parent does not exist".to_owned())),
            Err(error) => return Err(cannot(error.to_string())),
        }
        let root = Root::open(&self.path).map_err(|error| cannot(error.to_string()))?;
        if !is_empty(&root).map_err(|error| cannot(error.to_string()))? {
            return Err(cannot("something else was made there meanwhile".to_owned()));
        }
        self.root = Some(root);
        Ok(())
    }
}

fn judge(root: Option<&Root>, mark: Option<Mark>, ours: MirrorId) -> Result<RootState, String> {
    let Some(root) = root else {
        return Ok(match mark {
            Some(mark) if mark.mirror == ours => RootState::Replaced,
            Some(_) | None => RootState::Absent,
        });
    };
    match mark {
        Some(mark) if mark.mirror == ours && mark.identity == root.identity() => {
            Ok(RootState::Ours)
        }
        Some(mark) if mark.mirror == ours => Ok(RootState::Replaced),
        Some(mark) if mark.identity == root.identity() => Ok(RootState::Another),
        // A mark of a directory that is gone says nothing of the one that stands there now.
        Some(_) | None => match is_empty(root) {
            Ok(true) => Ok(RootState::Empty),
            Ok(false) => Ok(RootState::Unmarked),
            Err(error) => Err(format!("the root cannot be read: {error}")),
        },
    }
}

fn is_empty(root: &Root) -> Result<bool, Errno> {
    let opened = root.open_at(
        &crate::tree::path::RelPath::ROOT,
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    for entry in rustix::fs::Dir::new(opened)? {
        let name = entry?;
        if !matches!(name.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A root as an absolute path: relative ones are the home's.
fn expand(root: &ByteString, login: &Login) -> Result<PathBuf, String> {
    let path = root.to_path_buf();
    if path.as_os_str().is_empty() {
        return Err("an empty path is no root".to_owned());
    }
    if path.is_absolute() {
        return Ok(path);
    }
    let home = login
        .home_of_login()
        .ok_or("the login has no HOME: give an absolute path")?;
    Ok(home.join(path.strip_prefix("~").unwrap_or(&path)))
}

fn real(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", shown(path)))
}

/// The real path of what does not exist yet: its parent does.
fn real_parent(path: &Path) -> Result<PathBuf, String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is no path of a directory", shown(path)));
    };
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) => Err(format!(
            "{} does not exist, and its parent cannot be used: {error}",
            shown(path)
        )),
    }
}

/// What no mirror may be, hold or lie in, whatever the controller wants.
fn refuse_dangerous(path: &Path, mirrors: &Path, login: &Login) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{} {why}", shown(path)));
    if path.parent().is_none() {
        return refuse("is the root of the file system: name a directory for the mirror alone");
    }
    let homes = [login.home(), login.home_of_login()];
    let real = |home: Option<PathBuf>| home.and_then(|home| home.canonicalize().ok());
    for home in homes.into_iter().filter_map(real) {
        if home.starts_with(path) {
            return refuse("is or holds the home directory: name a directory for the mirror alone");
        }
        if NEVER.iter().any(|name| path.starts_with(home.join(name))) {
            return refuse("holds keys: name a directory for the mirror alone");
        }
    }
    let workdir = mirrors.parent().unwrap_or(mirrors);
    if workdir.starts_with(path) || (path.starts_with(workdir) && !is_workspace(path, workdir)) {
        return refuse("holds or is labproxy's own state: name another directory");
    }
    Ok(())
}

/// `sessions/ID/workspace` is a session's own.
fn is_workspace(path: &Path, workdir: &Path) -> bool {
    let inside = path.strip_prefix(workdir).unwrap_or(path);
    let mut names = inside.iter();
    names.next().is_some_and(|name| name == "sessions")
        && names.next().is_some()
        && names.next().is_some_and(|name| name == "workspace")
}

fn shown(path: &Path) -> String {
    path.as_os_str()
        .as_encoded_bytes()
        .escape_ascii()
        .to_string()
}
