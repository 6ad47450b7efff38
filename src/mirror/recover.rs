//! Finishing what an earlier run of this mirror began and did not end: the workspace was on its way
//! to another tree, or the other end was.

use std::collections::BTreeSet;

use super::agreed::Agreed;
use super::error::MirrorError;
use super::journal::{Journal, TreeOf};
use super::pair::{Local, Pair};
use super::plan::{self, plan};
use super::progress::Progress;
use super::pushing::Pushing;
use super::way::Way;
use crate::tree::directory::Directory;
use crate::tree::path::RelPath;

impl Pair {
    /// Follows a journal that an earlier run left, if one did: what it left on its way becomes new,
    /// what it had not finished goes, and whatever else somebody changed, made or removed in between
    /// stays; the next pull says so.
    ///
    /// # Errors
    /// When the journal is damaged or of another mirror or root, or cannot be followed to its end.
    pub(super) fn recover(
        &mut self,
        local: &Local,
        progress: &dyn Progress,
    ) -> Result<(), MirrorError> {
        let Some(root) = &local.root else {
            return Ok(());
        };
        let (path, mirror) = (self.directory.path(), self.state.mirror);
        let Some((journal, open)) = Journal::read(path, mirror, root.identity(), &self.limits)?
        else {
            return Ok(());
        };
        let (old, new) = (self.tree_of(journal.old)?, self.tree_of(journal.new)?);
        let now = self.read_local(local, progress)?;
        let steps = plan(&new, &old, plan::Options::default()).steps;
        let strangers = Way::of(&old, &steps).strangers(&now.tree);
        let strangers: BTreeSet<_> = strangers.into_iter().collect();
        let options = plan::Options {
            protected: Some(&|path, _| strangers.contains(path)),
        };
        let planned = plan(&new, &now.tree, options);
        let applied = self.apply(local, &now, &planned.steps, progress)?;
        Self::settle(&applied)?;
        let (_, far) = self.store.load(journal.generation)?;
        self.agree(Agreed { here: new, far })?;
        open.finish()?;
        Ok(())
    }

    /// Where the other end's tree is neither as an earlier push of this mirror found it, nor on its
    /// way from there to what was pushed; nothing when no push was cut off.
    ///
    /// # Errors
    /// When what that push wrote down cannot be read.
    pub(super) fn strangers_of_push(
        &self,
        far: &Directory,
    ) -> Result<Option<Vec<RelPath>>, MirrorError> {
        let (path, agreed) = (self.directory.path(), self.agreed.as_ref());
        let Some(pushing) = Pushing::read(path, agreed, &self.limits)? else {
            return Ok(None);
        };
        let Pushing { before, wanted } = pushing;
        let steps = self.plan_push(&wanted, &before).1.steps;
        let before = self.without_excluded(&before);
        Ok(Some(Way::of(&before, &steps).strangers(far)))
    }

    fn tree_of(&self, tree: TreeOf) -> Result<Directory, MirrorError> {
        match tree {
            TreeOf::Here(tree) => Ok(tree),
            TreeOf::Generation { number, tree: _ } => Ok(self.store.load(number)?.1),
        }
    }
}
