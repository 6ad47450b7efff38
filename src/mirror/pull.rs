//! A pull: the other end's tree becomes a generation here, and the workspace becomes it.
//!
//! The generation comes first and is never changed: it holds exactly what the other end had, each
//! byte proven. Whether the workspace follows is another question, and what was edited here is
//! never lost to it.

use std::collections::HashSet;
use std::io::Read as _;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};

use super::ahead::Ahead;
use super::brakes;
use super::error::MirrorError;
use super::far_tree;
use super::glance::Glance;
use super::held_back::Held;
use super::links::{Leaving, links_that_leave};
use super::pair::{Ends, Local, NAMED_MAX, Pair};
use super::peer::Peer;
use super::plan::{self, Summary, plan};
use super::progress::{Phase, Progress};
use super::receive::{self, Missing, Received};
use super::rsync::Rsync;
use super::store::{GenerationHead, Store, TakenIn};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::scan::Scan;
use crate::tree::stamp::Stamp;
use crate::wire::mirror::{RootState, Scanned};

/// How often the other end is read again because files changed before they were fetched.
const ROUNDS_MAX: u32 = 4;

/// What a user allows a pull.
#[derive(Debug, Clone, Copy, Default)]
pub struct PullOptions {
    /// What the brakes would stop.
    pub allowed: brakes::Allowed,
    /// Only the generation: the workspace stays as it is.
    pub generation_only: bool,
}

/// What a pull did.
#[derive(Debug)]
pub struct Pulled {
    /// The generation, which is a new one unless nothing had changed.
    pub generation: GenerationHead,
    /// Whether it was made by this pull.
    pub is_new: bool,
    /// What came from the other end.
    pub received: Received,
    /// What became of the workspace.
    pub workspace: Workspace,
    /// Links of the generation that lead out of it: what they say is kept, nothing follows them.
    pub leaving: Vec<Leaving>,
}

/// What became of the workspace.
#[derive(Debug)]
pub enum Workspace {
    /// It was not to be changed.
    Left,
    /// It was edited since the ends last agreed: it is as it was.
    Edited(Vec<RelPath>),
    /// It is the generation now.
    Brought {
        /// What was done.
        summary: Summary,
        /// What waits for `mirror accept`.
        held_back: Vec<Held>,
        /// What changed meanwhile and was left alone, with the reason.
        kept: Vec<(RelPath, String)>,
    },
}

impl Pair {
    /// Pulls.
    ///
    /// # Errors
    /// When no generation could be published, or the workspace could not be brought to it; what
    /// was published stays.
    pub fn pull(
        &mut self,
        ends: &mut Ends<'_>,
        options: PullOptions,
    ) -> Result<Pulled, MirrorError> {
        let Ends {
            peer,
            state,
            local,
            progress,
            clock,
            rsync,
        } = ends;
        let progress = *progress;
        may_pull(state)?;
        self.recover(local, progress)?;
        let into = local.root.as_ref().filter(|_| !options.generation_only);
        let glance = match into {
            Some(_) => Glance::ask(peer, self.agreed.as_ref(), self.directory.path())?,
            None => Glance::default(),
        };
        let late = glance.changed();
        let (now, scanned) = self.read_both(peer, local, &late, progress)?;
        let mut ahead = Ahead::of(into);
        let (tree, received) = self.fetch(
            peer,
            (local, now.as_ref(), &mut ahead),
            scanned,
            (rsync.as_deref_mut(), progress),
        )?;
        self.brake(&tree, options.allowed)?;
        let (generation, is_new) = self.publish(&tree, clock.now())?;
        peer.take(true)?;
        let workspace = if options.generation_only {
            Workspace::Left
        } else {
            let now = match now {
                Some(now) => Some(self.read_late(local, now, &late, (&tree, &mut ahead))?),
                None => None,
            };
            let bringing = (ahead.written(), progress);
            let brought = self.bring(local, now, &tree, generation.number, bringing)?;
            glance.keep(self.directory.path());
            brought
        };
        Ok(Pulled {
            generation,
            is_new,
            received,
            workspace,
            leaving: links_that_leave(&tree),
        })
    }

