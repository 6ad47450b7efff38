//! Hearing that somebody edits the local tree, so that a push follows.
//!
//! What is heard is a hint and never more: a push reads the whole tree again, and what no watch
//! tells (a store through a mapped page, a write through a hard link from outside) goes with the
//! next one. So a lost event costs a moment, not a file.
//!
//! The kernel is asked by `notify`, one directory at a time and never by a path of the tree: its own
//! recursion follows a link that took a directory's place, and watches what that leads to. Here the
//! directory is opened beneath the root, without following any link, and it is that descriptor
//! which is watched. Where the kernel can watch no more, the tree is looked at from time to time.

mod alias;
mod changed;
mod kernel;
mod look;
mod wake;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::changed::Changed;
pub use self::kernel::Deaf;
use self::kernel::Kernel;
use self::look::Fingerprint;
pub use self::wake::Wake;
use self::wake::{Next, Told};
use self::walk::{Visit, walk};
use crate::tree::path::{Name, RelPath};
use crate::tree::root::Root;

/// A push begins when so long nothing was edited: an editor writes, renames and changes modes within
/// some milliseconds, and a checkout of many files pauses for less.
const QUIET: Duration = Duration::from_millis(300);
/// A push begins after so long although edits go on, as while a build writes without a pause.
const LONGEST: Duration = Duration::from_secs(5);
/// Where nothing can be heard the tree is looked at this often; a person does not notice more.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// And then looking takes at most one part in so many of the time.
const LOOK_SHARE: u32 = 20;
/// When events were lost twice within this, the second loss is answered at its end: reading a large
/// tree makes events of its own, which must not lead to reading it again without end.
const LOSS_PAUSE: Duration = Duration::from_secs(30);

/// Says whether a path is left alone; whether it is a directory is the second argument.
pub type Skip<'a> = &'a dyn Fn(&RelPath, bool) -> bool;

/// Hears of edits in a tree.
pub struct Watch {
    wake: Arc<Wake>,
    way: Way,
    deaf: Option<Deaf>,
    lost: Option<Instant>,
}

enum Way {
    Listening(Listening),
    Looking(Fingerprint),
}

/// The directories that are watched, each by the number that its events come with.
struct Listening {
    kernel: Kernel,
    paths: HashMap<u32, RelPath>,
    numbers: HashMap<RelPath, u32>,
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Edits, and quiet after them.
    Changed(Changed),
    /// The wait was ended from outside.
    Stopped,
}

impl Watch {
    /// Begins to listen. What is edited from now on is heard of by [`Self::wait`].
    pub fn start(root: &Root, skip: Skip<'_>, wake: Arc<Wake>) -> Self {
        let mut watch = Self {
            wake,
            way: Way::Looking(Fingerprint::default()),
            deaf: None,
            lost: None,
        };
        match Listening::new(&watch.wake) {
            Ok(listening) => {
                watch.way = Way::Listening(listening);
                watch.listen_below(root, &RelPath::ROOT, skip, &mut Changed::default());
            }
            Err(deaf) => watch.look_instead(deaf, root, skip),
        }
        watch
    }

    /// Why edits are looked for, since this was last asked: nothing when they are heard of.
    pub fn deaf(&mut self) -> Option<Deaf> {
        self.deaf.take()
    }

    /// Waits for edits that are not left alone, and until they pause.
    pub fn wait(&mut self, root: &Root, skip: Skip<'_>) -> Heard {
        if matches!(self.way, Way::Looking(_)) {
            return self.look(root, skip);
        }
        let mut changed = Changed::default();
        let mut pace = Pace::default();
        loop {
            match self.wake.next(pace.until()) {
                Next::Stopped => return Heard::Stopped,
                Next::Quiet => return Heard::Changed(changed),
                Next::Told(told) => {
                    if told.lost {
                        pace.not_before = self.lost.map(|last| last + LOSS_PAUSE);
                        self.lost = Some(Instant::now());
                    }
                    if self.hear(root, skip, told, &mut changed) {
                        pace.edited();
                    }
                }
            }
        }
    }

