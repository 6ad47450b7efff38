//! What became of a step, and of a list of steps.

use std::io;

use rustix::io::Errno;

use super::super::path::{Name, RelPath};
use super::super::stamp::Stamp;

/// What became of one step that did not end the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The tree is as the step wants it.
    Done,
    /// What stands there was left as it is.
    Kept(Why),
    /// It could not be done; the path is as it was.
    Failed(Failure),
}

/// Why something was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Something else stands there than the scan saw, or something where it saw nothing.
    #[error("it changed since the scan")]
    Changed,
    /// What the scan saw is no longer there.
    #[error("it is gone since the scan")]
    Gone,
    /// The directory that it lies in is another one by now, or none.
    #[error("the directory that it lies in changed since the scan")]
    ParentChanged,
    /// A directory that still has something in it, such as an excluded or a new file.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A directory that could not be removed before.
    #[error("a directory is still there")]
    DirectoryStands,
    /// The file system takes the name and this one for the same: only one of them can stand there.
    #[error("the file system takes its name and {0:?} for the same")]
    SameName(Name),
    /// The file that a copy or a move takes is not what the scan saw.
    #[error("what it is made from changed since the scan")]
    SourceChanged,
    /// It was changed again and again while it was being replaced: what was there last has this
    /// name in the same directory.
    #[error("it was changed while it was replaced, and a version of it is named {0:?}")]
    SetAside(Name),
}

/// Why a step could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The system's word.
    #[error("{0}")]
    System(Errno),
    /// The bytes that were given are not the file's.
    #[error("the content that was given is another one")]
    WrongContent,
    /// The bytes could not be had.
    #[error("its content cannot be read: {0}")]
    NoContent(io::ErrorKind),
}

/// Why the work ends: the next step would fare no better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// No room.
    #[error("the disk is full; make room and run it again")]
    DiskFull,
    /// No room for this user.
    #[error("the disk quota is used up; make room and run it again")]
    Quota,
    /// The disk fails.
    #[error("the disk reports an input/output error")]
    Io,
    /// Nothing can be written.
    #[error("the file system is mounted read-only")]
    ReadOnly,
    /// The root is no longer there.
    #[error("the root directory was removed while it was changed")]
    RootGone,
    /// Somebody asked to stop.
    #[error("it was stopped")]
    Cancelled,
    /// Too many open files, or no memory.
    #[error("the system has no more of what the work needs: {0}")]
    Exhausted(Errno),
}

/// What a list of steps came to.
#[derive(Debug, Default)]
pub struct Applied {
    /// Steps that were done.
    pub done: u64,
    /// Bytes that files of these steps have, holes included.
    pub bytes: u64,
    /// What was left as it is, each path once, in the order of the steps.
    pub kept: Vec<(RelPath, Why)>,
    /// What could not be done, in the order of the steps.
    pub failed: Vec<(RelPath, Failure)>,
    /// What ended the work early. Steps after it were not tried.
    pub stopped: Option<Fatal>,
}

impl Applied {
    /// Whether every step was done.
    pub const fn is_whole(&self) -> bool {
        self.kept.is_empty() && self.failed.is_empty() && self.stopped.is_none()
    }

    pub(super) fn take(&mut self, path: &RelPath, bytes: u64, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                self.done = self.done.saturating_add(1);
                self.bytes = self.bytes.saturating_add(bytes);
            }
            Outcome::Kept(why) => self.kept.push((path.clone(), why)),
            Outcome::Failed(failure) => self.failed.push((path.clone(), failure)),
        }
    }
}

/// What stands at a path after a step: nothing when it was removed.
pub(super) type Change = (RelPath, Option<Stamp>);

/// Why a step was not done, inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undone {
    Kept(Why),
    Failed(Failure),
    Fatal(Fatal),
}

impl From<Errno> for Undone {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOSPC => Self::Fatal(Fatal::DiskFull),
            Errno::DQUOT => Self::Fatal(Fatal::Quota),
            Errno::IO => Self::Fatal(Fatal::Io),
            Errno::ROFS => Self::Fatal(Fatal::ReadOnly),
            Errno::STALE => Self::Fatal(Fatal::RootGone),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Fatal(Fatal::Exhausted(error)),
            other => Self::Failed(Failure::System(other)),
        }
    }
}

impl From<Why> for Undone {
    fn from(why: Why) -> Self {
        Self::Kept(why)
    }
}

impl From<Failure> for Undone {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Undone {
    /// As a step tells it.
    pub(super) fn told(self) -> Result<Outcome, Fatal> {
        match self {
            Self::Kept(why) => Ok(Outcome::Kept(why)),
            Self::Failed(failure) => Ok(Outcome::Failed(failure)),
            Self::Fatal(fatal) => Err(fatal),
        }
    }
}
