//! The workspace on its way to another tree, under a journal: every file is old or new at every
//! instant, and what somebody changes meanwhile is left alone.

use rustix::io::Errno;

use super::agreed::Agreed;
use super::ahead::{Brought, Written};
use super::error::{End, MirrorError};
use super::held_back;
use super::journal::{Journal, TreeOf};
use super::pair::{Local, NAMED_MAX, Pair};
use super::plan::{Summary, plan_pull};
use super::progress::{Amount, Phase, Progress};
use super::pull::Workspace;
use super::pushing::Pushing;
use super::store::GenerationNumber;
use super::way::is_leftover;
use crate::tree::apply::{Applied, Apply, Contents, Modes, Why};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::Scan;
use crate::tree::step::Step;

impl Pair {
    /// Brings the workspace to a generation, under a journal. Files that were written ahead get their
    /// names.
    pub(super) fn bring(
        &mut self,
        local: &mut Local,
        now: Option<Scan>,
        tree: &Directory,
        generation: GenerationNumber,
        (written, progress): (Written, &dyn Progress),
    ) -> Result<Workspace, MirrorError> {
        let empty = Directory::empty();
        let now = if let Some(now) = now {
            now
        } else {
            local.make()?;
            self.read_local(local, progress)?
        };
        if self.is_agreed(&now, tree) {
            Pushing::end(self.directory.path())?;
            return Ok(Workspace::Brought {
                summary: Summary::default(),
                held_back: Vec::new(),
                kept: Vec::new(),
            });
        }
        let old = self.agreed.as_ref().map_or(&empty, |agreed| &agreed.here);
        if self.agreed.is_none() && now.tree.totals().entries > 0 && now.tree.hash() != tree.hash()
        {
            return Err(MirrorError::NotEmpty(End::Local));
        }
        let new = self.without_excluded(tree).filtered(&mut |path, entry| {
            old.find(path).is_some() || !is_emptied(entry, tree.find(path))
        });
        let new = self.without_leftovers(new)?;
        let held = held_back::held_back(old, &new);
        let planned = plan_pull(old, &new, &now.tree, held);
        if !planned.local_edits.is_empty() {
            return Ok(Workspace::Edited(planned.local_edits));
        }
        let journal = Journal {
            mirror: self.state.mirror,
            root: local.root()?.identity(),
            generation,
            // Not what was agreed: the steps are planned anew from here when they are cut off.
            old: TreeOf::Here(now.tree.clone()),
            new: TreeOf::Here(planned.target.clone()),
        };
        let agreed = Agreed {
            here: planned.target,
            far: tree.clone(),
        };
        // Without steps nothing was written, and nothing is to be made durable.
        let kept = if planned.plan.steps.is_empty() {
            self.agree(agreed)?;
            Vec::new()
        } else {
            let begun = journal.begin(self.directory.path())?;
            let contents = Brought {
                store: &self.store,
                written,
            };
            let applied = self.apply_from(&contents, local, &now, &planned.plan.steps, progress)?;
            let kept = Self::settle(&applied)?;
            self.agree(agreed)?;
            begun.finish()?;
            kept
        };
        Pushing::end(self.directory.path())?;
        Ok(Workspace::Brought {
            summary: planned.plan.summary,
            held_back: planned.held_back,
            kept,
        })
    }

    /// A tree of the other end without what a push of ours that was cut off had not finished there.
    fn without_leftovers(&self, tree: Directory) -> Result<Directory, MirrorError> {
        let (path, agreed) = (self.directory.path(), self.agreed.as_ref());
        if Pushing::read(path, agreed, &self.limits)?.is_none() {
            return Ok(tree);
        }
        Ok(tree.filtered(&mut |path, entry| !is_leftover(path, entry)))
    }

    /// Whether both ends are what was agreed, and one tree, so that nothing is excluded or held
    /// back: all that a plan would say is nothing.
    fn is_agreed(&self, now: &Scan, tree: &Directory) -> bool {
        self.agreed.as_ref().is_some_and(|agreed| {
            let all = [&agreed.far, &agreed.here, &now.tree];
            all.iter().all(|one| one.hash() == tree.hash())
        })
    }

    pub(super) fn apply(
        &self,
        local: &Local,
        now: &Scan,
        steps: &[Step],
        progress: &dyn Progress,
    ) -> Result<Applied, MirrorError> {
        self.apply_from(&self.store, local, now, steps, progress)
    }

    /// The same, with contents from elsewhere than the store.
    #[expect(
        clippy::unused_self,
        reason = "only who holds the mirror changes the workspace"
    )]
    pub(super) fn apply_from(
        &self,
        contents: &dyn Contents,
        local: &Local,
        now: &Scan,
        steps: &[Step],
        progress: &dyn Progress,
    ) -> Result<Applied, MirrorError> {
        let all = Amount {
            entries: u64::try_from(steps.len()).unwrap_or(u64::MAX),
            bytes: 0,
        };
        progress.begin(Phase::Applying, Some(all));
        let root = local.root()?;
        let disk = |error| MirrorError::Disk {
            path: local.path.clone(),
            error,
        };
        let apply = Apply::new(root, &now.stamps, contents, Modes::PRIVATE);
        let applied = apply.map_err(disk)?.run(steps);
        // Everything that was written is on the disk before the journal says that it is.
        sync(root).map_err(disk)?;
        Ok(applied)
    }

    /// What was left alone; what failed is an error, and the journal stays.
    pub(super) fn settle(applied: &Applied) -> Result<Vec<(RelPath, String)>, MirrorError> {
        let text = |(path, why): &(RelPath, Why)| (path.clone(), why.to_string());
        let kept: Vec<(RelPath, String)> = applied.kept.iter().map(text).collect();
        if applied.failed.is_empty() && applied.stopped.is_none() {
            return Ok(kept);
        }
        let first = applied.failed.iter().take(NAMED_MAX);
        Err(MirrorError::Partly {
            end: End::Local,
            failed: first
                .map(|(path, why)| (path.clone(), why.to_string()))
                .collect(),
            failed_count: u64::try_from(applied.failed.len()).unwrap_or(u64::MAX),
            kept,
            stopped: applied.stopped.as_ref().map(ToString::to_string),
        })
    }
}

/// Whether a directory is one only because of what is excluded in it: it is not made for that.
fn is_emptied(left: &Entry, whole: Option<&Entry>) -> bool {
    fn is_bare(entry: &Entry) -> bool {
        match entry {
            Entry::Directory(directory) => {
                directory.entries().iter().all(|(_, entry)| is_bare(entry))
            }
            Entry::File(_) | Entry::Link(_) | Entry::Special(_) => false,
        }
    }
    matches!(left, Entry::Directory(_)) && is_bare(left) && !whole.is_none_or(is_bare)
}

/// Writes what the file system of a tree still holds in memory.
#[cfg(target_os = "linux")]
fn sync(root: &Root) -> Result<(), Errno> {
    rustix::fs::syncfs(root)
}

/// The same, where only all file systems can be written.
#[cfg(not(target_os = "linux"))]
fn sync(_root: &Root) -> Result<(), Errno> {
    rustix::fs::sync();
    Ok(())
}
