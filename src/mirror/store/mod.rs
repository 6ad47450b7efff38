//! What came from a mirror's host: contents by hash, and generations.
//!
//! Small contents are records of [`pack`](self) files that are only appended to; a large content
//! is a list of chunks, so that a new version of it costs what changed ([`CHUNK`]). Every record is
//! proven by the hash that it is found by, when it comes in and each time it is read: a file that
//! somebody edited is found, and never served. Only the applier, which believes nobody and proves
//! each byte before it has a name, takes them as they are. Each mirror has a store of its own, so that what is
//! "here already" tells a host nothing about others, and no file of a store ever gets a second name.
//!
//! A [`generation`] is a whole tree. It is published only through a [`Complete`], which exists only
//! once all contents of the tree are here and durable.

mod collect;
mod content;
mod error;
pub mod generation;
mod pack;
mod receive;
mod record;
mod shelves;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::durable;
use crate::tree::content::{ContentId, Groups};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::path::RelPath;

pub use collect::{Collected, KEEP_AGE, KEEP_BYTES, KEEP_NEWEST, Keep};
pub use content::Content;
pub use error::{BadGeneration, StoreError};
pub use generation::{GENERATION_MAX, GenerationHead, GenerationNumber};
pub use pack::{GATHERED, PACK_MAX};
pub use receive::{Large, Part, TakenIn, Writer};
pub use record::CHUNK;

use record::Key;
use shelves::Shelves;

/// The store of one mirror. Whoever changes it holds the mirror's lock; threads of one process may
/// share it.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    mirror: MirrorId,
    limits: Limits,
    shelves: Shelves,
    /// Large contents whose chunks are known to be all here.
    whole: Mutex<HashSet<ContentId>>,
}

/// A tree whose contents are all in the store and durable. Only [`Store::complete`] makes it.
#[derive(Debug)]
pub struct Complete<'a> {
    store: &'a Store,
    tree: &'a Directory,
}

/// A file whose content is not what it should be, or not here.
#[derive(Debug)]
pub struct Unsound {
    /// Which file of the tree.
    pub path: RelPath,
    /// What is wrong.
    pub error: StoreError,
}

impl Store {
    /// Opens the store in `directory`, and makes it when there is none. What an earlier process
    /// did not finish is cleared away; contents that it had stored are there again.
    ///
    /// # Errors
    /// When the directory is not ours alone, or cannot be read or written.
    pub fn open(directory: &Path, mirror: MirrorId, limits: Limits) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("opened", directory, error);
        durable::private_directory(directory).map_err(failed)?;
        let mut packs = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(durable::UNFINISHED) {
                // Of a process that was killed; nothing refers to it.
                let _gone = fs::remove_file(directory.join(name));
            }
            packs.extend(pack::number_of(name));
        }
        packs.sort_unstable();
        Ok(Self {
            directory: directory.to_owned(),
            mirror,
            limits,
            shelves: Shelves::open(directory, &packs)?,
            whole: Mutex::default(),
        })
    }

    /// Whether the whole content is here.
    ///
    /// # Errors
    /// When a list of chunks cannot be read.
    pub fn has(&self, id: &ContentId) -> Result<bool, StoreError> {
        self.size(id).map(|size| size.is_some())
    }

    /// Bytes of a content; nothing when it is not here as a whole.
    ///
    /// # Errors
    /// When a list of chunks cannot be read.
    pub fn size(&self, id: &ContentId) -> Result<Option<u64>, StoreError> {
        if *id == ContentId::of(b"") {
            return Ok(Some(0));
        }
        if let Some(place) = self.shelves.place(&Key::Small(*id)) {
            return Ok(Some(u64::from(place.length)));
        }
        let Some(groups) = self.groups(id)? else {
            return Ok(None);
        };
        Ok(self.has_chunks(id, &groups).then_some(groups.size()))
    }

    /// The groups of a large content; nothing for one that is small or not here. A list that was
    /// changed on the disk is as one that is not here.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn groups(&self, id: &ContentId) -> Result<Option<Groups>, StoreError> {
        let mut bytes = Vec::new();
        match self.shelves.read(&Key::Large(*id), &mut bytes) {
            Ok(Some(_)) => Ok(record::parse_list(&bytes)),
            Ok(None) | Err(StoreError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn has_chunks(&self, id: &ContentId, groups: &Groups) -> bool {
        let whole = |whole: &Mutex<HashSet<ContentId>>| {
            whole
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(id)
        };
        if whole(&self.whole) {
            return true;
        }
        let all = record::chunk_values(groups)
            .all(|value| self.shelves.place(&Key::Chunk(value)).is_some());
        if all {
            let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
            whole.insert(*id);
        }
        all
    }

    /// Forgets which contents are known to be whole, after something was found missing.
    fn doubt(&self) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.clear();
    }

    /// Makes everything that was stored so far outlive a crash of the machine.
    ///
    /// # Errors
    /// When the disk does not take it; what is not durable then is no longer in the store.
    pub fn sync(&self) -> Result<(), StoreError> {
        let synced = self.shelves.sync();
        if synced.is_err() {
            self.doubt();
        }
        synced
    }

    /// Proves that all contents of a tree are here, each of the size that its entry says, and
    /// makes them durable.
    ///
    /// # Errors
    /// When one is missing, or the disk does not take them.
    pub fn complete<'a>(&'a self, tree: &'a Directory) -> Result<Complete<'a>, StoreError> {
        self.sync()?;
        let mut missing: Option<(u64, ContentId)> = None;
        let mut failed = None;
        tree.walk(&mut |_, entry| {
            let Entry::File(file) = entry else { return };
            match self.size(&file.content) {
                Ok(Some(size)) if size == file.size => {}
                Ok(_) => {
                    let (count, first) = missing.unwrap_or((0, file.content));
                    missing = Some((count.saturating_add(1), first));
                }
                Err(error) => failed = Some(error),
            }
        });
        match (failed, missing) {
            (Some(error), _) => Err(error),
            (None, Some((count, first))) => Err(StoreError::Incomplete { count, first }),
            (None, None) => Ok(Complete { store: self, tree }),
        }
    }

    /// Reads every content of a tree again and compares it with its hash. What is found changed is
    /// no longer in the store, so that a pull fetches it anew.
    pub fn verify(&self, tree: &Directory) -> Vec<Unsound> {
        let mut unsound = Vec::new();
        let mut seen = HashSet::new();
        tree.walk(&mut |path, entry| {
            let Entry::File(file) = entry else { return };
            if !seen.insert((file.content, file.size)) {
                return;
            }
            if let Err(error) = self.reads_whole(&file.content, file.size) {
                let path = path.clone();
                unsound.push(Unsound { path, error });
            }
        });
        unsound
    }

    fn reads_whole(&self, id: &ContentId, size: u64) -> Result<(), StoreError> {
        let mut content = self.open_content(id)?;
        if content.size() != size {
            return Err(StoreError::Missing(*id));
        }
        content.read_through()
    }
}
