//! Files of the workspace that are written while their contents come, so that the workspace is brought
//! to a generation by naming them, and not by reading and writing everything once more.
//!
//! Until then they are inodes without names: whatever happens, nothing of them is left. What is
//! written into one is proven before, as what the applier writes itself. Where that cannot be done,
//! nothing is lost but time: the applier writes the file from the store.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use super::receive::Missing;
use super::store::Store;
use crate::tree::apply::{Contents, Parts, Unnamed};
use crate::tree::content::ContentId;
use crate::tree::entry::File;
use crate::tree::path::RelPath;
use crate::tree::root::Root;

/// Most files that are written ahead in one pull: each is an open file until it has its name, and a
/// process may often have no more than 1,024.
pub const AHEAD_MAX: usize = 256;

/// Writes files ahead on the file system of one root.
#[derive(Debug)]
pub struct Ahead<'a> {
    /// Nothing when no file is to be written ahead.
    root: Option<&'a Root>,
    written: Inodes,
    replaced: Vec<OwnedFd>,
}

/// Each by its place, whose directory gave it its group and rights, and its content.
type Inodes = HashMap<(RelPath, ContentId), Unnamed>;

/// One file on its way.
#[derive(Debug)]
pub(super) struct Writing(Option<Unnamed>);

/// Files that are whole and wait for their names.
#[derive(Debug, Default)]
pub(super) struct Written {
    inodes: Mutex<Inodes>,
    /// Open until all is done: then nobody has to wait until a file without names is given back.
    replaced: Vec<OwnedFd>,
}

impl<'a> Ahead<'a> {
    /// For the files of a root; without one, none are written.
    pub fn of(root: Option<&'a Root>) -> Self {
        Self {
            root,
            written: Inodes::new(),
            replaced: Vec::new(),
        }
    }

    /// From here on nothing is written, unless the root's file system has room for so many bytes
    /// twice: they come into the store as well, which may be on the same one, and a generation is worth
    /// more than time.
    pub(super) fn needs(&mut self, bytes: u64) {
        self.root = self.root.filter(|root| {
            rustix::fs::fstatvfs(root).is_ok_and(|about| {
                let free = about.f_bavail.saturating_mul(about.f_frsize);
                free / 2 >= bytes
            })
        });
    }

    /// Begins the file of a content that will stand at this path.
    pub(super) fn begin(&self, path: &RelPath) -> Writing {
        let root = self.root.filter(|_| self.written.len() < AHEAD_MAX);
        Writing(root.and_then(|root| {
            let made = Unnamed::near(root, path);
            made.inspect_err(|error| tracing::debug!(%error, "no file is written ahead"))
                .ok()
        }))
    }

    /// Keeps a file that is whole.
    pub(super) fn keep(&mut self, missing: &Missing, writing: Writing) {
        if let Writing(Some(inode)) = writing
            && inode.finish(missing.size).is_ok()
        {
            let key = (missing.path.clone(), missing.content);
            self.written.insert(key, inode);
        }
    }

    /// Keeps a file that was written elsewhere and is whole, with the one that it replaces.
    pub(super) fn hold(
        &mut self,
        path: &RelPath,
        content: ContentId,
        inode: Unnamed,
        replaced: OwnedFd,
    ) {
        self.written.insert((path.clone(), content), inode);
        self.replaced.push(replaced);
    }

    /// What was written.
    pub(super) fn written(self) -> Written {
        Written {
            inodes: Mutex::new(self.written),
            replaced: self.replaced,
        }
    }
}

impl Writing {
    /// Writes bytes that are proven. What cannot be written is let go.
    pub(super) fn write_at(&mut self, bytes: &[u8], at: u64) {
        if let Some(inode) = &mut self.0
            && let Err(error) = inode.write_at(bytes, at)
        {
            tracing::debug!(%error, "a file is not written ahead");
            self.0 = None;
        }
    }
}

impl Written {
    /// The file that was written for this place, once.
    fn take(&self, path: &RelPath, content: ContentId) -> Option<Unnamed> {
        let mut written = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        written.remove(&(path.clone(), content))
    }
}

impl Drop for Written {
    /// Giving back the pages of 1 GiB takes a tenth of a second.
    fn drop(&mut self) {
        let replaced = std::mem::take(&mut self.replaced);
        if !replaced.is_empty() {
            let closing = std::thread::Builder::new().name("mirror-close".to_owned());
            // Where no thread can be had, they are closed here.
            let _closes = closing.spawn(move || drop(replaced));
        }
    }
}

/// The store's contents, and what was written ahead of them.
pub(super) struct Brought<'a> {
    pub(super) store: &'a Store,
    pub(super) written: Written,
}

impl Contents for Brought<'_> {
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        Contents::open(self.store, file)
    }

    fn doubt(&self, file: &File) -> io::Result<()> {
        Contents::doubt(self.store, file)
    }

    fn parts(&self, file: &File) -> io::Result<Option<Box<dyn Parts + '_>>> {
        Contents::parts(self.store, file)
    }

    fn written_ahead(&self, path: &RelPath, file: &File) -> Option<Unnamed> {
        self.written.take(path, file.content)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// A new inode has its group and its default rights of the directory that it was made in, so that
    /// it is no file of another place, nor of another content.
    #[test]
    fn a_file_is_written_for_one_place() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::open(place.path()).unwrap();
        let missing = Missing {
            content: ContentId::of(b"abc"),
            size: 3,
            path: RelPath::new(b"f").unwrap(),
        };
        let mut ahead = Ahead::of(Some(&root));
        let mut writing = ahead.begin(&missing.path);
        writing.write_at(b"abc", 0);
        ahead.keep(&missing, writing);
        let written = ahead.written();
        let other = RelPath::new(b"d/f").unwrap();
        assert!(written.take(&other, missing.content).is_none());
        assert!(written.take(&missing.path, ContentId::of(b"abd")).is_none());
        assert!(written.take(&missing.path, missing.content).is_some());
        assert!(written.take(&missing.path, missing.content).is_none());
    }
}
