//! Large files whose groups are known: written by several threads, each group proven by its value
//! just before it is written, and taken from the file that is replaced where that has it already.
//!
//! So a change of a large file costs one pass over its bytes and reads only what changed from where
//! contents are kept. The file that is replaced is only a source of bytes that are proven like any
//! others: it may change meanwhile.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use blake3::hazmat::ChainingValue;
use rustix::io::Errno;

use super::super::content::{GROUP, Groups, group_value};
use super::super::entry::File;
use super::content::{BUFFER, WRONG, finish, unreadable, write_at};
use super::ground::Ground;
use super::outcome::{Undone, Why};
use super::{Contents, Parts};

/// Bytes that a thread takes at once: whole groups.
const SPAN: u64 = 16 * GROUP;

/// A large file on its way into a new inode.
pub(super) struct Grouped<'a> {
    ground: &'a Ground<'a>,
    file: &'a File,
    groups: Groups,
    into: BorrowedFd<'a>,
    /// The file that is replaced.
    older: Option<BorrowedFd<'a>>,
    /// What it had, where somebody wants to know.
    told: Option<Told>,
    next: AtomicU64,
    ended: AtomicBool,
    failed: Mutex<Option<Undone>>,
}

/// What the file that is replaced had, group by group.
struct Told {
    size: u64,
    values: Mutex<Vec<Option<ChainingValue>>>,
}

/// Opens a content by its groups; nothing when it has none, or these are not its own.
pub(super) fn open<'a>(
    contents: &'a dyn Contents,
    file: &File,
) -> Result<Option<Box<dyn Parts + 'a>>, Undone> {
    let parts = contents.parts(file).map_err(|error| unreadable(&error))?;
    Ok(parts.filter(|parts| {
        let groups = parts.groups();
        groups.size() == file.size && groups.content() == file.content
    }))
}

impl<'a> Grouped<'a> {
    pub(super) fn new(
        ground: &'a Ground<'a>,
        file: &'a File,
        groups: Groups,
        into: BorrowedFd<'a>,
        older: Option<BorrowedFd<'a>>,
    ) -> Self {
        Self {
            ground,
            file,
            groups,
            into,
            older,
            told: None,
            next: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            failed: Mutex::new(None),
        }
    }

    /// Tells as well which content of so many bytes the file has that is replaced.
    pub(super) fn telling(self, size: u64) -> Self {
        let groups = usize::try_from(size.div_ceil(GROUP)).unwrap_or(usize::MAX);
        Self {
            told: Some(Told {
                size,
                values: Mutex::new(vec![None; groups]),
            }),
            ..self
        }
    }

