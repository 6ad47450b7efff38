//! How two ends stand: against each other, and against what they agreed on last. Nothing is changed,
//! but for a way of the workspace that an earlier run began and this one finishes.

use super::error::MirrorError;
use super::held_back::{Held, held_back};
use super::pair::{Ends, Pair};
use super::store::{GenerationHead, Unsound};
use crate::tree::directory::{Directory, TreeHash};
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::wire::mirror::RootState;

/// How two trees differ at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differs {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Removed,
    /// Both have it, and not the same.
    Changed,
}

/// A path at which two trees differ.
pub type Change = (RelPath, Differs);

/// How two ends stand. No part of it says anything of what is excluded.
#[derive(Debug)]
pub struct Survey {
    /// Whether both ends ever agreed on something.
    pub agreed: bool,
    /// Whether the other end's root exists.
    pub far_exists: bool,
    /// From the other end to this one: what a push would do there.
    pub apart: Vec<Change>,
    /// What changed here since the ends agreed.
    pub here: Vec<Change>,
    /// What changed at the other end since then.
    pub far: Vec<Change>,
    /// What the other end has and this one has not accepted.
    pub held_back: Vec<Held>,
    /// The hash of the tree here.
    pub here_tree: TreeHash,
    /// The hash of the tree at the other end.
    pub far_tree: TreeHash,
    /// The last generation.
    pub generation: Option<GenerationHead>,
}

impl Survey {
    /// Whether both ends are what they agreed on.
    pub fn is_as_agreed(&self) -> bool {
        self.agreed && self.here.is_empty() && self.far.is_empty()
    }
}

impl Pair {
    /// Reads both ends whole and compares them.
    ///
    /// # Errors
    /// When one cannot be read whole, or is not the directory that it was.
    pub fn survey(&mut self, ends: &mut Ends<'_>) -> Result<Survey, MirrorError> {
        self.recover(ends.local, ends.progress)?;
        ends.local.root()?;
        let far_exists = match ends.state {
            RootState::Another => return Err(MirrorError::FarOfAnother),
            RootState::Replaced => return Err(MirrorError::FarReplaced),
            RootState::Absent => false,
            RootState::Empty | RootState::Unmarked | RootState::Ours => true,
        };
        let (here, far) = self.read_for_push(ends)?;
        let (here, far) = (self.mirrored(&here.tree), self.mirrored(&far));
        let mut survey = Survey {
            agreed: self.agreed.is_some(),
            far_exists,
            apart: changes(&far, &here),
            here: Vec::new(),
            far: Vec::new(),
            held_back: Vec::new(),
            here_tree: here.hash(),
            far_tree: far.hash(),
            generation: self.store.latest()?,
        };
        if let Some(agreed) = &self.agreed {
            survey.here = changes(&self.mirrored(&agreed.here), &here);
            survey.far = changes(&self.mirrored(&agreed.far), &far);
            survey.held_back = self.waiting();
            let waits = |path: &RelPath| survey.held_back.iter().any(|held| held.path == *path);
            survey.apart.retain(|(path, _)| !waits(path));
        }
        Ok(survey)
    }

    /// What of the other end waits to be accepted.
    pub fn waiting(&self) -> Vec<Held> {
        let waiting = |agreed: &super::agreed::Agreed| {
            held_back(&agreed.here, &self.without_excluded(&agreed.far))
        };
        self.agreed.as_ref().map(waiting).unwrap_or_default()
    }

    /// Reads the last generation again, whole.
    ///
    /// # Errors
    /// When its list cannot be read.
    pub fn verify_generation(&self) -> Result<Option<(GenerationHead, Vec<Unsound>)>, MirrorError> {
        let Some(head) = self.store.latest()? else {
            return Ok(None);
        };
        let (head, tree) = self.store.load(head.number)?;
        let unsound = self.store.verify(&tree);
        Ok(Some((head, unsound)))
    }

    /// A tree without what is excluded or never mirrored.
    fn mirrored(&self, tree: &Directory) -> Directory {
        self.without_excluded(tree)
            .plain()
            .filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)))
    }
}

/// Where the second tree differs from the first, by path.
pub fn changes(first: &Directory, second: &Directory) -> Vec<Change> {
    let mut changes = Vec::new();
    if first.hash() == second.hash() {
        return changes;
    }
    first.walk(&mut |path, entry| match (entry, second.find(path)) {
        (_, None) => changes.push((path.clone(), Differs::Removed)),
        (Entry::Directory(_), Some(Entry::Directory(_))) => {}
        (entry, Some(other)) if entry == other => {}
        (_, Some(_)) => changes.push((path.clone(), Differs::Changed)),
    });
    second.walk(&mut |path, _| {
        if first.find(path).is_none() {
            changes.push((path.clone(), Differs::Added));
        }
    });
    changes.sort_by(|(one, _), (other, _)| one.cmp(other));
    changes
}
