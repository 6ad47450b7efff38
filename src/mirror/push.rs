//! A push: the other end's tree becomes the local one, and proves it.
//!
//! Nothing of the other end is lost to it unseen: what changed there since both ends last agreed
//! stops the push, unless it is forced, and then it is pulled into a generation first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;

use super::agreed::Agreed;
use super::brakes;
use super::canary::Canary;
use super::error::{End, MirrorError};
use super::far_tree;
use super::held_back;
use super::ignore_files;
use super::items::{Item, items};
use super::pair::{Ends, NAMED_MAX, Pair};
use super::peer::PeerError;
use super::plan::{self, Plan, plan};
use super::progress::{Amount, Phase};
use super::pull::PullOptions;
use super::pushing::Pushing;
use super::secrets::secret_names;
use super::sending::Sending;
use super::store::GenerationNumber;
use crate::tree::content::ContentId;
use crate::tree::directory::{Directory, TreeHash};
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::scan::Scan;
use crate::wire::mirror::{Landed, RootState};

/// What a user allows a push.
#[derive(Debug, Default)]
pub struct PushOptions {
    /// What the brakes would stop.
    pub allowed: brakes::Allowed,
    /// To overwrite what changed at the other end, after it was pulled into a generation.
    pub force: bool,
    /// Files that look like secrets and are pushed all the same.
    pub secrets: BTreeSet<RelPath>,
    /// To say what would be done, and do nothing.
    pub dry_run: bool,
    /// What no file that is sent may hold.
    pub canary: Option<Canary>,
    /// The only tree of the other end that may be overwritten, whatever else was agreed. A
    /// generation has it.
    pub expected: Option<Directory>,
}

/// What a push did, or would do.
#[derive(Debug)]
pub struct Pushed {
    /// What was planned.
    pub plan: Plan,
    /// The hash of the tree that both ends have now; of a dry run, that they would have.
    pub tree: TreeHash,
    /// Bytes of contents that were sent.
    pub sent: u64,
    /// The generation that holds what a forced push overwrote.
    pub saved: Option<GenerationNumber>,
    /// What is done, path by path.
    pub items: Vec<Item>,
    /// Directories whose file of excludes is not the one that the mirror began with: what it says
    /// now has no effect.
    pub excludes_changed: Vec<RelPath>,
}

impl Pair {
    /// Pushes.
    ///
    /// # Errors
    /// When it was stopped before anything was changed, or the other end has not the tree after it.
    pub fn push(
        &mut self,
        ends: &mut Ends<'_>,
        options: &PushOptions,
    ) -> Result<Pushed, MirrorError> {
        self.recover(ends.local, ends.progress)?;
        ends.local.root()?;
        match ends.state {
            RootState::Another => return Err(MirrorError::FarOfAnother),
            RootState::Replaced => return Err(MirrorError::FarReplaced),
            RootState::Absent | RootState::Empty | RootState::Unmarked | RootState::Ours => {}
        }
        let (here, far) = self.read_for_push(ends)?;
        let wanted = here
            .tree
            .plain()
            .filtered(&mut |_, entry| !is_special(entry));
        Self::check_secrets(&wanted, &options.secrets)?;
        let saved = self.may_push(ends, &wanted, &self.without_excluded(&far), options)?;
        let there = self.without_excluded(&far);
        brakes::judge_emptied(wanted.totals(), there.totals(), options.allowed)?;
        let (held, planned) = self.plan_push(&wanted, &far);
        let (source, there) = (wanted.totals(), there.totals());
        brakes::judge_deletes(source, there, &planned.summary, options.allowed)?;
        if let Some(canary) = &options.canary {
            let found = canary.find(ends.local.root()?, &here, &planned.wanted)?;
            if !found.is_empty() {
                return Err(MirrorError::Credential(found));
            }
        }
        let mut pushed = Pushed {
            items: items(&planned.steps, &far),
            excludes_changed: ignore_files::changed(&self.state.excludes, &here.tree),
            plan: planned,
            tree: wanted.hash(),
            sent: 0,
            saved,
        };
        if options.dry_run {
            return Ok(pushed);
        }
        if self.agreed.is_none() {
            ends.progress.first_push(source);
        }
        take(ends)?;
        let pushing = Pushing {
            before: far,
            wanted,
        };
        pushing.begin(self.directory.path(), self.agreed.as_ref())?;
        let Pushing { before, wanted } = pushing;
        pushed.sent = send(ends, &here, &before, &pushed.plan)?;
        let stays: BTreeSet<RelPath> = pushed
            .plan
            .kept
            .iter()
            .map(|kept| kept.path.clone())
            .chain(held)
            .collect();
        let far = self.verify(ends, &wanted, &before, &stays)?;
        self.agree(Agreed { here: wanted, far })?;
        Pushing::end(self.directory.path())?;
        Ok(pushed)
    }

