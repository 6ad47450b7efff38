//! Executes steps on a tree: makes, replaces, moves and removes, through the root's descriptor.
//!
//! Three rules hold for every step. What stands at a path is compared with what the scan saw, before
//! it is touched and again when it was taken out of its place, and what changed in between is put
//! back. New content is a new inode, and its hash is proven before it gets a name. At every instant
//! each path is as before the step or as after it, so that work that is cut off anywhere can be
//! planned and begun anew; what may be left behind has a name that [`is_unfinished`] knows.

mod ahead;
mod content;
mod files;
mod fresh;
mod ground;
mod grouped;
mod names;
mod outcome;
mod parallel;
mod places;
mod rewrite;
mod steps;
mod view;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::fs::Mode;
use rustix::io::Errno;

pub use ahead::Unnamed;
pub use names::{is_unfinished, sweep};
pub use outcome::{Applied, Failure, Fatal, Outcome, Why};
pub use rewrite::rewrite;

use super::content::Groups;
use super::entry::File;
use super::path::RelPath;
use super::root::Root;
use super::stamp::{Stamp, Stamps};
use super::step::Step;
use ground::Ground;
use steps::Hand;
use view::View;

/// Most threads that write at once: with more, a directory's lock and the disk are what is waited
/// for.
pub const WRITERS_MAX: usize = 8;

/// Where the bytes of new files come from.
pub trait Contents: Sync {
    /// The bytes of a file's content. They are hashed again while they are written.
    ///
    /// # Errors
    /// When they cannot be had; the file is then listed as failed.
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>>;

    /// Is told that what [`Self::open`] gave were not the file's bytes, and says why if it knows.
    ///
    /// # Errors
    /// What is wrong with the bytes that are kept.
    fn doubt(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    /// The same by its groups, read in any order; nothing for a content whose groups are not known.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn parts(&self, _file: &File) -> io::Result<Option<Box<dyn Parts + '_>>> {
        Ok(None)
    }

    /// An inode that was written ahead for this path and has all bytes of a large file, each proven before
    /// it was written; given once.
    fn written_ahead(&self, _path: &RelPath, _file: &File) -> Option<Unnamed> {
        None
    }
}

/// A large content that can be read in any order. Its groups are compared with the file's id, and
/// what is read with its groups.
pub trait Parts {
    /// The groups.
    fn groups(&self) -> &Groups;

    /// Fills `bytes` with what is kept from `offset` on: whoever asks compares it with the groups.
    ///
    /// # Errors
    /// When there are no such bytes.
    fn read_exact_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// The same for bytes that were not what the groups say; says what is wrong if it knows.
    ///
    /// # Errors
    /// When they cannot be had, or are damaged where they are kept.
    fn read_again_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(offset, bytes)
    }
}

/// The modes that new files and directories get, whatever the umask is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// Of a file.
    pub file: Mode,
    /// Of a file that its owner may execute.
    pub executable: Mode,
    /// Of a directory.
    pub directory: Mode,
}

impl Modes {
    /// For their owner alone: on a controller.
    pub const PRIVATE: Self = Self {
        file: Mode::RUSR.union(Mode::WUSR),
        executable: Mode::RWXU,
        directory: Mode::RWXU,
    };
    /// Readable for all, as programs on a host expect it.
    pub const SHARED: Self = Self {
        file: Mode::from_raw_mode(0o644),
        executable: Mode::from_raw_mode(0o755),
        directory: Mode::from_raw_mode(0o755),
    };

    const fn of(&self, file: &File) -> Mode {
        if file.executable {
            self.executable
        } else {
            self.file
        }
    }
}

/// How far the work is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Steps that are over, whatever became of them.
    pub steps: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
}

