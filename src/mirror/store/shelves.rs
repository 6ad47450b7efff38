//! All packs of a store, and where each record lies in them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::mirror::durable;

use super::error::StoreError;
use super::pack::{self, Pack, Place};
use super::record::{HEADER, Header, Key};

/// The packs. Who takes both locks takes `tail` first.
#[derive(Debug)]
pub(super) struct Shelves {
    directory: PathBuf,
    index: RwLock<Index>,
    tail: Mutex<Tail>,
}

/// Where everything lies.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) places: HashMap<Key, Place>,
    pub(super) files: BTreeMap<u32, Arc<File>>,
}

/// What is written to.
#[derive(Debug, Default)]
struct Tail {
    current: Option<Pack>,
    /// Packs that take no more, and have records that are not in their index.
    waiting: Vec<Pack>,
    /// The number of the next pack.
    next: u32,
    /// Files were made whose names may not outlive a crash yet.
    new_names: bool,
}

impl Tail {
    /// Lets the current pack take no more.
    fn set_aside(&mut self) {
        self.waiting
            .extend(self.current.take().filter(Pack::is_behind));
    }
}

impl Shelves {
    /// Opens the packs of these numbers, in their order: of two records of one key the later one
    /// counts.
    pub(super) fn open(directory: &Path, numbers: &[u32]) -> Result<Self, StoreError> {
        let mut index = Index::default();
        let mut tail = Tail::default();
        for number in numbers {
            let found = Pack::open(directory, *number)?;
            let pack = found.pack;
            index.files.insert(*number, Arc::clone(&pack.file));
            index.places.extend(found.indexed);
            index.places.extend(pack.fresh().iter().copied());
            tail.next = number.saturating_add(1);
            tail.set_aside();
            tail.current = Some(pack);
        }
        // Whoever made them may have been cut off before their names were durable.
        tail.new_names = !numbers.is_empty();
        Ok(Self {
            directory: directory.to_owned(),
            index: RwLock::new(index),
            tail: Mutex::new(tail),
        })
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into the index.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        change(&mut self.index.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn place(&self, key: &Key) -> Option<Place> {
        self.look(|index| index.places.get(key).copied())
    }

    /// Appends a record that its caller has proven, unless it is here.
    pub(super) fn append(&self, header: &Header, payload: &[u8]) -> Result<(), StoreError> {
        let mut tail = self.tail();
        if self.place(&header.key).is_some() {
            return Ok(());
        }
        self.append_to(&mut tail, header, payload)
    }

    /// Writes a record of a pack anew, behind all others.
    pub(super) fn move_out(
        &self,
        key: &Key,
        pack: u32,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if self.place(key).is_none_or(|place| place.pack != pack) {
            return Ok(());
        }
        match self.read(key, payload)? {
            Some(header) => self.append_to(&mut self.tail(), &header, payload),
            None => Ok(()),
        }
    }

    fn append_to(
        &self,
        tail: &mut Tail,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), StoreError> {
        let pack = self.writable(tail)?;
        match pack.append(header, payload) {
            Ok(place) => {
                self.change(|index| index.places.insert(header.key, place));
                Ok(())
            }
            Err(error) => {
                let lost = pack.take_lost();
                self.forget(&lost);
                Err(error)
            }
        }
    }

    fn writable<'a>(&self, tail: &'a mut Tail) -> Result<&'a mut Pack, StoreError> {
        if !tail.current.as_ref().is_some_and(Pack::takes_more) {
            if let Some(pack) = &mut tail.current
                && let Err(error) = pack.flush()
            {
                let lost = pack.take_lost();
                self.forget(&lost);
                return Err(error);
            }
            tail.set_aside();
            let number = tail.next;
            // Also when it cannot be made: a number is not used twice.
            tail.next = number.saturating_add(1);
            tail.new_names = true;
            let pack = Pack::create(&self.directory, number)?;
            self.change(|index| index.files.insert(number, Arc::clone(&pack.file)));
            tail.current = Some(pack);
        }
        tail.current.as_mut().ok_or_else(|| {
            let path = self.directory.clone();
            StoreError::io("written", &path, std::io::ErrorKind::NotFound.into())
        })
    }

    fn forget(&self, lost: &[(Key, Place)]) {
        self.change(|index| {
            for (key, place) in lost {
                if index.places.get(key) == Some(place) {
                    index.places.remove(key);
                }
            }
        });
    }

