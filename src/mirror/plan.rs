//! What has to be done so that one tree becomes another: a pure function of the two.
//!
//! Directories that were renamed move whole ([`shape`]), also when a little was edited in them;
//! then each place is compared ([`differ`]), and the contents that are missing come from files that
//! are there ([`contents`]) before anything is asked for. Equals are never chosen at random: a file
//! of the same name first, then the first by path.
//!
//! Every step names paths as they are when its turn comes. The order is: directories that are made
//! or moved, parents first; moves; copies; writes; links; modes; then deletes, children first; then
//! what had to wait for a delete. A file that others are copied from is read before it is replaced
//! or removed; where files exchange their contents one is parked under a name of [`PARKED`] in the
//! root. A file that stands is never taken away before its new content is there: it is replaced.

mod contents;
mod differ;
mod pull;
mod shape;
mod similar;

pub use pull::{PullPlan, plan_pull};

use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, SpecialKind};
use crate::tree::path::RelPath;
use crate::tree::step::Step;

/// How the names begin under which a file stands in the root while its place is not free. One that
/// a crash left is no different from any other file: the next plan removes it.
pub const PARKED: &str = ".labproxy-parked-";

/// Says whether a path, a directory or not, is to be left alone on both sides.
pub type Protects<'a> = dyn Fn(&RelPath, bool) -> bool + 'a;

/// What a plan keeps its hands off.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Paths that are neither made, changed nor removed: what is excluded.
    pub protected: Option<&'a Protects<'a>>,
}

/// How one tree becomes another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps, in the order in which they are done.
    pub steps: Vec<Step>,
    /// Each content that the tree has nowhere and needs, with its bytes, by id. The empty content
    /// is never among them.
    pub wanted: Vec<(ContentId, u64)>,
    /// Entries that shall be and are never made: those without content.
    pub not_mirrored: Vec<(RelPath, SpecialKind)>,
    /// What stays although it should not be there, and what was not made because of that.
    pub kept: Vec<Kept>,
    /// How much it is.
    pub summary: Summary,
}

/// A place that a plan could not bring to what it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where. A directory stands for all that is in it.
    pub path: RelPath,
    /// Why.
    pub why: KeptWhy,
}

/// Why something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeptWhy {
    /// It is excluded, or a directory that holds something excluded.
    #[error("kept: excluded")]
    Excluded,
    /// Another file system is mounted there, or below.
    #[error("kept: another file system is mounted there")]
    Mounted,
}

/// How much a plan does, for a person and for the brakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Entries where nothing was.
    pub created: Tally,
    /// Files and links whose content or mode becomes another one.
    pub changed: Tally,
    /// Entries that are renamed, those within a renamed directory included.
    pub moved: Tally,
    /// Files where nothing was, of a content that is there.
    pub copied: Tally,
    /// Entries that are removed for good.
    pub deleted: Tally,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} new, {} changed, {} moved, {} copied, {} deleted",
            self.created.entries,
            self.changed.entries,
            self.moved.entries,
            self.copied.entries,
            self.deleted.entries,
        )
    }
}

impl Summary {
    /// Files that it makes, changes, moves or removes.
    pub const fn files(&self) -> u64 {
        let (created, changed) = (self.created.files, self.changed.files);
        let made = created
            .saturating_add(changed)
            .saturating_add(self.copied.files);
        let gone = self.moved.files.saturating_add(self.deleted.files);
        made.saturating_add(gone)
    }
}

/// A number of entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of every kind.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, file: Option<u64>) {
        self.entries = self.entries.saturating_add(1);
        if let Some(bytes) = file {
            self.files = self.files.saturating_add(1);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

/// Plans how `to`, what is there, becomes `from`, what shall be.
pub fn plan(from: &Directory, to: &Directory, options: Options<'_>) -> Plan {
    match options.protected {
        None => plan_whole(from, to, &|_, _| false),
        Some(protected) => {
            let from = from.filtered(&mut |path, entry| !protected(path, is_directory(entry)));
            plan_whole(&from, to, protected)
        }
    }
}

fn plan_whole(from: &Directory, to: &Directory, protected: &Protects<'_>) -> Plan {
    let mut plan = Plan {
        not_mirrored: special(from),
        ..Plan::default()
    };
    if from.hash() == to.hash() {
        return plan;
    }
    let mut shape = shape::Shape::of(to, protected);
    shape::bring(from, &mut shape, &mut plan);
    let changes = differ::changes(from, &shape);
    contents::finish(from, to, &shape, changes, &mut plan);
    plan
}

fn special(tree: &Directory) -> Vec<(RelPath, SpecialKind)> {
    let mut found = Vec::new();
    tree.walk(&mut |path, entry| {
        if let Entry::Special(kind) = entry {
            found.push((path.clone(), *kind));
        }
    });
    found
}

const fn is_directory(entry: &Entry) -> bool {
    matches!(entry, Entry::Directory(_))
}
