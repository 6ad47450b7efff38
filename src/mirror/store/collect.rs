//! Removing what nothing refers to any more.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::tree::content::{ContentId, GROUPED_ABOVE};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;

use super::Store;
use super::error::StoreError;
use super::generation::GenerationNumber;
use super::pack::Place;
use super::record::{self, Key};

/// Generations that are always kept, the newest: one that is being audited and the one before.
pub const KEEP_NEWEST: usize = 2;
/// How long older ones are kept.
pub const KEEP_AGE: Duration = Duration::from_hours(30 * 24);
/// Bytes of contents up to which older ones are kept: two of the largest trees.
pub const KEEP_BYTES: u64 = 2 * crate::tree::limits::TREE_MAX;

/// Which generations stay.
#[derive(Debug, Clone)]
pub struct Keep {
    /// So many of the newest, whatever the other rules say.
    pub newest: usize,
    /// Older ones up to this age.
    pub age: Duration,
    /// Older ones as long as all contents together are no more than this.
    pub bytes: u64,
    /// Those that something refers to: they stay.
    pub pinned: Vec<GenerationNumber>,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            newest: KEEP_NEWEST,
            age: KEEP_AGE,
            bytes: KEEP_BYTES,
            pinned: Vec::new(),
        }
    }
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// These generations.
    pub generations: Vec<GenerationNumber>,
    /// Bytes of packs, less those that were written anew.
    pub bytes: u64,
}

/// What the generations that stay need.
#[derive(Default)]
struct Needed {
    keys: HashSet<Key>,
    contents: HashSet<ContentId>,
    bytes: u64,
}

impl Store {
    /// Removes generations that `keep` does not keep, and contents that no generation has. Only
    /// between two passes: contents that wait for their generation are contents that none has.
    ///
    /// # Errors
    /// When a generation cannot be read (nothing is removed then), or the disk refuses.
    pub fn collect(&self, keep: &Keep, now: Timestamp) -> Result<Collected, StoreError> {
        let (needed, generations) = self.judge(keep, now)?;
        for number in &generations {
            self.remove_generation(*number)?;
        }
        self.shelves.begin_new_pack()?;
        self.doubt();
        let mut bytes = 0_u64;
        for (pack, length) in self.pack_lengths()? {
            bytes = bytes.saturating_add(self.collect_pack(pack, length, &needed)?);
        }
        Ok(Collected { generations, bytes })
    }

    /// What must stay, and which generations go.
    fn judge(
        &self,
        keep: &Keep,
        now: Timestamp,
    ) -> Result<(Needed, Vec<GenerationNumber>), StoreError> {
        let mut needed = Needed::default();
        let mut gone = Vec::new();
        let mut heads = self.generations()?;
        heads.reverse();
        let mut full = false;
        for (rank, head) in heads.iter().enumerate() {
            let firmly = rank < keep.newest || keep.pinned.contains(&head.number);
            let age = Duration::try_from(now.duration_since(head.time)).unwrap_or_default();
            if !firmly && (full || age > keep.age) {
                gone.push(head.number);
                continue;
            }
            let (_, tree) = self.load(head.number)?;
            let more = needed.lacks(&tree);
            full |= needed.bytes.saturating_add(more) > keep.bytes;
            if full && !firmly {
                gone.push(head.number);
                continue;
            }
            needed.add(&tree, self)?;
        }
        Ok((needed, gone))
    }

    fn pack_lengths(&self) -> Result<Vec<(u32, u64)>, StoreError> {
        let length = |(number, file): (&u32, &std::sync::Arc<std::fs::File>)| {
            file.metadata()
                .map(|about| (*number, about.len()))
                .map_err(|error| StoreError::io("read", &self.directory, error))
        };
        self.shelves
            .look(|index| index.files.iter().map(length).collect())
    }

    /// Removes a pack of which less than half is needed, and keeps that elsewhere; says how many
    /// bytes that freed.
    fn collect_pack(&self, pack: u32, length: u64, needed: &Needed) -> Result<u64, StoreError> {
        let mut stays: Vec<(Key, Place)> = self.shelves.look(|index| {
            let there = index.places.iter().filter(|(_, place)| place.pack == pack);
            let stays = there.filter(|(key, _)| needed.keys.contains(*key));
            stays.map(|(key, place)| (*key, *place)).collect()
        });
        stays.sort_unstable_by_key(|(_, place)| place.offset);
        let used: u64 = stays.iter().map(|(_, place)| place.total()).sum();
        if used > length / 2 {
            return Ok(0);
        }
        let mut payload = Vec::new();
        for (key, _) in &stays {
            match self.shelves.move_out(key, pack, &mut payload) {
                Ok(()) => {}
                // There is no room to move it to. What comes behind it can go all the same.
                Err(StoreError::Full { .. }) => return self.shelves.cut(pack, &stays),
                // The pack stays as evidence, and the content is fetched anew by the next pull.
                Err(StoreError::Damaged { .. }) => return Ok(0),
                Err(error) => return Err(error),
            }
        }
        if !stays.is_empty() {
            self.shelves.sync()?;
        }
        self.shelves.remove(pack)?;
        Ok(length.saturating_sub(used))
    }
}

impl Needed {
    /// Bytes of the tree's contents that are not needed so far.
    fn lacks(&self, tree: &Directory) -> u64 {
        let mut more = HashSet::new();
        let mut bytes = 0_u64;
        tree.walk(&mut |_, entry| {
            if let Entry::File(file) = entry
                && !self.contents.contains(&file.content)
                && more.insert(file.content)
            {
                bytes = bytes.saturating_add(file.size);
            }
        });
        bytes
    }

    fn add(&mut self, tree: &Directory, store: &Store) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(self.lacks(tree));
        let mut large = Vec::new();
        tree.walk(&mut |_, entry| {
            let Entry::File(file) = entry else { return };
            if !self.contents.insert(file.content) {
                return;
            }
            if file.size <= GROUPED_ABOVE {
                self.keys.insert(Key::Small(file.content));
            } else {
                large.push(file.content);
            }
        });
        for id in large {
            self.keys.insert(Key::Large(id));
            if let Some(groups) = store.groups(&id)? {
                self.keys
                    .extend(record::chunk_values(&groups).map(Key::Chunk));
            }
        }
        Ok(())
    }
}
