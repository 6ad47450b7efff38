//! Where the audits of one session are made: one after the other.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::Paths;
use crate::id::SessionId;
use crate::mirror::durable;
use crate::processes::ProcessStamp;
use crate::report::{self, Failure};
use crate::session::inside;

/// The directory of a session's audits, held by this process: `lock`, and `view` while a tool
/// looks. The kernel lets the next one in when this process ends, however it does.
#[derive(Debug)]
pub struct Desk {
    directory: PathBuf,
    lock: File,
}

/// Nothing that descends from this process later is a tool's.
impl Drop for Desk {
    fn drop(&mut self) {
        let _stays = self.lock.set_len(0);
    }
}

impl Desk {
    /// Takes the session's place; waits, and says so, while another audit of it runs. What an audit
    /// left that was killed is cleared away.
    ///
    /// # Errors
    /// When the directory cannot be made, or is not this user's alone.
    pub fn take(paths: &Paths, session: &SessionId) -> Result<Self, Failure> {
        paths.prepare_state()?;
        let directory = inside::audits(paths).join(session.as_str());
        let failed = |error: &io::Error| {
            let shown = directory.display();
            Failure::because(
                format!("the audits' directory {shown} cannot be used"),
                error,
            )
        };
        durable::private_directory(&directory).map_err(|error| failed(&error))?;
        let lock = durable::lock_file(&directory.join(inside::AUDIT_LOCK))
            .map_err(|error| failed(&error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                report::tell(&format!(
                    "labproxy: another audit of {session} is running; waiting for its end\n"
                ));
                lock.lock().map_err(|error| failed(&error))?;
            }
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // For whoever is asked to control a session by what descends from this process.
        let stamp = serde_json::to_vec(&ProcessStamp::current())
            .map_err(|error| failed(&io::Error::other(error)))?;
        lock.set_len(0)
            .and_then(|()| lock.write_all_at(&stamp, 0))
            .map_err(|error| failed(&error))?;
        let desk = Self { directory, lock };
        desk.clear()?;
        Ok(desk)
    }

    /// Where the tool's view is, with what belongs to it.
    pub fn view(&self) -> PathBuf {
        self.directory.join("view")
    }

    /// Removes the view.
    ///
    /// # Errors
    /// When something of it cannot be removed.
    pub fn clear(&self) -> Result<(), Failure> {
        let view = self.view();
        remove(&view).map_err(|error| {
            let shown = view.display();
            Failure::because(format!("the copy in {shown} cannot be removed"), &error)
                .hint("remove it by hand; nothing else uses it")
        })
    }
}

/// Removes a directory with all that is in it, also what a tool made unreadable or so deep that it
/// cannot be walked.
fn remove(top: &Path) -> io::Result<()> {
    match fs::remove_dir_all(top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => remove_flattened(top),
        done => done,
    }
}

/// The same with no more than two levels at a time: what is in a directory is brought to the top
/// before it goes. Whoever could change it meanwhile has ended.
fn remove_flattened(top: &Path) -> io::Result<()> {
    let mut todo = emptied(top)?;
    let mut number = 0_u64;
    while let Some(directory) = todo.pop() {
        let below = emptied(&directory)?;
        for deeper in below {
            open_up(&deeper)?;
            number = number.saturating_add(1);
            let here = top.join(format!("deep-{number}"));
            fs::rename(&deeper, &here)?;
            todo.push(here);
        }
        fs::remove_dir(&directory)?;
    }
    fs::remove_dir(top)
}

/// Removes what is no directory; gives the directories that are left.
fn emptied(directory: &Path) -> io::Result<Vec<PathBuf>> {
    open_up(directory)?;
    let mut below = Vec::new();
    for entry in fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()? {
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(below)
}

/// Lets this user into a directory.
fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}
