//! Contents of a tree at the other end, into the store: those that are not there.

mod large;
mod residual;

use std::collections::HashMap;

use super::ahead::Ahead;
use super::peer::{Peer, PeerError, Rule, Sink, Wanted};
use super::progress::{Amount, Phase, Progress};
use super::store::{Store, StoreError, Writer};
use crate::tree::content::{ContentId, GROUPED_ABOVE};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;

/// A content that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub content: ContentId,
    /// Its bytes.
    pub size: u64,
    /// The first file that has it.
    pub path: RelPath,
}

/// What was received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// Contents that are in the store now.
    pub contents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that changed at the other end before they were sent.
    pub changed: Vec<RelPath>,
}

/// The contents of a tree that the store has not, each once, as a walk meets them.
///
/// # Errors
/// When the store cannot be read, or a content has another size than the store or another file of
/// the tree says.
pub fn missing(tree: &Directory, store: &Store) -> Result<Vec<Missing>, PeerError> {
    let (mut met, mut found, mut failed) = (HashMap::new(), Vec::new(), None);
    tree.walk(&mut |path, entry| {
        let Entry::File(file) = entry else { return };
        if let Some(size) = met.insert(file.content, file.size) {
            if size != file.size {
                failed = Some(Rule::Size.into());
            }
            return;
        }
        match store.size(&file.content) {
            Ok(Some(size)) if size == file.size => {}
            Ok(Some(_)) => failed = Some(Rule::Size.into()),
            Ok(None) => found.push(Missing {
                content: file.content,
                size: file.size,
                path: path.clone(),
            }),
            Err(error) => failed = Some(PeerError::from(error)),
        }
    });
    failed.map_or(Ok(found), Err)
}

/// Fetches contents into the store; each is proven by its id before it is kept. `older` is a tree
/// whose contents the store has: of a large file only what differs from the one at its path comes.
/// Large files that come whole are written `ahead`, too.
///
/// # Errors
/// When the other end breaks a rule, or the store cannot keep them.
pub fn receive(
    peer: &mut Peer,
    store: &Store,
    mut missing: Vec<Missing>,
    older: Option<&Directory>,
    (ahead, progress): (&mut Ahead<'_>, &dyn Progress),
) -> Result<Received, PeerError> {
    let all = Amount {
        entries: u64::try_from(missing.len()).unwrap_or(u64::MAX),
        bytes: missing.iter().map(|missing| missing.size).sum(),
    };
    progress.begin(Phase::Receiving, Some(all));
    ahead.needs(all.bytes);
    let mut received = Received::default();
    let mut done = Amount::default();
    let mut whole = Vec::new();
    for missing in missing.drain(..) {
        if missing.size <= GROUPED_ABOVE {
            whole.push(missing);
            continue;
        }
        let basis = match older.and_then(|tree| tree.find(&missing.path)) {
            Some(Entry::File(file)) => Some(file.content),
            Some(Entry::Directory(_) | Entry::Link(_) | Entry::Special(_)) | None => None,
        };
        let start = done;
        let mut came = |bytes| {
            done.bytes = done.bytes.saturating_add(bytes);
            progress.at(done);
        };
        let came = large::receive(peer, store, &missing, basis, (ahead, &mut came))?;
        match came {
            Some(bytes) => {
                received.contents = received.contents.saturating_add(1);
                received.bytes = received.bytes.saturating_add(bytes);
                // What did not have to come is done as well.
                done.entries = start.entries.saturating_add(1);
                done.bytes = start.bytes.saturating_add(missing.size);
                progress.at(done);
            }
            None => whole.push(missing),
        }
    }
    let wanted: Vec<Wanted> = whole
        .iter()
        .map(|missing| Wanted {
            path: missing.path.clone(),
            offset: 0,
            length: missing.size,
        })
        .collect();
    let mut shelf = Shelf {
        store,
        missing: &whole,
        open: None,
        progress,
        done,
        received,
    };
    peer.fetch(&wanted, &mut shelf)?;
    Ok(shelf.received)
}

/// Puts contents into the store as they come.
struct Shelf<'a> {
    store: &'a Store,
    missing: &'a [Missing],
    open: Option<Coming<'a>>,
    progress: &'a dyn Progress,
    done: Amount,
    received: Received,
}

/// A content of which something came.
enum Coming<'a> {
    /// It is written.
    Written(Box<Writer<'a>>),
    /// It is not what its listing said: it changed while it was sent.
    Changed,
}

impl Shelf<'_> {
    fn changed(&mut self, index: usize) {
        if let Some(missing) = self.missing.get(index) {
            self.received.changed.push(missing.path.clone());
        }
    }
}

impl Sink for Shelf<'_> {
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(missing) = self.missing.get(index) else {
            return Ok(());
        };
        let coming = self.open.get_or_insert_with(|| {
            Coming::Written(Box::new(self.store.writer(missing.content, missing.size)))
        });
        if let Coming::Written(writer) = coming {
            match writer.take(bytes) {
                Err(StoreError::NotTheContent(_)) => *coming = Coming::Changed,
                taken => taken?,
            }
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.done.bytes = self.done.bytes.saturating_add(length);
        self.progress.at(self.done);
        Ok(())
    }

    fn whole(&mut self, index: usize) -> Result<(), StoreError> {
        let Some(missing) = self.missing.get(index) else {
            return Ok(());
        };
        let stored = match self.open.take() {
            Some(Coming::Written(writer)) => match writer.finish() {
                Err(StoreError::NotTheContent(_)) => false,
                finished => {
                    finished?;
                    true
                }
            },
            Some(Coming::Changed) | None => false,
        };
        if stored {
            self.received.contents = self.received.contents.saturating_add(1);
            self.received.bytes = self.received.bytes.saturating_add(missing.size);
        } else {
            self.changed(index);
        }
        self.done.entries = self.done.entries.saturating_add(1);
        self.progress.at(self.done);
        Ok(())
    }

    fn gone(&mut self, index: usize) -> Result<(), StoreError> {
        self.open = None;
        self.changed(index);
        Ok(())
    }
}