    /// Writes, syncs and indexes everything.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let mut tail = self.tail();
        let mut first = None;
        let Tail {
            current,
            waiting,
            new_names,
            ..
        } = &mut *tail;
        for pack in waiting.iter_mut().chain(current) {
            // Its index may be made by this.
            *new_names |= pack.is_behind();
            if let Err(error) = pack.sync(&self.directory) {
                let lost = pack.give_up();
                self.forget(&lost);
                first.get_or_insert(error);
            }
        }
        tail.waiting.clear();
        if let Some(error) = first {
            return Err(error);
        }
        if tail.new_names {
            let inside = self.directory.join("packs");
            durable::sync_parent(&inside)
                .map_err(|error| StoreError::io("written", &self.directory, error))?;
            tail.new_names = false;
        }
        Ok(())
    }

    /// Reads a record's bytes into `payload`, proven, and gives its header; nothing when it is not
    /// here. One that is not what was stored is forgotten.
    pub(super) fn read(
        &self,
        key: &Key,
        payload: &mut Vec<u8>,
    ) -> Result<Option<Header>, StoreError> {
        let Some((place, file)) = self.find(key)? else {
            return Ok(None);
        };
        let read = read_proven(&file, key, &place, payload);
        let path = pack::path_of(&self.directory, place.pack);
        let read = read.map_err(|error| StoreError::io("read", &path, error))?;
        if read.is_some() {
            return Ok(read);
        }
        self.forget(&[(*key, place)]);
        let offset = place.offset;
        Err(StoreError::Damaged { path, offset })
    }

    /// Reads a record's bytes into `payload` for a reader who proves them; false when it is not
    /// here or is shorter than it should be.
    pub(super) fn read_unproven(
        &self,
        key: &Key,
        payload: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let Some((place, file)) = self.find(key)? else {
            return Ok(false);
        };
        payload.resize(usize::try_from(place.length).unwrap_or(usize::MAX), 0);
        self.read_there(&place, &file, 0, payload)
    }

    /// The same for a part of a record, which begins `from` bytes behind its header.
    pub(super) fn read_part(
        &self,
        key: &Key,
        from: u64,
        part: &mut [u8],
    ) -> Result<bool, StoreError> {
        match self.find(key)? {
            Some((place, file)) => self.read_there(&place, &file, from, part),
            None => Ok(false),
        }
    }

    fn read_there(
        &self,
        place: &Place,
        file: &File,
        from: u64,
        part: &mut [u8],
    ) -> Result<bool, StoreError> {
        let end = from.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if end > u64::from(place.length) {
            return Ok(false);
        }
        match file.read_exact_at(part, place.payload().saturating_add(from)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => {
                let path = pack::path_of(&self.directory, place.pack);
                Err(StoreError::io("read", &path, error))
            }
        }
    }

    /// Where a record lies, written by now; nothing when it is not here.
    fn find(&self, key: &Key) -> Result<Option<(Place, Arc<File>)>, StoreError> {
        let found = self.look(|index| {
            let place = index.places.get(key).copied()?;
            let file = index.files.get(&place.pack)?;
            Some((place, Arc::clone(file)))
        });
        if let Some((place, _)) = &found {
            self.flush_for(place)?;
        }
        Ok(found)
    }

    /// Writes what was gathered, when the record is among it.
    fn flush_for(&self, place: &Place) -> Result<(), StoreError> {
        let mut tail = self.tail();
        let Some(pack) = &mut tail.current else {
            return Ok(());
        };
        if pack.number != place.pack || pack.has_written(place) {
            return Ok(());
        }
        let flushed = pack.flush();
        if flushed.is_err() {
            let lost = pack.take_lost();
            self.forget(&lost);
        }
        flushed
    }

    /// Lets the next record begin a new pack, so that all others may be looked at and removed.
    pub(super) fn begin_new_pack(&self) -> Result<(), StoreError> {
        let synced = self.sync();
        self.tail().set_aside();
        match synced {
            // What could not be synced is forgotten; room is what the caller is about to make.
            Err(StoreError::Full { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what comes behind the last record of a pack that stays; says how many bytes.
    pub(super) fn cut(&self, number: u32, stays: &[(Key, Place)]) -> Result<u64, StoreError> {
        let Some(file) = self.look(|index| index.files.get(&number).cloned()) else {
            return Ok(0);
        };
        let end = stays.last().map_or(0, |(_, place)| place.end());
        let length = || {
            let about = file.metadata();
            about.map(|about| about.len()).map_err(|error| {
                StoreError::io("read", &pack::path_of(&self.directory, number), error)
            })
        };
        let before = length()?;
        // What is needed no more and stands between is no longer in the index either.
        self.change(|index| {
            index
                .places
                .retain(|_, place| place.pack != number || place.offset < end);
        });
        pack::cut(&self.directory, number, &file, stays)?;
        Ok(before.saturating_sub(length()?))
    }

    /// Removes a pack with all its records.
    pub(super) fn remove(&self, number: u32) -> Result<(), StoreError> {
        self.change(|index| {
            index.places.retain(|_, place| place.pack != number);
            index.files.remove(&number);
        });
        let mut tail = self.tail();
        tail.waiting.retain(|pack| pack.number != number);
        // The index first: a pack without one is read through, an index without its pack is noise.
        for path in [
            pack::index_of(&self.directory, number),
            pack::path_of(&self.directory, number),
        ] {
            durable::remove(&path).map_err(|error| StoreError::io("removed", &path, error))?;
        }
        Ok(())
    }
}

/// Reads a record; nothing when it is not what it should be.
fn read_proven(
    file: &File,
    key: &Key,
    place: &Place,
    payload: &mut Vec<u8>,
) -> std::io::Result<Option<Header>> {
    let mut header = [0; HEADER];
    payload.resize(usize::try_from(place.length).unwrap_or(usize::MAX), 0);
    for (bytes, offset) in [
        (header.as_mut_slice(), place.offset),
        (payload.as_mut_slice(), place.payload()),
    ] {
        match file.read_exact_at(bytes, offset) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
    }
    let is_it = |header: &Header| header.key == *key && header.is_of(payload);
    Ok(Header::parse(&header).filter(is_it))
}
