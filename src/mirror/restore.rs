//! The workspace as an older generation has it. It is an edit of the workspace then, like any other:
//! a push brings it to the other end.
//!
//! There is no journal for it: what a crash leaves is a path that is old or new, and asking again
//! does the rest.

use super::brakes;
use super::canary::Canary;
use super::error::{End, MirrorError};
use super::held_back::{Held, held_back};
use super::pair::{Ends, Local, NAMED_MAX, Pair};
use super::plan::{PullPlan, Summary, plan_pull};
use super::progress::Progress;
use super::push::{PushOptions, Pushed};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;

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
        let planned = self.plan_restore(&now.tree, tree)?;
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

    /// Brings both ends to a tree that somebody made of the one that `options` expects at the other
    /// end, and whose contents are in the store. All that may stop the push is looked at before
    /// anything is changed at either end.
    ///
    /// # Errors
    /// When something was edited here, or the other end has changed from what is expected, or
    /// something may not be pushed; when either end cannot be changed.
    pub fn replace(
        &mut self,
        ends: &mut Ends<'_>,
        tree: &Directory,
        options: &PushOptions,
    ) -> Result<(Restored, Pushed), MirrorError> {
        self.recover(ends.local, ends.progress)?;
        self.may_replace(ends, tree, options)?;
        let restored = self.restore(ends.local, tree, ends.progress)?;
        // The other end is read anew: what changed there meanwhile stops it too.
        let pushed = self.push(ends, options)?;
        Ok((restored, pushed))
    }

    fn may_replace(
        &mut self,
        ends: &mut Ends<'_>,
        tree: &Directory,
        options: &PushOptions,
    ) -> Result<(), MirrorError> {
        let (here, far) = self.read_for_push(ends)?;
        let wanted = self.plan_restore(&here.tree, tree)?.target.plain();
        Self::check_secrets(&wanted, &options.secrets)?;
        let there = self.without_excluded(&far);
        self.may_push(ends, &wanted, &there, options)?;
        let (source, destination) = (wanted.totals(), there.totals());
        brakes::judge_emptied(source, destination, options.allowed)?;
        let (_, planned) = self.plan_push(&wanted, &far);
        brakes::judge_deletes(source, destination, &planned.summary, options.allowed)?;
        match &options.canary {
            Some(canary) => self.search(canary, &wanted, &planned.wanted),
            None => Ok(()),
        }
    }

    /// Looks for the credential in what would be sent, as the store has it.
    fn search(
        &self,
        canary: &Canary,
        tree: &Directory,
        sent: &[(ContentId, u64)],
    ) -> Result<(), MirrorError> {
        let mut found = Vec::new();
        for (content, _) in sent {
            let path = || path_of(tree, content);
            let holds = match self.store.open_content(content) {
                Ok(content) => canary.holds(content),
                // It is not the store's but here: the push itself looks.
                Err(_) => continue,
            };
            match holds {
                Ok(true) => found.extend(path()),
                Ok(false) => {}
                Err(error) => {
                    return Err(MirrorError::Incomplete {
                        end: End::Local,
                        problems: path()
                            .map(|path| (path, error.to_string()))
                            .into_iter()
                            .collect(),
                        count: 1,
                    });
                }
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        found.truncate(NAMED_MAX);
        Err(MirrorError::Credential(found))
    }

    /// How the workspace, which is `now`, becomes what a tree has of it.
    fn plan_restore(&self, now: &Directory, tree: &Directory) -> Result<PullPlan, MirrorError> {
        let empty = Directory::empty();
        let old = self.agreed.as_ref().map_or(&empty, |agreed| &agreed.here);
        let new = self
            .without_excluded(tree)
            .filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)));
        let planned = plan_pull(old, &new, now, held_back(old, &new));
        if planned.local_edits.is_empty() {
            Ok(planned)
        } else {
            Err(MirrorError::Edited(planned.local_edits))
        }
    }
}

/// A file of a tree with that content.
fn path_of(tree: &Directory, content: &ContentId) -> Option<RelPath> {
    let mut found = None;
    tree.walk(&mut |path, entry| {
        if found.is_none() && matches!(entry, Entry::File(file) if file.content == *content) {
            found = Some(path.clone());
        }
    });
    found
}
