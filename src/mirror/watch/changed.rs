//! Which paths were edited, as far as that is known.

use std::collections::BTreeSet;

use crate::tree::path::RelPath;

/// Paths that are kept one by one; more are everything, which costs no more to push.
const PATHS_MAX: usize = 4_096;

/// Paths that were edited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    paths: BTreeSet<RelPath>,
    everything: bool,
}

impl Changed {
    /// Nothing is known but that something was.
    pub fn everything() -> Self {
        Self {
            paths: BTreeSet::new(),
            everything: true,
        }
    }

    /// The paths, while not everything may be edited.
    pub fn paths(&self) -> Option<&BTreeSet<RelPath>> {
        (!self.everything).then_some(&self.paths)
    }

    pub(super) fn add(&mut self, path: RelPath) {
        if self.paths.len() >= PATHS_MAX {
            self.add_everything();
        }
        if !self.everything {
            self.paths.insert(path);
        }
    }

    pub(super) fn add_everything(&mut self) {
        self.paths.clear();
        self.everything = true;
    }
}