    /// The other end's tree, with every content of it in the store.
    fn fetch(
        &self,
        peer: &mut Peer,
        (local, now, ahead): (&Local, Option<&Scan>, &mut Ahead<'_>),
        mut scanned: Scanned,
        (mut rsync, progress): (Option<&mut Rsync>, &dyn Progress),
    ) -> Result<(Directory, Received), MirrorError> {
        let last = match self.store.latest()? {
            Some(head) => Some(self.store.load(head.number)?.1),
            None => None,
        };
        // Not what is here now: that a directory is not asked for would tell that it is here.
        let mut known: Vec<&Directory> = last.iter().collect();
        known.extend(self.agreed.as_ref().map(|agreed| &agreed.far));
        let mut all = Received::default();
        for _ in 0..ROUNDS_MAX {
            let tree = far_tree::learn(peer, &scanned, &known)?;
            let missing = receive::missing(&tree, &self.store)?;
            let missing = self.take_from_here(missing, local, now)?;
            let older = last
                .as_ref()
                .or(self.agreed.as_ref().map(|agreed| &agreed.far));
            let (store, place) = (&self.store, self.landing());
            let received = match &mut rsync {
                Some(rsync) => rsync.fetch(peer, store, &missing, &place, progress)?,
                None => receive::receive(peer, store, missing, older, (ahead, progress))?,
            };
            all.contents = all.contents.saturating_add(received.contents);
            all.bytes = all.bytes.saturating_add(received.bytes);
            all.changed = received.changed;
            if all.changed.is_empty() {
                return Ok((tree, all));
            }
            scanned = far_tree::scan(peer, Phase::Reading, progress)?;
        }
        all.changed.truncate(NAMED_MAX);
        Err(MirrorError::Changing(all.changed))
    }

    /// Takes contents into the store that this end sent, or received, and still has; gives the
    /// rest. What the other end never had is not looked for here: it could ask for anybody's files
    /// by their hash, and learn from what it is not asked for that they are here.
    fn take_from_here(
        &self,
        missing: Vec<Missing>,
        local: &Local,
        now: Option<&Scan>,
    ) -> Result<Vec<Missing>, MirrorError> {
        let (Some(agreed), Some(now), false) = (&self.agreed, now, missing.is_empty()) else {
            return Ok(missing);
        };
        // Of the far tree only hashes may have come: of what is held back, or excluded.
        let shared = contents_of(&agreed.here);
        let mut here = std::collections::HashMap::new();
        now.tree.walk(&mut |path, entry| {
            if let Entry::File(file) = entry
                && shared.contains(&file.content)
            {
                here.entry(file.content).or_insert_with(|| path.clone());
            }
        });
        let mut rest = Vec::new();
        for missing in missing {
            let taken = match here.get(&missing.content) {
                Some(path) => take_in(&self.store, local, now, path, &missing)?,
                None => false,
            };
            if !taken {
                rest.push(missing);
            }
        }
        Ok(rest)
    }

    fn brake(&self, tree: &Directory, allowed: brakes::Allowed) -> Result<(), MirrorError> {
        let Some(agreed) = &self.agreed else {
            return Ok(());
        };
        let (before, after) = (agreed.far.totals(), tree.totals());
        brakes::judge_emptied(after, before, allowed)?;
        let planned = plan(tree, &agreed.far, plan::Options::default());
        Ok(brakes::judge_deletes(
            after,
            before,
            &planned.summary,
            allowed,
        )?)
    }

    /// Publishes the tree, unless the last generation is the same.
    fn publish(
        &self,
        tree: &Directory,
        now: Timestamp,
    ) -> Result<(GenerationHead, bool), MirrorError> {
        if let Some(last) = self.store.latest()?
            && last.tree == tree.hash()
        {
            // What was found damaged in the store has come anew.
            self.store.sync()?;
            return Ok((last, false));
        }
        let complete = self.store.complete(tree)?;
        Ok((complete.publish(now)?, true))
    }
}

fn may_pull(state: &RootState) -> Result<(), MirrorError> {
    match state {
        RootState::Absent => Err(MirrorError::FarMissing),
        RootState::Another => Err(MirrorError::FarOfAnother),
        RootState::Replaced => Err(MirrorError::FarReplaced),
        RootState::Ours | RootState::Empty | RootState::Unmarked => Ok(()),
    }
}

fn contents_of(tree: &Directory) -> HashSet<ContentId> {
    let mut contents = HashSet::new();
    tree.walk(&mut |_, entry| {
        if let Entry::File(file) = entry {
            contents.insert(file.content);
        }
    });
    contents
}

/// Takes a local file's content into the store; says whether it is the one.
fn take_in(
    store: &Store,
    local: &Local,
    now: &Scan,
    path: &RelPath,
    missing: &Missing,
) -> Result<bool, MirrorError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(opened) = local.root()?.open_at(path, flags, Mode::empty()) else {
        return Ok(false);
    };
    let is_same = rustix::fs::fstat(&opened)
        .ok()
        .zip(now.stamps.get(path))
        .is_some_and(|(seen, stamp)| Stamp::of(&seen).is_same_file(stamp));
    if !is_same {
        return Ok(false);
    }
    let file = std::fs::File::from(opened).take(missing.size);
    let taken = store.take_in(missing.content, missing.size, file)?;
    Ok(matches!(taken, TakenIn::Whole))
}