    /// Takes what the kernel told; says whether any of it is an edit that matters.
    fn hear(&mut self, root: &Root, skip: Skip<'_>, told: Told, changed: &mut Changed) -> bool {
        if told.lost || self.has_moved(&told) {
            // A directory that moved is watched by its old name, perhaps outside the root by now.
            self.listen_anew(root, skip, changed);
            changed.add_everything();
            return true;
        }
        let mut matters = false;
        for ((number, name), what) in told.entries {
            let Way::Listening(listening) = &self.way else {
                break;
            };
            let Some(directory) = listening.paths.get(&number) else {
                continue;
            };
            let Some(name) = name else {
                if directory.is_root() {
                    changed.add_everything();
                    matters = true;
                }
                continue;
            };
            let path = directory.join(&name);
            let is_directory = walk::is_directory(root, &path).unwrap_or(what.directory);
            if skip(&path, is_directory) {
                continue;
            }
            matters = true;
            if is_directory && what.made {
                // What was made in it before it was watched was told of by nobody.
                self.listen_below(root, &path, skip, changed);
            }
            changed.add(path);
        }
        matters
    }

    fn has_moved(&self, told: &Told) -> bool {
        let Way::Listening(listening) = &self.way else {
            return false;
        };
        told.entries.iter().any(|((number, name), what)| {
            what.left
                && listening.paths.get(number).is_some_and(|directory| {
                    let name = name.as_ref();
                    name.is_some_and(|name| listening.numbers.contains_key(&directory.join(name)))
                })
        })
    }

    fn listen_anew(&mut self, root: &Root, skip: Skip<'_>, changed: &mut Changed) {
        if let Way::Listening(listening) = &mut self.way {
            listening.paths.clear();
            listening.numbers.clear();
            match listening.kernel.anew(&self.wake) {
                Ok(()) => self.listen_below(root, &RelPath::ROOT, skip, changed),
                Err(deaf) => self.look_instead(deaf, root, skip),
            }
        }
    }

    fn listen_below(&mut self, root: &Root, from: &RelPath, skip: Skip<'_>, changed: &mut Changed) {
        let Way::Listening(listening) = &mut self.way else {
            return;
        };
        let mut visit = Listen { listening, changed };
        if let Err(deaf) = walk(root, from, skip, &mut visit) {
            self.look_instead(deaf, root, skip);
        }
    }

    /// Looks from now on, because the kernel cannot watch all.
    fn look_instead(&mut self, deaf: Deaf, root: &Root, skip: Skip<'_>) {
        self.deaf = Some(deaf);
        self.way = Way::Looking(look::fingerprint(root, skip));
    }

    fn look(&mut self, root: &Root, skip: Skip<'_>) -> Heard {
        let mut pause = LOOK_EVERY;
        loop {
            if self.wake.rest(pause) {
                return Heard::Stopped;
            }
            let began = Instant::now();
            let now = look::fingerprint(root, skip);
            pause = LOOK_EVERY.max(began.elapsed().saturating_mul(LOOK_SHARE));
            let Way::Looking(seen) = &mut self.way else {
                return Heard::Changed(Changed::everything());
            };
            if *seen != now {
                *seen = now;
                return Heard::Changed(Changed::everything());
            }
        }
    }
}

impl Listening {
    fn new(wake: &Arc<Wake>) -> Result<Self, Deaf> {
        Ok(Self {
            kernel: Kernel::new(wake)?,
            paths: HashMap::new(),
            numbers: HashMap::new(),
        })
    }
}

/// Watches each directory before it is listed, and so hears of all that comes after the list.
struct Listen<'a> {
    listening: &'a mut Listening,
    changed: &'a mut Changed,
}

impl Visit for Listen<'_> {
    fn directory(&mut self, path: &RelPath, opened: BorrowedFd<'_>) -> Result<(), Deaf> {
        let number = self.listening.kernel.watch(opened)?;
        self.listening.paths.insert(number, path.clone());
        self.listening.numbers.insert(path.clone(), number);
        Ok(())
    }

    fn entry(&mut self, path: &RelPath, _directory: BorrowedFd<'_>, _name: &Name) {
        self.changed.add(path.clone());
    }
}

/// When a push is due.
#[derive(Default)]
struct Pace {
    first: Option<Instant>,
    last: Option<Instant>,
    not_before: Option<Instant>,
}

impl Pace {
    fn edited(&mut self) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    fn until(&self) -> Option<Instant> {
        let (first, last) = (self.first?, self.last?);
        let due = (last + QUIET).min(first + LONGEST);
        Some(
            self.not_before
                .map_or(due, |not_before| due.max(not_before)),
        )
    }
}

/// What is told of one name of a directory, or of the directory itself.
type Entries = BTreeMap<(u32, Option<Name>), wake::What>;
