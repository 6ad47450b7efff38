//! An archive that is brought: a tar, plain or packed with gzip or zstd, which its first bytes tell.
//!
//! Its headers say how much is read, and each read is metered: a few KiB of packed zeros become
//! neither a name of gigabytes in memory nor a file of them on the disk.

use std::cell::Cell;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use tar::EntryType;

use super::staged::{Growing, NotTaken, Staging};
use super::{CopyInError, Refusal, Refusals, below};
use crate::plain_file::{self, Links};
use crate::tree::entry::{File, Seen};
use crate::tree::limits::{Limits, PATHS_MAX};
use crate::tree::path::RelPath;

/// Most bytes before a member's content: its headers, with long names and extensions. Names have
/// 128 KiB at most.
const HEADERS_MAX: u64 = 1024 * 1024;
/// What a member may have besides its path and content, on the average: two headers, extensions, and
/// what fills blocks.
const AROUND_MEMBER: u64 = 4 * 1024;
const BLOCK: u64 = 512;
/// Two blocks of zeros are the end of an archive.
const END: u64 = 2 * BLOCK;
const SETUID_OR_SETGID: u32 = 0o6000;
const OWNER_EXECUTES: u32 = 0o100;

/// Bytes that may still be read, and how many were.
struct Meter {
    now: Cell<u64>,
    all: Cell<u64>,
    read: Cell<u64>,
}

impl Meter {
    /// Most that an archive within the limits can have.
    fn of(limits: &Limits) -> Self {
        let around = limits.entries.saturating_mul(AROUND_MEMBER);
        let all = limits.tree.saturating_add(around).saturating_add(PATHS_MAX);
        Self {
            now: Cell::new(0),
            all: Cell::new(all),
            read: Cell::new(0),
        }
    }

    /// Lets the next headers be read, and `bytes` before or after them.
    fn allow(&self, bytes: u64) {
        self.now.set(bytes.saturating_add(HEADERS_MAX));
    }
}

struct Metered<R> {
    from: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let meter = &*self.meter;
        let left = meter.now.get().min(meter.all.get());
        if left == 0 && !into.is_empty() {
            let text = "it has more bytes than its members may have";
            return Err(io::Error::other(text));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let count = self.from.read(into.get_mut(..most).unwrap_or_default())?;
        let length = u64::try_from(count).unwrap_or(u64::MAX);
        meter.now.set(meter.now.get().saturating_sub(length));
        meter.all.set(meter.all.get().saturating_sub(length));
        meter.read.set(meter.read.get().saturating_add(length));
        Ok(count)
    }
}

/// Reads it whole; what is refused is not staged.
pub(super) fn read(
    path: &Path,
    to: &RelPath,
    (tree, staging): (&mut Growing, &mut Staging),
) -> Result<Refusals, CopyInError> {
    let unreadable =
        |error: &dyn std::error::Error| CopyInError::unreadable(path, &error.to_string());
    let (file, _) = plain_file::open(path, Links::Follow).map_err(|error| unreadable(&error))?;
    let meter = Rc::new(Meter::of(tree.limits()));
    let from = Metered {
        from: unpacked(BufReader::new(file)).map_err(|error| unreadable(&error))?,
        meter: Rc::clone(&meter),
    };
    let mut refusals = Refusals::default();
    let mut archive = tar::Archive::new(from);
    let mut members = archive.entries().map_err(|error| unreadable(&error))?;
    // What the reader has to pass over of the member before.
    let mut rest = 0;
    let mut end = 0;
    loop {
        meter.allow(rest);
        let Some(member) = members.next() else { break };
        let mut member = member.map_err(|error| unreadable(&error))?;
        let size = member.size();
        meter.allow(size.min(tree.limits().file));
        rest = size.min(tree.limits().file);
        let data_end = member.raw_file_position().saturating_add(size);
        end = data_end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        let name = member.path_bytes().into_owned();
        match put(&mut member, &name, to, (tree, staging)) {
            Ok(()) => {}
            Err(NotPut::Refused(why)) => {
                let is_limit = why.is_limit();
                refusals.add(&name, why);
                // Nothing is read that only could be more of the same.
                if is_limit {
                    return Ok(refusals);
                }
            }
            Err(NotPut::Unreadable(error)) => return Err(unreadable(&error)),
            Err(NotPut::Disk(error)) => return Err(CopyInError::Staging(error)),
        }
    }
    meter.allow(0);
    ended(archive.into_inner(), &meter, end).map_err(|error| unreadable(&error))?;
    Ok(refusals)
}

