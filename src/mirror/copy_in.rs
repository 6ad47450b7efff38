//! Files that a user brings into the workspace, from an archive or a directory, and a push.
//!
//! The source is read whole first, and judged: what it may not hold, what is there already, what a push
//! would refuse. Only then is the workspace changed. There is no journal for it: what a crash leaves is
//! a path that is old or new, and asking again does the rest.

mod archive;
mod directory;
mod refusal;
mod staged;

use std::path::PathBuf;

use super::brakes;
use super::error::MirrorError;
use super::excludes::FILE;
use super::items::{Item, items};
use super::pair::{Ends, NAMED_MAX, Pair};
use super::plan::{self, PARKED, Summary, plan};
use super::push::{PushOptions, Pushed};
use crate::tree::apply::is_unfinished;
use crate::tree::directory::{Directory, TwiceTheName};
use crate::tree::entry::{Entry, SpecialKind};
use crate::tree::limits::PATHS_MAX;
use crate::tree::path::RelPath;

pub use refusal::{CopyInError, Refusal, Refusals, Unfit};
use staged::{Growing, Staging};

/// Where files are brought from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A tar archive, plain or packed with gzip or zstd.
    Archive(PathBuf),
    /// A directory, by its real path.
    Directory(PathBuf),
}

/// What a user brings.
#[derive(Debug)]
pub struct CopyIn {
    /// From where.
    pub source: Source,
    /// Into which directory of the workspace.
    pub to: RelPath,
    /// To replace files that are there and are other ones.
    pub replace: bool,
}

/// What was done, or would be.
#[derive(Debug)]
pub struct CopiedIn {
    /// How much.
    pub summary: Summary,
    /// What is done here, path by path.
    pub items: Vec<Item>,
    /// The push; nothing of a dry run.
    pub pushed: Option<Pushed>,
}

impl Pair {
    /// Puts what is brought into the workspace, and pushes. A dry run only says what would be put.
    ///
    /// # Errors
    /// When something was refused: nothing is changed then. When the workspace cannot be read or
    /// changed. As [`Pair::push`].
    pub fn copy_in(
        &mut self,
        ends: &mut Ends<'_>,
        brought: &CopyIn,
        options: &PushOptions,
    ) -> Result<CopiedIn, MirrorError> {
        // A push that would be refused by what the ends are now is refused before anything is put.
        let before = PushOptions {
            allowed: brakes::Allowed::ALL,
            force: options.force,
            secrets: options.secrets.clone(),
            dry_run: true,
            ..PushOptions::default()
        };
        self.push(ends, &before)?;
        let (new, staging) = self.stage(brought)?;
        let now = self.read_local(ends.local, ends.progress)?;
        let merged = self.merged(&now.tree, &new, brought.replace)?;
        let wanted = merged.plain();
        let wanted = wanted.filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)));
        Self::check_secrets(&wanted, &options.secrets)?;
        let planned = plan(&merged, &now.tree, plan::Options::default());
        if let Some(canary) = &options.canary {
            let mut found = Vec::new();
            for (path, content) in files_of(&new) {
                let file = staging.content(content).map_err(CopyInError::Staging)?;
                if canary.holds(file).map_err(CopyInError::Staging)? {
                    found.push(path);
                }
            }
            if !found.is_empty() {
                found.truncate(NAMED_MAX);
                return Err(MirrorError::Credential(found));
            }
        }
        let mut done = CopiedIn {
            summary: planned.summary,
            items: items(&planned.steps, &now.tree),
            pushed: None,
        };
        if options.dry_run {
            return Ok(done);
        }
        let applied = self.apply_from(&staging, ends.local, &now, &planned.steps, ends.progress)?;
        let kept = Self::settle(&applied)?;
        if !kept.is_empty() {
            let paths = kept.into_iter().map(|(path, _)| path);
            return Err(MirrorError::Edited(paths.collect()));
        }
        drop(staging);
        done.pushed = Some(self.push(ends, options)?);
        Ok(done)
    }

    /// Reads the source whole.
    fn stage(&self, brought: &CopyIn) -> Result<(Directory, Staging), CopyInError> {
        let mut staging = Staging::begin(self.directory.path()).map_err(CopyInError::Staging)?;
        let mut tree = Growing::new(self.limits);
        let into = (&mut tree, &mut staging);
        let (path, refusals) = match &brought.source {
            Source::Archive(path) => (path, archive::read(path, &brought.to, into)?),
            Source::Directory(path) => {
                let read = directory::read(path, &brought.to, into, self.stop.flag())?;
                (path, read)
            }
        };
        if !refusals.is_empty() {
            return Err(CopyInError::Refused {
                from: path.clone(),
                refusals,
            });
        }
        Ok((tree.finish()?, staging))
    }

    /// The workspace with what is brought in it.
    fn merged(
        &self,
        now: &Directory,
        new: &Directory,
        replace: bool,
    ) -> Result<Directory, CopyInError> {
        let mut found = Found::default();
        new.walk(&mut |path, entry| {
            let is_directory = matches!(entry, Entry::Directory(_));
            let name = path.components().next_back().unwrap_or_default();
            if self.excludes.is_excluded(path, is_directory) {
                found.unfit.push((path.clone(), Unfit::Excluded));
            } else if is_unfinished(name) || name.starts_with(PARKED.as_bytes()) {
                found.unfit.push((path.clone(), Unfit::Ours));
            } else if name == FILE.as_bytes() && self.agreed.is_none() {
                found.unfit.push((path.clone(), Unfit::Excludes));
            }
        });
        let merged = merge(now, new, &RelPath::ROOT, &mut found)?;
        let (totals, limits) = (merged.totals(), &self.limits);
        let mut paths = 0_u64;
        merged.walk(&mut |path, _| {
            let length = u64::try_from(path.as_bytes().len()).unwrap_or(u64::MAX);
            paths = paths.saturating_add(length);
        });
        let is_too_much = totals.entries > limits.entries || totals.bytes > limits.tree;
        if is_too_much || paths > PATHS_MAX {
            found.unfit.push((RelPath::ROOT, Unfit::TooMuch));
        }
        if !found.unfit.is_empty() {
            return Err(CopyInError::Unfit(found.unfit));
        }
        if !replace && !found.clashes.is_empty() {
            return Err(CopyInError::Clashes(found.clashes));
        }
        Ok(merged)
    }
}