    /// What the other end keeps of what is held back here, and how it becomes what is wanted.
    pub(super) fn plan_push(
        &self,
        wanted: &Directory,
        far: &Directory,
    ) -> (BTreeSet<RelPath>, Plan) {
        let held = self.held_back_here(wanted, far);
        let protects = |path: &RelPath, is_directory: bool| {
            self.excludes.is_excluded(path, is_directory) || held.contains(path)
        };
        let options = plan::Options {
            protected: Some(&protects),
        };
        let planned = plan(wanted, far, options);
        (held, planned)
    }

    /// The local tree without what is excluded, and the other end's whole tree.
    pub(super) fn read_for_push(
        &self,
        ends: &mut Ends<'_>,
    ) -> Result<(Scan, Directory), MirrorError> {
        let (local, progress) = (&*ends.local, ends.progress);
        // It is made when nothing stops the push any more.
        if matches!(ends.state, RootState::Absent) {
            return Ok((self.read_local(local, progress)?, Directory::empty()));
        }
        let (here, scanned) = self.read_both(ends.peer, local, &HashSet::new(), progress)?;
        let here = match here {
            Some(here) => here,
            None => self.read_local(local, progress)?,
        };
        // Not what is here: it may not be allowed to go there, and that a directory is not asked for
        // would tell that it is here.
        let known: Vec<&Directory> = self.agreed.iter().map(|agreed| &agreed.far).collect();
        let far = far_tree::learn(ends.peer, &scanned, &known)?;
        Ok((here, far))
    }

    /// Whether the other end is what both ends agreed on, or free, or already what it shall be, or on
    /// the way where a push of ours was cut off.
    pub(super) fn may_push(
        &mut self,
        ends: &mut Ends<'_>,
        wanted: &Directory,
        far: &Directory,
        options: &PushOptions,
    ) -> Result<Option<GenerationNumber>, MirrorError> {
        let last = match &self.agreed {
            Some(agreed) => agreed.far.plain(),
            None => Directory::empty(),
        };
        let now = far.plain();
        if let Some(expected) = &options.expected {
            let expected = self.without_excluded(expected).plain();
            if now.hash() == expected.hash() || now.hash() == wanted.hash() {
                return Ok(None);
            }
            let (paths, count) = differences(&expected, &now);
            return Err(MirrorError::FarChanged { paths, count });
        }
        if now.hash() == self.without_excluded(&last).hash() || now.hash() == wanted.hash() {
            return Ok(None);
        }
        let strangers = self.strangers_of_push(far)?;
        if strangers.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        if !options.force {
            if let Some(mut paths) = strangers {
                let count = u64::try_from(paths.len()).unwrap_or(u64::MAX);
                paths.truncate(NAMED_MAX);
                return Err(MirrorError::FarChanged { paths, count });
            }
            if self.agreed.is_none() {
                return Err(MirrorError::NotEmpty(End::Far));
            }
            let (paths, count) = differences(&last, &now);
            return Err(MirrorError::FarChanged { paths, count });
        }
        if options.dry_run {
            return Ok(None);
        }
        let options = PullOptions {
            allowed: brakes::Allowed::ALL,
            generation_only: true,
        };
        let pulled = self.pull(ends, options)?;
        Ok(Some(pulled.generation.number))
    }

    /// What the other end has and this one holds back, unless it was edited here: it stays there.
    fn held_back_here(&self, wanted: &Directory, far: &Directory) -> BTreeSet<RelPath> {
        let Some(agreed) = &self.agreed else {
            return BTreeSet::new();
        };
        held_back::held_back(&agreed.here, far)
            .into_iter()
            .filter(|held| wanted.find(&held.path) == agreed.here.find(&held.path))
            .map(|held| held.path)
            .collect()
    }

    /// Refuses names of secrets.
    pub(super) fn check_secrets(
        wanted: &Directory,
        allowed: &BTreeSet<RelPath>,
    ) -> Result<(), MirrorError> {
        let found = secret_names(wanted, allowed);
        if found.is_empty() {
            Ok(())
        } else {
            Err(MirrorError::Secrets(found))
        }
    }

