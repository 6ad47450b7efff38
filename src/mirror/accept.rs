//! Taking into the workspace what a pull held back, once a person has said so.
//!
//! There is no journal for it: what a crash leaves is a path that is old or new, and asking again
//! does the rest.

use super::agreed::Agreed;
use super::error::MirrorError;
use super::held_back::{Held, without};
use super::pair::{Local, Pair};
use super::plan::{self, plan};
use super::progress::Progress;
use crate::tree::path::RelPath;

impl Pair {
    /// Accepts what waits at these paths, or below them; gives what came.
    ///
    /// # Errors
    /// When nothing waits at one of them, or it was edited here; or the workspace cannot be changed.
    pub fn accept(
        &mut self,
        local: &Local,
        paths: &[RelPath],
        progress: &dyn Progress,
    ) -> Result<Vec<Held>, MirrorError> {
        self.recover(local, progress)?;
        let waiting = self.waiting();
        let asked = |held: &Held| paths.iter().any(|path| held.path.is_within(path));
        let unknown: Vec<RelPath> = paths
            .iter()
            .filter(|path| !waiting.iter().any(|held| held.path.is_within(path)))
            .cloned()
            .collect();
        if !unknown.is_empty() {
            return Err(MirrorError::NotHeld(unknown));
        }
        let accepted: Vec<Held> = waiting.into_iter().filter(asked).collect();
        let Some(agreed) = &self.agreed else {
            return Ok(accepted);
        };
        let now = self.read_local(local, progress)?;
        let tree = now.tree.plain();
        let (here, far) = (agreed.here.plain(), agreed.far.plain());
        let edited: Vec<RelPath> = accepted
            .iter()
            .map(|held| &held.path)
            .filter(|path| {
                let is = tree.find(path);
                is != here.find(path) && is != far.find(path)
            })
            .cloned()
            .collect();
        if !edited.is_empty() {
            return Err(MirrorError::Edited(edited));
        }
        let target = without(&agreed.far, &now.tree, &accepted);
        let planned = plan(&target, &now.tree, plan::Options::default());
        let next = Agreed {
            here: without(&agreed.far, &agreed.here, &accepted),
            far: agreed.far.clone(),
        };
        let applied = self.apply(local, &now, &planned.steps, progress)?;
        let kept = Self::settle(&applied)?;
        if !kept.is_empty() {
            return Err(MirrorError::Edited(
                kept.into_iter().map(|(path, _)| path).collect(),
            ));
        }
        self.agree(next)?;
        Ok(accepted)
    }
}
