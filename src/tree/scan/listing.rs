//! The names in a directory, read in large pieces.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::super::path::Name;

/// Bytes of one reading of a directory: some thousand names.
const PIECE: usize = 64 * 1024;

/// Where a thread reads directories into.
#[derive(Debug)]
pub(super) struct Piece(Vec<MaybeUninit<u8>>);

/// What a directory holds.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By name, each once; the kind is a hint, and may be unknown.
    pub(super) good: Vec<(Name, FileType)>,
    /// What cannot be mirrored.
    pub(super) bad: Vec<Vec<u8>>,
}

impl Piece {
    pub(super) fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); PIECE])
    }

    /// Reads all names, but stops soon after more than `most`.
    pub(super) fn names(&mut self, directory: BorrowedFd<'_>, most: u64) -> Result<Names, Errno> {
        let mut names = Names::default();
        self.each(directory, &mut |bytes, kind| {
            if matches!(bytes, b"." | b"..") {
                return true;
            }
            match Name::new(bytes) {
                Ok(name) => names.good.push((name, kind)),
                Err(_) => names.bad.push(bytes.to_vec()),
            }
            let count = names.good.len().saturating_add(names.bad.len());
            u64::try_from(count).unwrap_or(u64::MAX) <= most
        })?;
        // A name that is renamed meanwhile may be listed twice.
        names
            .good
            .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        names.good.dedup_by(|(one, _), (other, _)| one == other);
        names.bad.sort_unstable();
        Ok(names)
    }

    #[cfg(target_os = "linux")]
    fn each(
        &mut self,
        directory: BorrowedFd<'_>,
        visit: &mut dyn FnMut(&[u8], FileType) -> bool,
    ) -> Result<(), Errno> {
        let mut entries = rustix::fs::RawDir::new(directory, &mut self.0);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                entry => entry?,
            };
            if !visit(entry.file_name().to_bytes(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn each(
        &mut self,
        directory: BorrowedFd<'_>,
        visit: &mut dyn FnMut(&[u8], FileType) -> bool,
    ) -> Result<(), Errno> {
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            if !visit(entry.file_name().to_bytes(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }
}
