//! A large content: only what differs from one that the store has.
//!
//! The values of its groups come first and prove themselves. Chunks that the store knows are not
//! asked for; of the others only the groups that the older version has not at the same place.

use super::{Missing, residual};
use crate::mirror::ahead::{Ahead, Writing};
use crate::mirror::peer::{Peer, PeerError, Sink, Wanted};
use crate::mirror::store::{CHUNK, Large, Part, Store, StoreError};
use crate::tree::content::{ContentId, GROUP, Groups};

/// Fetches a large content by its groups. Gives how many bytes came, or nothing when the other end
/// has no groups of it or has it no more: then it is fetched whole, or the tree is read again.
///
/// # Errors
/// When the other end breaks a rule, or the store cannot keep what comes.
pub(super) fn receive(
    peer: &mut Peer,
    store: &Store,
    missing: &Missing,
    basis: Option<ContentId>,
    (ahead, progress): (&mut Ahead<'_>, &mut dyn FnMut(u64)),
) -> Result<Option<u64>, PeerError> {
    let Some(groups) = peer.groups(missing.content, missing.size)? else {
        return Ok(None);
    };
    let held = match basis {
        Some(basis) => store.groups(&basis)?.map(|groups| (basis, groups)),
        None => None,
    };
    let mut large = store.large(missing.content, groups.clone())?;
    let chunks: Vec<Chunk> = large
        .missing()
        .into_iter()
        .map(|number| Chunk::plan(number, &groups, held.as_ref()))
        .collect();
    let wanted: Vec<Wanted> = chunks
        .iter()
        .flat_map(|chunk| &chunk.runs)
        .filter(|run| run.held.is_none())
        .map(|run| Wanted {
            path: missing.path.clone(),
            offset: run.offset,
            length: run.length,
        })
        .collect();
    let comes_whole = wanted.iter().map(|wanted| wanted.length).sum::<u64>() == missing.size;
    let mut assembly = Assembly {
        large: &mut large,
        ahead: comes_whole.then(|| ahead.begin(&missing.path)),
        chunks: chunks.iter(),
        current: None,
        came: Vec::new(),
        spare: Vec::new(),
        run: None,
        bytes: 0,
        gone: false,
        progress,
    };
    assembly.advance()?;
    let older = match held {
        Some((content, _)) => Some(store.open_content(&content)?),
        None => None,
    };
    residual::fetch(peer, older, &groups, &wanted, &mut assembly)?;
    let (bytes, gone, written) = (assembly.bytes, assembly.gone, assembly.ahead);
    if gone {
        return Ok(None);
    }
    large.finish()?;
    if let Some(written) = written {
        ahead.keep(missing, written);
    }
    Ok(Some(bytes))
}

/// How a chunk that is missing is put together.
struct Chunk {
    number: u32,
    runs: Vec<Run>,
}

/// Neighbouring groups that all come, or all are held.
struct Run {
    offset: u64,
    length: u64,
    held: Option<ContentId>,
}

impl Chunk {
    fn plan(number: u32, groups: &Groups, held: Option<&(ContentId, Groups)>) -> Self {
        let first = u64::from(number).saturating_mul(CHUNK);
        let end = first.saturating_add(CHUNK).min(groups.size());
        let mut runs: Vec<Run> = Vec::new();
        let mut offset = first;
        while offset < end {
            let length = GROUP.min(end - offset);
            let held = held
                .filter(|(_, older)| same(groups, older, offset, length))
                .map(|(content, _)| *content);
            match runs.last_mut().filter(|run| run.held == held) {
                Some(run) => run.length += length,
                None => runs.push(Run {
                    offset,
                    length,
                    held,
                }),
            }
            offset += length;
        }
        Self { number, runs }
    }

    fn comes(&self) -> usize {
        self.runs.iter().filter(|run| run.held.is_none()).count()
    }
}

/// Whether two contents have the same bytes in one group: the same value, and as many of them.
fn same(one: &Groups, other: &Groups, offset: u64, length: u64) -> bool {
    let Ok(index) = usize::try_from(offset / GROUP) else {
        return false;
    };
    let value = one.values().get(index);
    let older = GROUP.min(other.size().saturating_sub(offset));
    older == length && value.is_some() && value == other.values().get(index)
}

/// Puts chunks together as their runs come.
pub(super) struct Assembly<'a, 'b, 'c> {
    large: &'a mut Large<'b>,
    /// The file that is written beside it, where all of it comes.
    ahead: Option<Writing>,
    chunks: std::slice::Iter<'a, Chunk>,
    current: Option<&'a Chunk>,
    /// The runs of the current chunk that came, the last one perhaps not whole.
    came: Vec<Vec<u8>>,
    /// Memory of runs that were put.
    spare: Vec<Vec<u8>>,
    /// The run that comes.
    run: Option<usize>,
    bytes: u64,
    gone: bool,
    progress: &'c mut dyn FnMut(u64),
}

impl Assembly<'_, '_, '_> {
    /// Whether something of the content cannot come any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Takes a run of which only so many bytes came.
    pub(super) fn derive(
        &mut self,
        index: usize,
        bytes: &[u8],
        came: u64,
    ) -> Result<(), StoreError> {
        let before = self.bytes;
        self.take(index, bytes)?;
        self.bytes = before.saturating_add(came);
        self.whole(index)
    }

    /// Puts every chunk for which nothing is to come any more.
    fn advance(&mut self) -> Result<(), StoreError> {
        loop {
            if let Some(chunk) = self.current {
                if self.came.len() < chunk.comes() {
                    return Ok(());
                }
                self.put(chunk)?;
            }
            for mut run in self.came.drain(..) {
                run.clear();
                self.spare.push(run);
            }
            self.current = self.chunks.next();
            if self.current.is_none() {
                return Ok(());
            }
        }
    }

    fn put(&mut self, chunk: &Chunk) -> Result<(), StoreError> {
        let mut came = self.came.iter();
        let parts: Vec<Part<'_>> = chunk
            .runs
            .iter()
            .map(|run| match run.held {
                Some(content) => Part::Held {
                    content,
                    offset: run.offset,
                    length: run.length,
                },
                None => Part::New(came.next().map_or(&[], Vec::as_slice)),
            })
            .collect();
        match self.large.put(chunk.number, &parts) {
            // It changed while it was sent, or what was held is not there: the tree is read again.
            Err(StoreError::NotTheContent(_) | StoreError::Missing(_)) => self.gone = true,
            put => {
                put?;
                match (&mut self.ahead, &*parts) {
                    (Some(ahead), [Part::New(bytes)]) => {
                        ahead.write_at(bytes, u64::from(chunk.number).saturating_mul(CHUNK));
                    }
                    // What did not come in one piece would be a hole there: then there is no such file.
                    _ => self.ahead = None,
                }
            }
        }
        Ok(())
    }
}

impl Sink for Assembly<'_, '_, '_> {
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        if self.run.replace(index) != Some(index) {
            self.came.push(self.spare.pop().unwrap_or_default());
        }
        if let Some(run) = self.came.last_mut().filter(|_| !self.gone) {
            run.extend_from_slice(bytes);
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(length);
        (self.progress)(length);
        Ok(())
    }

    fn whole(&mut self, _index: usize) -> Result<(), StoreError> {
        if self.gone { Ok(()) } else { self.advance() }
    }

    fn gone(&mut self, _index: usize) -> Result<(), StoreError> {
        self.gone = true;
        Ok(())
    }
}