/// What packs it is undone.
fn unpacked(mut file: BufReader<std::fs::File>) -> io::Result<Box<dyn Read>> {
    let start = file.fill_buf()?;
    if start.starts_with(b"\x1f\x8b") {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(file)));
    }
    if start.starts_with(b"\x28\xb5\x2f\xfd") {
        return Ok(Box::new(zstd::stream::read::Decoder::with_buffer(file)?));
    }
    Ok(Box::new(file))
}

/// Reads what follows the last member, with the checksum of what packed it: the end of an archive,
/// and nothing else. One that was cut off between two members has no end.
fn ended(mut from: impl Read, meter: &Meter, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        let part = buffer.get(..count).unwrap_or_default();
        if part.iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("something follows the end of the archive"));
        }
    }
    if meter.read.get() < end.saturating_add(END) {
        return Err(io::Error::other(
            "it is no tar archive, or was cut off: it has no end",
        ));
    }
    Ok(())
}

enum NotPut {
    Refused(Refusal),
    Unreadable(io::Error),
    Disk(io::Error),
}

impl From<Refusal> for NotPut {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn put(
    member: &mut tar::Entry<'_, impl Read>,
    name: &[u8],
    to: &RelPath,
    (tree, staging): (&mut Growing, &mut Staging),
) -> Result<(), NotPut> {
    let kind = member.header().entry_type();
    let is_directory = match kind {
        EntryType::Directory => true,
        EntryType::Regular | EntryType::Continuous => is_old_directory(member, name),
        // What git writes its commit into.
        EntryType::XGlobalHeader if member.size() <= HEADERS_MAX => return Ok(()),
        EntryType::Symlink => return Err(Refusal::Symlink.into()),
        EntryType::Link => return Err(Refusal::HardLink.into()),
        EntryType::Char | EntryType::Block => return Err(Refusal::Device.into()),
        EntryType::Fifo => return Err(Refusal::Fifo.into()),
        EntryType::GNUSparse => return Err(Refusal::Sparse.into()),
        other => return Err(Refusal::Kind(other.as_byte()).into()),
    };
    if is_sparse(member).map_err(NotPut::Unreadable)? {
        return Err(Refusal::Sparse.into());
    }
    let mode = member.header().mode().map_err(NotPut::Unreadable)?;
    if mode & SETUID_OR_SETGID != 0 {
        return Err(Refusal::Setuid.into());
    }
    let place = place(name, is_directory, to)?;
    if is_directory {
        return Ok(tree.directory(&place)?);
    }
    let size = member.size();
    tree.reserve(size)?;
    let content = staging.take(member, size).map_err(|error| match error {
        NotTaken::Source(error) => NotPut::Unreadable(error),
        NotTaken::Size => NotPut::Unreadable(io::Error::other("it was cut off")),
        NotTaken::Disk(error) => NotPut::Disk(error),
    })?;
    let file = File {
        size,
        executable: mode & OWNER_EXECUTES != 0,
        content,
        seen: Seen::default(),
    };
    Ok(tree.file(&place, file)?)
}

/// The oldest form has no kind for directories: their names end with a slash.
fn is_old_directory(member: &tar::Entry<'_, impl Read>, name: &[u8]) -> bool {
    name.ends_with(b"/") && member.size() == 0
}

/// Whether what it has is a map of another file's parts, as newer sparse files are stored.
fn is_sparse(member: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(extensions) = member.pax_extensions()? else {
        return Ok(false);
    };
    for extension in extensions {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a member goes. `./` before a name and the slash after a directory's are what tar writes.
fn place(name: &[u8], is_directory: bool, to: &RelPath) -> Result<RelPath, Refusal> {
    if name.starts_with(b"/") {
        return Err(Refusal::Absolute);
    }
    if name.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(Refusal::Climbs);
    }
    let mut bare = name;
    while let Some(rest) = bare.strip_prefix(b"./") {
        bare = rest;
    }
    if is_directory {
        bare = bare.strip_suffix(b"/").unwrap_or(bare);
        if bare.is_empty() || bare == b"." {
            return Ok(to.clone());
        }
    } else if bare.is_empty() {
        return Err(Refusal::Name(crate::tree::path::BadName::Empty));
    }
    below(to, bare)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