    /// Writes everything, with so many threads. Gives the groups of the file that is replaced, where
    /// somebody wants to know them.
    pub(super) fn write(
        self,
        parts: Box<dyn Parts + '_>,
        threads: usize,
    ) -> Result<Option<Groups>, Undone> {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Where no thread can be had, the others do it all.
                let _started = std::thread::Builder::new()
                    .name("mirror-write".to_owned())
                    .spawn_scoped(scope, || match open(self.ground.contents, self.file) {
                        Ok(Some(mut parts)) => self.share(&mut *parts),
                        Ok(None) => self.fail(WRONG),
                        Err(undone) => self.fail(undone),
                    });
            }
            let mut parts = parts;
            self.share(&mut *parts);
        });
        let failed = self.failed.into_inner();
        match failed.unwrap_or_else(PoisonError::into_inner) {
            Some(undone) => return Err(undone),
            None => finish(self.into, self.file.size)?,
        }
        Ok(self.told.and_then(Told::groups))
    }

    /// Writes what nobody else does, a span at a time.
    fn share(&self, parts: &mut dyn Parts) {
        let end = self.told.as_ref().map_or(0, |told| told.size);
        let end = end.max(self.file.size);
        let mut buffer = vec![0; BUFFER];
        while !self.ended.load(Ordering::Relaxed) {
            let offset = self.next.fetch_add(SPAN, Ordering::Relaxed);
            if offset >= end {
                return;
            }
            if let Err(undone) = self.span(offset, parts, &mut buffer) {
                self.fail(undone);
            }
        }
    }

    fn fail(&self, undone: Undone) {
        self.ended.store(true, Ordering::Relaxed);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(undone);
    }

    fn span(&self, offset: u64, parts: &mut dyn Parts, buffer: &mut [u8]) -> Result<(), Undone> {
        self.ground.go_on()?;
        let length = span_of(self.file.size, offset);
        let had = self
            .told
            .as_ref()
            .map_or(length, |told| span_of(told.size, offset));
        let got = self.read_older(buffer.get_mut(..had).unwrap_or_default(), offset);
        if self.told.is_some() && got < had {
            return Err(Why::Changed.into());
        }
        let (mut at, mut start) = (offset, 0);
        while start < length.max(had) {
            let next = start + usize_of(GROUP);
            let older = buffer.get(start..next.min(got)).unwrap_or_default();
            let wanted = start..next.min(length).max(start);
            let mut value = None;
            if let Some(told) = &self.told {
                value = told.note(at, older);
            } else if older.len() == wanted.len() {
                value = Some(group_value(at, older));
            }
            if older.len() != wanted.len() || value != self.value(at) {
                self.read_kept(at, buffer.get_mut(wanted).unwrap_or_default(), parts)?;
            }
            start = next;
            at = at.saturating_add(GROUP);
        }
        let bytes = buffer.get(..length).unwrap_or_default();
        write_at(self.ground, self.into, bytes, offset)?;
        self.ground.count(0, length);
        Ok(())
    }

    /// Reads a group from where it is kept, and proves it.
    fn read_kept(&self, at: u64, group: &mut [u8], parts: &mut dyn Parts) -> Result<(), Undone> {
        if group.is_empty() {
            return Ok(());
        }
        let read = parts.read_exact_at(at, group);
        read.map_err(|error| unreadable(&error))?;
        if self.is_at(at, group) {
            return Ok(());
        }
        let again = parts.read_again_at(at, group);
        again.map_err(|error| unreadable(&error))?;
        if self.is_at(at, group) {
            Ok(())
        } else {
            Err(WRONG)
        }
    }

    /// Whether these are the bytes of the group at this offset.
    fn is_at(&self, offset: u64, bytes: &[u8]) -> bool {
        self.value(offset) == Some(group_value(offset, bytes))
    }

    /// The value of the group at an offset; nothing behind the end.
    fn value(&self, offset: u64) -> Option<ChainingValue> {
        let index = usize::try_from(offset / GROUP).ok()?;
        self.groups.values().get(index).copied()
    }

    /// Reads what the file that is replaced has there; how many bytes. One that cannot be read has
    /// none.
    fn read_older(&self, bytes: &mut [u8], offset: u64) -> usize {
        let Some(older) = self.older else { return 0 };
        let mut got = 0;
        while let Some(free) = bytes.get_mut(got..).filter(|free| !free.is_empty()) {
            let at = offset.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
            match rustix::io::pread(older, &mut *free, at) {
                Ok(0) => break,
                Ok(read) => got += read,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        got
    }
}

impl Told {
    /// Notes the value of a group of the older file; nothing where it has none.
    fn note(&self, offset: u64, bytes: &[u8]) -> Option<ChainingValue> {
        if bytes.is_empty() {
            return None;
        }
        let value = group_value(offset, bytes);
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(offset / GROUP).ok();
        if let Some(place) = place.and_then(|index| values.get_mut(index)) {
            *place = Some(value);
        }
        Some(value)
    }

    fn groups(self) -> Option<Groups> {
        let values = self.values.into_inner();
        let values = values.unwrap_or_else(PoisonError::into_inner);
        Groups::new(self.size, values.into_iter().collect::<Option<_>>()?)
    }
}

/// How many bytes a content of this size has in the span at an offset.
fn span_of(size: u64, offset: u64) -> usize {
    usize_of(SPAN.min(size.saturating_sub(offset)))
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
