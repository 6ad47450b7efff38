//! Files of the workspace that are written while their contents come, so that the workspace is brought
//! to a generation by naming them, and not by reading and writing everything once more.
//!
//! Until then they are inodes without names: whatever happens, nothing of them is left. What is
//! written into one is proven before, as what the applier writes itself. Where that cannot be done,
//! nothing is lost but time: the applier writes the file from the store.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

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
    written: HashMap<ContentId, Unnamed>,
}

/// One file on its way.
#[derive(Debug)]
pub(super) struct Writing(Option<Unnamed>);

/// Files that are whole and wait for their names.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<ContentId, Unnamed>>);

impl<'a> Ahead<'a> {
    /// For the files of a root; without one, none are written.
    pub fn of(root: Option<&'a Root>) -> Self {
        Self {
            root,
            written: HashMap::new(),
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
    pub(super) fn keep(&mut self, content: ContentId, size: u64, writing: Writing) {
        if let Writing(Some(inode)) = writing
            && inode.finish(size).is_ok()
        {
            self.written.insert(content, inode);
        }
    }

    /// What was written.
    pub(super) fn written(self) -> Written {
        Written(Mutex::new(self.written))
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

    fn written_ahead(&self, file: &File) -> Option<Unnamed> {
        let written = self.written.0.lock();
        let mut written = written.unwrap_or_else(PoisonError::into_inner);
        written.remove(&file.content)
    }
}