/// What stands in the way.
#[derive(Default)]
struct Found {
    clashes: Vec<RelPath>,
    unfit: Vec<(RelPath, Unfit)>,
}

/// One directory with what is brought in it.
fn merge(
    now: &Directory,
    new: &Directory,
    at: &RelPath,
    found: &mut Found,
) -> Result<Directory, TwiceTheName> {
    let stays = now.entries().iter();
    let mut entries: Vec<_> = stays
        .filter(|(name, _)| new.get(name.as_bytes()).is_none())
        .cloned()
        .collect();
    for (name, entry) in new.entries() {
        let path = at.join(name);
        let merged = match (now.get(name.as_bytes()), entry) {
            (None, entry) => entry.clone(),
            (Some(Entry::Directory(now)), Entry::Directory(new)) => {
                Entry::Directory(merge(now, new, &path, found)?)
            }
            (Some(Entry::File(there)), Entry::File(file))
                if (there.content, there.executable) == (file.content, file.executable) =>
            {
                Entry::File(there.clone())
            }
            (Some(Entry::File(_) | Entry::Link(_)), Entry::File(_)) => {
                found.clashes.push(path);
                entry.clone()
            }
            (Some(there), _) => {
                found.unfit.push((path, stands(there)));
                there.clone()
            }
        };
        entries.push((name.clone(), merged));
    }
    Directory::new(entries, now.seen())
}

/// What stands where something else was to be.
const fn stands(entry: &Entry) -> Unfit {
    match entry {
        Entry::File(_) => Unfit::FileThere,
        Entry::Link(_) => Unfit::LinkThere,
        Entry::Directory(_) | Entry::Special(SpecialKind::Mountpoint) => Unfit::DirectoryThere,
        Entry::Special(_) => Unfit::SpecialThere,
    }
}

fn files_of(tree: &Directory) -> Vec<(RelPath, crate::tree::content::ContentId)> {
    let mut files = Vec::new();
    tree.walk(&mut |path, entry| {
        if let Entry::File(file) = entry {
            files.push((path.clone(), file.content));
        }
    });
    files
}

/// A path below the directory that everything is put into.
fn below(to: &RelPath, path: &[u8]) -> Result<RelPath, Refusal> {
    let path = RelPath::new(path)?;
    if to.is_root() {
        return Ok(path);
    }
    if path.is_root() {
        return Ok(to.clone());
    }
    let path = [to.as_bytes(), path.as_bytes()].join(&b'/');
    Ok(RelPath::new(path)?)
}
