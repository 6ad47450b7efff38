//! What a tool that may change its copy made of it, on its way into the workspace.
//!
//! It was read when everything of the tool had ended. From there on only its tree and the contents
//! that are in the store count, which their hashes prove: nothing is taken from the copy unproven.

use super::policy::{Finding, Policy};
use super::record;
use super::run::Run;
use super::view::{View, text};
use crate::ledger::{Audit, AuditedGeneration, Verdict};
use crate::mirror::store::{GenerationHead, Store};
use crate::report::Failure;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;

/// A changed copy.
#[derive(Debug)]
pub struct Change {
    pub(super) generation: AuditedGeneration,
    pub(super) view: View,
    /// Its tree, with all that is odd in it.
    pub(super) tree: Directory,
    /// The first paths that were changed, and how many were.
    pub(super) paths: Vec<RelPath>,
    pub(super) count: u64,
}

impl Change {
    /// What the policy refuses of it.
    pub fn judge(&self, policy: &Policy) -> Vec<Finding> {
        policy.judge(&self.tree)
    }

    /// The tree that the tool looked at.
    pub const fn before(&self) -> &Directory {
        self.view.before()
    }

    /// What of it can stand in a workspace: no special files, no odd bits.
    pub fn after(&self) -> Directory {
        plain(&self.tree)
    }

    /// Whether a workspace would be what it was before: only what none can have was changed.
    pub fn is_empty(&self) -> bool {
        self.after().hash() == plain(self.before()).hash()
    }

    /// Publishes it as a generation.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn keep(&self, store: &Store, run: &Run<'_>) -> Result<GenerationHead, Failure> {
        let tree = self.after();
        self.view.keep(&tree, store)?;
        store
            .complete(&tree)
            .and_then(|complete| complete.publish(run.clock.now()))
            .map_err(|error| Failure::because("what the tool made cannot be stored", &error))
    }
}

/// A tree as a workspace can have it.
fn plain(tree: &Directory) -> Directory {
    tree.filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)))
        .plain()
}

impl Run<'_> {
    /// Writes down that a change is the workspace's content now.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn restored(
        &self,
        change: Change,
        kept: &GenerationHead,
        pushed: String,
    ) -> Result<Audit, Failure> {
        let verdict = Verdict::Restored {
            kept: kept.number.0,
            tree: kept.tree.to_string(),
            pushed,
            paths: change.paths.iter().map(text).collect(),
            count: change.count,
        };
        self.close(change, verdict)
    }

    /// Writes down that there is no change that a workspace could have.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn unchanged(&self, change: Change) -> Result<Audit, Failure> {
        self.close(change, Verdict::Passed)
    }

    /// Writes down that the policy refuses a change.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn refused(&self, change: Change, found: &[Finding]) -> Result<Audit, Failure> {
        let (findings, count) = record::listed(found);
        let verdict = Verdict::ChangeRefused {
            tree: change.tree.hash().to_string(),
            findings,
            count,
        };
        self.close(change, verdict)
    }

    /// Writes down why a change did not become the workspace's content.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn not_restored(
        &self,
        change: Change,
        kept: Option<&GenerationHead>,
        failure: &Failure,
    ) -> Result<Audit, Failure> {
        let verdict = Verdict::NotRestored {
            kept: kept.map(|kept| kept.number.0),
            tree: change.tree.hash().to_string(),
            why: record::reason(failure),
        };
        self.close(change, verdict)
    }

    fn close(&self, change: Change, verdict: Verdict) -> Result<Audit, Failure> {
        let Change {
            generation, view, ..
        } = change;
        drop(view);
        let audit = self.record(Some(generation), verdict)?;
        self.desk.clear()?;
        Ok(audit)
    }
}
