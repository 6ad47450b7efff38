//! Entering a program's directory. One in the session's workspace that is not there yet is made, so
//! that a program can start where its files only come later; anywhere else it must be there.

use std::ffi::OsStr;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Makes `directory` this process's own; what is missing of it below `workspace` is made for this
/// user alone, as far as the umask lets, and never through a symbolic link.
///
/// # Errors
/// With what the system says; `NOENT` for what is missing elsewhere.
pub fn enter(directory: &Path, workspace: &Path) -> Result<(), Errno> {
    match rustix::process::chdir(directory) {
        Err(Errno::NOENT) => {}
        done => return done,
    }
    let below = directory
        .strip_prefix(workspace)
        .map_err(|_| Errno::NOENT)?;
    let names: Option<Vec<&OsStr>> = below
        .components()
        .map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut reached = rustix::fs::open(workspace, flags, Mode::empty())?;
    // A path that leads up again may mean another place than it shows.
    for name in names.ok_or(Errno::NOENT)? {
        match rustix::fs::mkdirat(&reached, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        reached = rustix::fs::openat(&reached, name, flags, Mode::empty())?;
    }
    rustix::process::fchdir(&reached)
}
