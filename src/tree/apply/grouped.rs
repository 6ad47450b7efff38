//! Large files whose groups are known: written by several threads, each group proven by its value
//! just before it is written, and taken from the file that is replaced where that has it already.
//!
//! So a change of a large file costs one pass over its bytes and reads only what changed from where
//! contents are kept. The file that is replaced is only a source of bytes that are proven like any
//! others: it may change meanwhile.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::super::content::{GROUP, Groups, group_value};
use super::super::entry::File;
use super::content::{BUFFER, WRONG, finish, unreadable, write_at};
use super::ground::Ground;
use super::outcome::Undone;
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
    older: Option<&'a OwnedFd>,
    next: AtomicU64,
    ended: AtomicBool,
    failed: Mutex<Option<Undone>>,
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
        older: Option<&'a OwnedFd>,
    ) -> Self {
        Self {
            ground,
            file,
            groups,
            into,
            older,
            next: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            failed: Mutex::new(None),
        }
    }

    /// Writes everything, with so many threads.
    pub(super) fn write(self, parts: Box<dyn Parts + '_>, threads: usize) -> Result<(), Undone> {
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
            Some(undone) => Err(undone),
            None => Ok(finish(self.into, self.file.size)?),
        }
    }

    /// Writes what nobody else does, a span at a time.
    fn share(&self, parts: &mut dyn Parts) {
        let mut buffer = vec![0; BUFFER];
        while !self.ended.load(Ordering::Relaxed) {
            let offset = self.next.fetch_add(SPAN, Ordering::Relaxed);
            if offset >= self.file.size {
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
        let length = usize_of(SPAN.min(self.file.size - offset));
        let bytes = buffer.get_mut(..length).unwrap_or_default();
        let got = self.read_older(bytes, offset);
        let mut at = offset;
        let mut before = 0;
        for group in bytes.chunks_mut(usize_of(GROUP)) {
            let end = before + group.len();
            if end > got || !self.is_at(at, group) {
                self.read_kept(at, group, parts)?;
            }
            before = end;
            at = at.saturating_add(GROUP);
        }
        write_at(self.ground, self.into, bytes, offset)?;
        self.ground.count(0, length);
        Ok(())
    }

    /// Reads a group from where it is kept, and proves it.
    fn read_kept(&self, at: u64, group: &mut [u8], parts: &mut dyn Parts) -> Result<(), Undone> {
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
        let value = usize::try_from(offset / GROUP)
            .ok()
            .and_then(|index| self.groups.values().get(index));
        value.is_some_and(|value| *value == group_value(offset, bytes))
    }

    /// Reads what the file that is replaced has there; how many bytes. One that cannot be read has
    /// none.
    fn read_older(&self, bytes: &mut [u8], offset: u64) -> usize {
        let Some(older) = self.older else { return 0 };
        let mut got = 0;
        while let Some(free) = bytes.get_mut(got..).filter(|free| !free.is_empty()) {
            let at = offset.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
            match rustix::io::pread(older.as_fd(), &mut *free, at) {
                Ok(0) => break,
                Ok(read) => got += read,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        got
    }
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