/// A call that changes the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Makes an inode without a name.
    CreateUnnamed,
    /// Makes a file under a name of [`is_unfinished`].
    CreateNamed,
    /// Shares another file's blocks.
    Clone,
    /// Writes to a new inode.
    Write,
    /// Sets an inode's mode.
    SetMode,
    /// Writes an inode to the disk.
    Sync,
    /// Gives an inode a name that nothing has.
    Link,
    /// Makes a symlink.
    Symlink,
    /// Exchanges two names.
    Exchange,
    /// Renames where nothing stands.
    RenameNew,
    /// Renames over what stands there.
    RenameOver,
    /// Removes a name.
    Unlink,
    /// Makes a directory.
    MakeDirectory,
    /// Removes a directory.
    RemoveDirectory,
}

/// Is asked before each call: an error takes the call's place. So a test cuts the work off
/// anywhere, or is a file system that cannot do something.
pub type Ask<'a> = &'a (dyn Fn(Call) -> Result<(), Errno> + Sync);

/// Executes steps on one root.
pub struct Apply<'a> {
    ground: Ground<'a>,
    view: View<'a>,
    threads: NonZero<usize>,
}

impl<'a> Apply<'a> {
    /// An applier for a root whose last scan saw `stamps`.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new(
        root: &'a Root,
        stamps: &'a Stamps,
        contents: &'a dyn Contents,
        modes: Modes,
    ) -> Result<Self, Errno> {
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Ok(Self {
            ground: Ground::new(root, contents, modes)?,
            view: View::new(stamps),
            threads,
        })
    }

    /// Writes with so many threads, [`WRITERS_MAX`] at most, instead of one for each processor.
    #[must_use]
    pub const fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Writes each file to the disk before it gets its name. Otherwise the caller has the whole
    /// file system written when all is done.
    #[must_use]
    pub const fn synced(mut self) -> Self {
        self.ground.synced = true;
        self
    }

    /// Asks before each call.
    #[must_use]
    pub const fn asking(mut self, ask: Ask<'a>) -> Self {
        self.ground.ask = Some(ask);
        self
    }

    /// Counts up while it works.
    #[must_use]
    pub const fn counting(mut self, progress: &'a Progress) -> Self {
        self.ground.progress = Some(progress);
        self
    }

    /// Stops soon once this is set.
    #[must_use]
    pub const fn until(mut self, cancel: &'a AtomicBool) -> Self {
        self.ground.cancel = Some(cancel);
        self
    }

    /// Executes one step.
    ///
    /// # Errors
    /// What makes every further step pointless. What the step had made for itself is gone again.
    pub fn step(&mut self, step: &Step) -> Result<Outcome, Fatal> {
        let done = Hand::new(&self.ground, 1).step(&self.view, step);
        self.settle(step, done)
    }

    /// Executes steps in their order; files that are written one after the other are written at
    /// once. Ends at the first that is fatal.
    pub fn run(&mut self, steps: &[Step]) -> Applied {
        let mut applied = Applied::default();
        let mut listed = HashSet::new();
        let mut rest = steps;
        while !rest.is_empty() && applied.stopped.is_none() {
            let (batch, after) = rest.split_at(parallel::batch(rest).max(1).min(rest.len()));
            let results = parallel::run(&self.ground, &self.view, batch, self.threads);
            for (step, done) in batch.iter().zip(results) {
                let Some(done) = done else { continue };
                match self.settle(step, done) {
                    // What hinders a first step at a path hinders the next one as well.
                    Ok(Outcome::Kept(_)) if !listed.insert(step.target()) => {}
                    Ok(outcome) => applied.take(step.target(), steps::size(step), outcome),
                    Err(fatal) => {
                        applied.stopped.get_or_insert(fatal);
                    }
                }
            }
            rest = after;
        }
        applied
    }

    /// What stands where the steps changed something, by path: nothing where something was
    /// removed. Together with the scan's stamps it is what is there now.
    pub fn into_changes(self) -> BTreeMap<RelPath, Option<Stamp>> {
        self.view.into_changes()
    }

    fn settle(&mut self, step: &Step, done: steps::Done) -> Result<Outcome, Fatal> {
        match done {
            Ok(changes) => {
                if let Step::Move { from, to } = step {
                    self.view.moved(from, to);
                }
                for (path, now) in changes {
                    self.view.note(path, now);
                }
                Ok(Outcome::Done)
            }
            Err(undone) => undone.told(),
        }
    }
}