    /// The other end reads everything again; its tree must be the one that was pushed, but for what
    /// stays as it was there.
    fn verify(
        &self,
        ends: &mut Ends<'_>,
        wanted: &Directory,
        before: &Directory,
        stays: &BTreeSet<RelPath>,
    ) -> Result<Directory, MirrorError> {
        let scanned = far_tree::scan(ends.peer, Phase::Verifying, ends.progress)?;
        let far = far_tree::learn(ends.peer, &scanned, &[wanted, before])?;
        let now = self.without_excluded(&far);
        let compared =
            |tree: &Directory| tree.plain().filtered(&mut |path, _| !stays.contains(path));
        let (now_plain, wanted) = (compared(&now), compared(wanted));
        if now_plain.hash() != wanted.hash() {
            let (paths, count) = differences(&wanted, &now_plain);
            return Err(MirrorError::NotEqual { paths, count });
        }
        ends.peer.unstage()?;
        Ok(now)
    }
}

/// Marks the other end as this mirror's. One that did not exist is made, and read: steps are taken from
/// what was read.
fn take(ends: &mut Ends<'_>) -> Result<(), MirrorError> {
    ends.peer.take(true)?;
    if matches!(ends.state, RootState::Absent) {
        far_tree::scan(ends.peer, Phase::Reading, ends.progress)?;
    }
    Ok(())
}

/// Sends what is wanted, and has the steps executed.
fn send(
    ends: &mut Ends<'_>,
    here: &Scan,
    before: &Directory,
    plan: &Plan,
) -> Result<u64, MirrorError> {
    let (local, progress) = (&*ends.local, ends.progress);
    let all = Amount {
        entries: u64::try_from(plan.wanted.len()).unwrap_or(u64::MAX),
        bytes: plan.wanted.iter().map(|(_, size)| size).sum(),
    };
    progress.begin(Phase::Sending, Some(all));
    let places = places_of(&here.tree);
    let sent = if let Some(rsync) = &mut ends.rsync {
        let files = landed(&plan.wanted, &places)?;
        rsync.stage(ends.peer, &local.path, &files, progress)?
    } else {
        let source = Sending {
            local,
            here,
            before,
            places: &places,
        };
        source.stage(ends.peer, &plan.wanted, progress)?
    };
    let all = Amount {
        entries: u64::try_from(plan.steps.len()).unwrap_or(u64::MAX),
        bytes: 0,
    };
    progress.begin(Phase::Applying, Some(all));
    let ran = ends.peer.run(&plan.steps, &mut |entries, bytes| {
        progress.at(Amount { entries, bytes });
    })?;
    if ran.failed_count == 0 && ran.kept_count == 0 && ran.stopped.is_none() {
        return Ok(sent);
    }
    let first = |mut paths: Vec<(RelPath, String)>| {
        paths.truncate(NAMED_MAX);
        paths
    };
    Err(MirrorError::Partly {
        end: End::Far,
        failed: first(ran.failed),
        failed_count: ran.failed_count,
        kept: first(ran.kept),
        stopped: ran.stopped,
    })
}

/// What is wanted, each with a file that has it.
fn landed(
    wanted: &[(ContentId, u64)],
    places: &HashMap<ContentId, RelPath>,
) -> Result<Vec<Landed>, MirrorError> {
    let files = wanted.iter().map(|(content, size)| {
        let path = places.get(content).ok_or(io::ErrorKind::NotFound);
        let path = path.map_err(|kind| PeerError::Here(kind.into()))?;
        Ok(Landed {
            path: path.clone(),
            content: *content,
            size: *size,
        })
    });
    files.collect()
}

const fn is_special(entry: &Entry) -> bool {
    matches!(entry, Entry::Special(_))
}

/// A file for each content.
fn places_of(tree: &Directory) -> HashMap<ContentId, RelPath> {
    let mut places = HashMap::new();
    tree.walk(&mut |path, entry| {
        if let Entry::File(file) = entry {
            places.entry(file.content).or_insert_with(|| path.clone());
        }
    });
    places
}

/// Where two trees differ: the first paths, and how many there are.
pub(super) fn differences(one: &Directory, other: &Directory) -> (Vec<RelPath>, u64) {
    let mut paths = Vec::new();
    let mut count: u64 = 0;
    let mut differ = |path: &RelPath| {
        count = count.saturating_add(1);
        if paths.len() < NAMED_MAX {
            paths.push(path.clone());
        }
    };
    one.walk(&mut |path, entry| {
        let there = other.find(path);
        let same = match (entry, there) {
            (Entry::Directory(_), Some(Entry::Directory(_))) => true,
            (entry, there) => there == Some(entry),
        };
        if !same {
            differ(path);
        }
    });
    other.walk(&mut |path, _| {
        if one.find(path).is_none() {
            differ(path);
        }
    });
    (paths, count)
}
