//! The workspace as an older generation has it. It is an edit of the workspace then, like any other:
//! a push brings it to the other end.
//!
//! There is no journal for it: what a crash leaves is a path that is old or new, and asking again
//! does the rest.

use super::error::MirrorError;
use super::held_back::{Held, held_back};
use super::pair::{Local, Pair};
use super::plan::{Summary, plan_pull};
use super::progress::Progress;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;

/// What was done.
#[derive(Debug)]
pub struct Restored {
    /// How much.
    pub summary: Summary,
    /// What waits for `mirror accept`, and is as it was.
    pub held_back: Vec<Held>,
}

impl Pair {
    /// Brings the workspace to a tree whose contents are in the store. What is excluded, what has no
    /// content, and what programs run by themselves stays as it is.
    ///
    /// # Errors
    /// When something was edited here since the last push or pull: nothing is changed then. When
    /// the workspace cannot be read or changed.
    pub fn restore(
        &mut self,
        local: &Local,
        tree: &Directory,
        progress: &dyn Progress,
    ) -> Result<Restored, MirrorError> {
        self.recover(local, progress)?;
        let now = self.read_local(local, progress)?;
        let empty = Directory::empty();
        let old = self.agreed.as_ref().map_or(&empty, |agreed| &agreed.here);
        let new = self
            .without_excluded(tree)
            .filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)));
        let planned = plan_pull(old, &new, &now.tree, held_back(old, &new));
        if !planned.local_edits.is_empty() {
            return Err(MirrorError::Edited(planned.local_edits));
        }
        let applied = self.apply(local, &now, &planned.plan.steps, progress)?;
        let kept = Self::settle(&applied)?;
        if !kept.is_empty() {
            let paths = kept.into_iter().map(|(path, _)| path);
            return Err(MirrorError::Edited(paths.collect()));
        }
        Ok(Restored {
            summary: planned.plan.summary,
            held_back: planned.held_back,
        })
    }
}
