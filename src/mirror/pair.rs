//! One mirror, open: its state and store here, its local root, and what both ends agreed on.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::agreed::Agreed;
use super::error::{End, MirrorError};
use super::excludes::{Excludes, Frozen};
use super::far_tree;
use super::glance::Glance;
use super::peer::Peer;
use super::progress::{Amount, Phase, Progress, Unwatched};
use super::rsync::Rsync;
use super::state::{MirrorDirectory, MirrorState};
use super::stop::Stop;
use super::store::Store;
use crate::clock::Clock;
use crate::tree::directory::Directory;
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::path::RelPath;
use crate::tree::root::{Root, RootError};
use crate::tree::scan::{self, Scan};
use crate::wire::mirror::{RootState, Scanned};

/// Paths that are named in an error; more are counted.
pub(super) const NAMED_MAX: usize = 20;
/// The directory for what another program brings, in the mirror's own.
pub(super) const LANDING: &str = "landing";

/// A mirror that this process holds.
#[derive(Debug)]
pub struct Pair {
    pub(super) directory: MirrorDirectory,
    pub(super) state: MirrorState,
    pub(super) store: Store,
    pub(super) agreed: Option<Agreed>,
    pub(super) excludes: Excludes,
    pub(super) limits: Limits,
    pub(super) stop: Stop,
}

/// The local end of a mirror: where it is, and the directory when it exists.
#[derive(Debug)]
pub struct Local {
    /// Its path, absolute and without links.
    pub path: PathBuf,
    /// The directory; nothing when it is to be made.
    pub root: Option<Root>,
}

/// The two ends of a mirror at work, and whoever waits.
pub struct Ends<'a> {
    /// The other end.
    pub peer: &'a mut Peer,
    /// What its root was when it was opened.
    pub state: &'a RootState,
    /// This end.
    pub local: &'a mut Local,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Tells when a generation is published.
    pub clock: &'a dyn Clock,
    /// Moves the contents, where the user asked for it; else labproxy's own channel does.
    pub rsync: Option<&'a mut Rsync>,
}

impl Local {
    /// Opens the directory at a path that may not exist yet.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn open(path: &Path) -> Result<Self, MirrorError> {
        let failed = |error| MirrorError::Root {
            path: path.to_owned(),
            error,
        };
        match Root::open(path) {
            Ok(root) => Ok(Self {
                path: path.to_owned(),
                root: Some(root),
            }),
            Err(RootError::Missing) => Ok(Self {
                path: path.to_owned(),
                root: None,
            }),
            Err(error) => Err(failed(error)),
        }
    }

    /// Makes the directory, which did not exist.
    ///
    /// # Errors
    /// When it cannot be made, or its parent does not exist.
    pub fn make(&mut self) -> Result<(), MirrorError> {
        let path = self.path.clone();
        let failed = |error| MirrorError::Root { path, error };
        rustix::fs::mkdir(&self.path, Mode::RWXU)
            .map_err(RootError::Io)
            .and_then(|()| Root::open(&self.path))
            .map(|root| self.root = Some(root))
            .map_err(failed)
    }

    /// The directory.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn root(&self) -> Result<&Root, MirrorError> {
        let missing = || MirrorError::Root {
            path: self.path.clone(),
            error: RootError::Missing,
        };
        self.root.as_ref().ok_or_else(missing)
    }
}

impl Pair {
    /// Where contents come to that another program brings, when there are any.
    pub(super) fn landing(&self) -> PathBuf {
        self.directory.path().join(LANDING)
    }

    /// Which mirror it is.
    pub const fn id(&self) -> MirrorId {
        self.state.mirror
    }

    /// The excludes, as they were fixed when the mirror began.
    pub const fn frozen(&self) -> &Frozen {
        &self.state.excludes
    }

    /// Lets somebody else end its work early.
    pub fn stop_by(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// The store.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What a push leaves alone.
    pub const fn excludes(&self) -> &Excludes {
        &self.excludes
    }

    /// What both ends had last.
    pub const fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    pub(super) fn agree(&mut self, agreed: Agreed) -> Result<(), MirrorError> {
        agreed.write(self.directory.path())?;
        Glance::forget(self.directory.path());
        self.agreed = Some(agreed);
        Ok(())
    }

    /// Both trees, read at the same time: the local one when there is a local root, without the files
    /// that are read `late`.
    pub(super) fn read_both(
        &self,
        peer: &mut Peer,
        local: &Local,
        late: &HashSet<RelPath>,
        progress: &dyn Progress,
    ) -> Result<(Option<Scan>, Scanned), MirrorError> {
        std::thread::scope(|scope| {
            let here = local
                .root
                .is_some()
                .then(|| scope.spawn(|| self.read_local_but(local, late, &Unwatched)));
            let far = far_tree::scan(peer, Phase::Reading, progress);
            let here = here.map(std::thread::ScopedJoinHandle::join);
            let here = match here {
                Some(Ok(read)) => Some(read?),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => None,
            };
            Ok((here, far?))
        })
    }

    /// A tree without what is excluded.
    pub(super) fn without_excluded(&self, tree: &Directory) -> Directory {
        self.excludes.prune(tree)
    }

    /// Reads the local tree without what is excluded, whole or not at all.
    pub(super) fn read_local(
        &self,
        local: &Local,
        progress: &dyn Progress,
    ) -> Result<Scan, MirrorError> {
        self.read_local_but(local, &HashSet::new(), progress)
    }

    /// The same without the files that are read `late`.
    fn read_local_but(
        &self,
        local: &Local,
        late: &HashSet<RelPath>,
        progress: &dyn Progress,
    ) -> Result<Scan, MirrorError> {
        progress.begin(Phase::Reading, None);
        let skip = |path: &RelPath, is_directory: bool| {
            self.excludes.is_excluded(path, is_directory) || (!is_directory && late.contains(path))
        };
        let counters = scan::Progress::default();
        let options = scan::Options {
            limits: self.limits,
            threads: scan::processors(),
            skip: Some(&skip),
            progress: &counters,
            cancel: self.stop.flag(),
        };
        let root = local.root()?;
        let scan = scan::scan(root, &local.path, options).map_err(|error| {
            let problems = vec![(RelPath::ROOT, error.to_string())];
            MirrorError::Incomplete {
                end: End::Local,
                problems,
                count: 1,
            }
        })?;
        progress.at(Amount {
            entries: scan.tree.totals().entries,
            bytes: scan.tree.totals().bytes,
        });
        if scan.is_complete() {
            return Ok(scan);
        }
        let first = scan.problems.iter().take(NAMED_MAX);
        Err(MirrorError::Incomplete {
            end: End::Local,
            problems: first
                .map(|problem| (problem.path.clone(), problem.trouble.to_string()))
                .collect(),
            count: u64::try_from(scan.problems.len()).unwrap_or(u64::MAX),
        })
    }
}
