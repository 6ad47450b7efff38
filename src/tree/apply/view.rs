//! What should stand at each path: what the scan saw, and what the steps have changed since.

use std::collections::BTreeMap;

use rustix::fs::FileType;

use super::super::path::RelPath;
use super::super::stamp::{Stamp, Stamps};

/// The scan's stamps under the changes of the steps that were done.
#[derive(Debug)]
pub(super) struct View<'a> {
    scanned: &'a Stamps,
    changed: BTreeMap<RelPath, Option<Stamp>>,
}

impl<'a> View<'a> {
    pub(super) const fn new(scanned: &'a Stamps) -> Self {
        Self {
            scanned,
            changed: BTreeMap::new(),
        }
    }

    /// What should stand there; nothing when nothing should.
    pub(super) fn expected(&self, path: &RelPath) -> Option<Stamp> {
        match self.changed.get(path) {
            Some(now) => *now,
            None => self.scanned.get(path).copied(),
        }
    }

    pub(super) fn note(&mut self, path: RelPath, now: Option<Stamp>) {
        self.changed.insert(path, now);
    }

    /// What lay in `from`, the directory itself included, lies in `to` now.
    pub(super) fn moved(&mut self, from: &RelPath, to: &RelPath) {
        let all = self.scanned.all();
        let first = all.partition_point(|(path, _)| path < from);
        let scanned = all.iter().skip(first).map(|(path, _)| path);
        let mut within: Vec<RelPath> = scanned
            .take_while(|path| path.is_within(from))
            .cloned()
            .collect();
        let changed = self.changed.range(from..).map(|(path, _)| path);
        within.extend(
            changed
                .take_while(|path| path.is_within(from))
                .filter(|path| self.scanned.get(path).is_none())
                .cloned(),
        );
        for path in within {
            let stamp = self.expected(&path);
            if let (Some(stamp), Some(there)) = (stamp, path.rebase(from, to)) {
                self.changed.insert(there, Some(stamp));
            }
            self.changed.insert(path, None);
        }
    }

    pub(super) fn into_changes(self) -> BTreeMap<RelPath, Option<Stamp>> {
        self.changed
    }
}

/// Whether `now` is what `before` tells of, as far as a stamp can tell. A directory is the same as
/// long as it is the same inode: our own steps change its times. Of a file with several names the
/// change time is left out, because a step on another of its names moves it.
pub(super) fn is_unchanged(before: &Stamp, now: &Stamp) -> bool {
    if before.kind() == FileType::Directory {
        return is_same_directory(before, now);
    }
    before == now || ((before.links > 1 || now.links > 1) && before.is_same_file(now))
}

/// Whether both are one directory.
pub(super) fn is_same_directory(one: &Stamp, other: &Stamp) -> bool {
    one.kind() == FileType::Directory
        && other.kind() == FileType::Directory
        && (one.device, one.inode) == (other.device, other.inode)
}
