//! Writes bytes into a new inode and proves what they are.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::super::content::ContentId;
use super::super::entry::File;
use super::super::zeros::{ZEROS, zeros};
use super::ground::Ground;
use super::outcome::{Failure, Undone};
use super::{Ask, Call};

/// Bytes that are read at once. A file of fewer is proven before an inode is made for it.
pub(super) const BUFFER: usize = 1024 * 1024;
/// Zeros that are left out as a hole, bytes, when they fill a piece of this size at a multiple of
/// it: shorter holes cost more in the file system's lists of extents than they save.
pub(super) const HOLE: usize = ZEROS;

/// Where bytes come from.
pub(super) enum Source<'a> {
    Given(Box<dyn Read + 'a>),
    File(BorrowedFd<'a>),
}

impl Source<'_> {
    /// Fills the buffer as far as there are bytes; how many it got.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Undone> {
        let mut got = 0;
        while let Some(free) = buffer.get_mut(got..).filter(|free| !free.is_empty()) {
            let read = match self {
                Self::Given(bytes) => match bytes.read(free) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.map_err(|error| unreadable(&error))?,
                },
                Self::File(file) => {
                    rustix::io::retry_on_intr(|| rustix::io::read(*file, &mut *free))?
                }
            };
            if read == 0 {
                break;
            }
            got += read;
        }
        Ok(got)
    }
}

/// A content that could not be had: what the system lacks ends the work, all else is this file's.
pub(super) fn unreadable(error: &io::Error) -> Undone {
    match Errno::from_io_error(error).map(Undone::from) {
        Some(Undone::Fatal(fatal)) => Undone::Fatal(fatal),
        Some(Undone::Kept(_) | Undone::Failed(_)) | None => Failure::NoContent(error.kind()).into(),
    }
}

/// A content that is not the file's.
pub(super) const WRONG: Undone = Undone::Failed(Failure::WrongContent);

/// The whole content of a file that fits the buffer, proven; nothing when it does not fit.
pub(super) fn whole<'b>(
    source: &mut Source<'_>,
    file: &File,
    buffer: &'b mut [u8],
) -> Result<Option<&'b [u8]>, Undone> {
    // One byte more than the file has would show that there are more.
    let Some(size) = usize::try_from(file.size)
        .ok()
        .filter(|size| *size < buffer.len())
    else {
        return Ok(None);
    };
    let room = buffer.get_mut(..=size).unwrap_or_default();
    let got = source.fill(room)?;
    match buffer.get(..got) {
        Some(bytes) if got == size && ContentId::of(bytes) == file.content => Ok(Some(bytes)),
        Some(_) | None => Err(WRONG),
    }
}

/// Writes all that the source has, as far as the file's size, and proves it.
pub(super) fn pour(
    ground: &Ground<'_>,
    source: &mut Source<'_>,
    into: BorrowedFd<'_>,
    file: &File,
    buffer: &mut [u8],
) -> Result<(), Undone> {
    let (size, content) = copy(ground, source, into, file.size, buffer)?;
    if size == file.size && content == file.content {
        Ok(())
    } else {
        Err(WRONG)
    }
}

/// Writes what the source has, `most` bytes at most and one more to show that there are more; how
/// many there were, and which.
pub(super) fn copy(
    ground: &Ground<'_>,
    source: &mut Source<'_>,
    into: BorrowedFd<'_>,
    most: u64,
    buffer: &mut [u8],
) -> Result<(u64, ContentId), Undone> {
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    loop {
        let got = source.fill(buffer)?;
        let bytes = buffer.get(..got).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        hasher.update(bytes);
        let end = at + u64::try_from(got).unwrap_or(u64::MAX);
        if end > most {
            return Err(WRONG);
        }
        ground.go_on()?;
        write_at(ground, into, bytes, at)?;
        ground.count(0, got);
        at = end;
    }
    finish(into, at)?;
    Ok((at, ContentId(*hasher.finalize().as_bytes())))
}

/// Writes the whole content of a small file.
pub(super) fn write_whole(
    ground: &Ground<'_>,
    into: BorrowedFd<'_>,
    bytes: &[u8],
) -> Result<(), Undone> {
    write_at(ground, into, bytes, 0)?;
    ground.count(0, bytes.len());
    // Only a hole at the end leaves a file short.
    if bytes.len() >= HOLE {
        finish(into, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
    }
    Ok(())
}

/// The hash of a file's bytes, read from its start, with their number.
pub(super) fn hash(file: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(u64, ContentId), Undone> {
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    loop {
        let got = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, at))?;
        match buffer.get(..got) {
            None | Some([]) => return Ok((at, ContentId(*hasher.finalize().as_bytes()))),
            Some(bytes) => hasher.update(bytes),
        };
        at += u64::try_from(got).unwrap_or(u64::MAX);
    }
}

/// Writes bytes that stand at `at`, a multiple of [`HOLE`], and leaves holes out.
pub(super) fn write_at(
    ground: &Ground<'_>,
    into: BorrowedFd<'_>,
    bytes: &[u8],
    at: u64,
) -> Result<(), Undone> {
    Ok(write_filled(ground.ask, into, bytes, at)?)
}

/// The same without a ground.
pub(super) fn write_filled(
    ask: Option<Ask<'_>>,
    into: BorrowedFd<'_>,
    bytes: &[u8],
    at: u64,
) -> Result<(), Errno> {
    let mut start = 0;
    let mut next = 0;
    for piece in bytes.chunks(HOLE) {
        let end = next + piece.len();
        if piece == zeros() {
            let filled = bytes.get(start..next).unwrap_or_default();
            write_all(ask, into, filled, (at, start))?;
            start = end;
        }
        next = end;
    }
    let filled = bytes.get(start..).unwrap_or_default();
    write_all(ask, into, filled, (at, start))
}

/// Writes bytes that stand `offset` bytes behind `at`.
fn write_all(
    ask: Option<Ask<'_>>,
    into: BorrowedFd<'_>,
    mut bytes: &[u8],
    (at, offset): (u64, usize),
) -> Result<(), Errno> {
    let mut at = at + u64::try_from(offset).unwrap_or(u64::MAX);
    while !bytes.is_empty() {
        ask.map_or(Ok(()), |ask| ask(Call::Write))?;
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(into, bytes, at))?;
        if written == 0 {
            return Err(Errno::IO);
        }
        bytes = bytes.get(written..).unwrap_or_default();
        at += u64::try_from(written).unwrap_or(u64::MAX);
    }
    Ok(())
}

/// Gives a file its size when it ends in a hole.
pub(super) fn finish(into: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    let has = rustix::fs::fstat(into)?.st_size;
    if u64::try_from(has) == Ok(size) {
        return Ok(());
    }
    rustix::fs::ftruncate(into.as_fd(), size)
}
