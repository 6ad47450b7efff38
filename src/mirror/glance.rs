//! Large files of the other end that look changed, told before either end reads anything.
//!
//! Such a file is replaced here in a moment, and what stands here must be read for it whole: to tell
//! whether somebody edited it, and to take over what stayed the same. So the scan leaves it out, and
//! one pass does both ([`rewrite`]). A look is only a hint: whatever the other end says, every byte
//! is read and proven as without it.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::agreed::Agreed;
use super::ahead::Ahead;
use super::durable;
use super::error::MirrorError;
use super::pair::{Local, Pair};
use super::peer::{Peer, PeerError};
use super::progress::Unwatched;
use crate::tree::apply::rewrite;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::scan::Scan;
use crate::wire::mirror::Glimpse;

/// Bytes from which on reading a file twice costs more than a question to the other end.
const LARGE: u64 = 16 * 1024 * 1024;
/// Most files that are looked at: those that changed are open until they have their names, beside what
/// is written ahead.
const FILES_MAX: usize = 128;
/// In the mirror's directory: what the files looked like at the last pull.
const NAME: &str = "glances";
/// As many files with the longest paths.
const BYTES_MAX: u64 = 1024 * 1024;

type Glimpses = Vec<(RelPath, Option<Glimpse>)>;

/// What the large files of the other end look like.
#[derive(Debug, Default)]
pub(super) struct Glance {
    before: Glimpses,
    now: Glimpses,
}

impl Glance {
    /// Asks the other end for the large files that both ends agreed on; `directory` is the mirror's.
    pub(super) fn ask(
        peer: &mut Peer,
        agreed: Option<&Agreed>,
        directory: &Path,
    ) -> Result<Self, PeerError> {
        let files = agreed.map(large_files).unwrap_or_default();
        if files.is_empty() {
            return Ok(Self::default());
        }
        let seen = peer.glance(&files)?;
        Ok(Self {
            before: read(directory),
            now: files.into_iter().zip(seen).collect(),
        })
    }

    /// The files that look otherwise than at the last pull.
    pub(super) fn changed(&self) -> HashSet<RelPath> {
        let other = |(path, now): &(RelPath, Option<Glimpse>)| {
            let mut before = self.before.iter();
            before.any(|(one, before)| one == path && before.is_some() && before != now)
        };
        let changed = self.now.iter().filter(|glimpse| other(glimpse));
        changed.map(|(path, _)| path.clone()).collect()
    }

    /// Keeps the looks for the next pull.
    pub(super) fn keep(self, directory: &Path) {
        if self.now == self.before {
            return;
        }
        // Not durable: what is lost or torn costs time at most.
        let written = postcard::to_allocvec(&self.now)
            .map_err(io::Error::other)
            .and_then(|bytes| write(&directory.join(NAME), &bytes));
        if let Err(error) = written {
            tracing::debug!(%error, "what large files look like is not kept");
        }
    }

    /// Forgets the looks: the other end's files are ours now.
    pub(super) fn forget(directory: &Path) {
        // There may be none.
        let _gone = fs::remove_file(directory.join(NAME));
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}

fn read(directory: &Path) -> Glimpses {
    let bytes = durable::read(&directory.join(NAME), BYTES_MAX);
    let glimpses = bytes
        .ok()
        .flatten()
        .map(|bytes| postcard::from_bytes(&bytes));
    glimpses.and_then(Result::ok).unwrap_or_default()
}

/// Large files that are the same at both ends.
fn large_files(agreed: &Agreed) -> Vec<RelPath> {
    let mut found = Vec::new();
    agreed.here.walk(&mut |path, entry| {
        if let Entry::File(file) = entry
            && file.size >= LARGE
            && found.len() < FILES_MAX
            && agreed.far.find(path) == Some(entry)
        {
            found.push(path.clone());
        }
    });
    found
}

impl Pair {
    /// Reads the files that a scan left out, and writes them anew on the way; `tree` is the other
    /// end's. Where that does not work the whole workspace is read.
    pub(super) fn read_late(
        &self,
        local: &Local,
        mut scan: Scan,
        late: &HashSet<RelPath>,
        (tree, ahead): (&Directory, &mut Ahead<'_>),
    ) -> Result<Scan, MirrorError> {
        let mut paths: Vec<&RelPath> = late.iter().collect();
        paths.sort_unstable();
        for path in paths {
            let file = match tree.find(path) {
                Some(Entry::File(file)) => Some(file),
                Some(Entry::Directory(_) | Entry::Link(_) | Entry::Special(_)) | None => None,
            };
            let stop = self.stop.flag();
            let done = file.and_then(|file| {
                let (new, old) = rewrite(local.root.as_ref()?, path, &self.store, file, stop)?;
                let replaced = scan.add(old)?;
                ahead.hold(path, file.content, new, replaced);
                Some(())
            });
            if done.is_none() || scan.tree.totals().bytes > self.limits.tree {
                tracing::debug!(?path, "the workspace is read anew");
                return self.read_local(local, &Unwatched);
            }
        }
        Ok(scan)
    }
}
