//! What a push sends over our own channel: from the files of the local tree, as its scan saw them.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags};

use super::error::MirrorError;
use super::pair::Local;
use super::peer::{Older, Peer, Source};
use super::progress::{Amount, Progress};
use crate::tree::content::{ContentId, GROUPED_ABOVE};
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::scan::Scan;
use crate::tree::stamp::Stamp;

/// Where what is sent comes from, and what is there.
pub(super) struct Sending<'a> {
    pub(super) local: &'a Local,
    pub(super) here: &'a Scan,
    /// What the other end has.
    pub(super) before: &'a Directory,
    /// A file for each content here.
    pub(super) places: &'a HashMap<ContentId, RelPath>,
}

impl Sending<'_> {
    /// Sends contents; how many bytes that took.
    ///
    /// # Errors
    /// When one cannot be read, or is not what the scan saw, or the other end is lost.
    pub(super) fn stage(
        &self,
        peer: &mut Peer,
        wanted: &[(ContentId, u64)],
        progress: &dyn Progress,
    ) -> Result<u64, MirrorError> {
        let (mut there, mut sent) = (0_u64, 0_u64);
        peer.stage(
            wanted,
            &mut |content| self.source(content),
            &mut |bytes, took| {
                there = there.saturating_add(bytes);
                sent = sent.saturating_add(took);
                progress.at(Amount {
                    entries: 0,
                    bytes: there,
                });
            },
        )?;
        Ok(sent)
    }

    fn source(&self, content: ContentId) -> io::Result<Source<'_>> {
        let path = self.places.get(&content).ok_or(io::ErrorKind::NotFound)?;
        Ok(Source {
            bytes: Box::new(self.open(path)?),
            older: self.older(path, content),
        })
    }

    fn open(&self, path: &RelPath) -> io::Result<File> {
        let root = self.local.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = root.open_at(path, flags, Mode::empty())?;
        let seen = Stamp::of(&rustix::fs::fstat(&opened)?);
        let was = self.here.stamps.get(path);
        if was.is_some_and(|was| seen.is_same_file(was)) {
            return Ok(opened.into());
        }
        let path = crate::escape::escape(path.as_bytes());
        Err(io::Error::other(format!(
            "{path} changed while it was pushed; push again"
        )))
    }

    /// The large file that the other end has at the same path.
    fn older(&self, path: &RelPath, content: ContentId) -> Option<Older> {
        let newer = self.here.groups.get(&content)?;
        match self.before.find(path)? {
            Entry::File(file) if file.size > GROUPED_ABOVE => Some(Older {
                path: path.clone(),
                content: file.content,
                size: file.size,
                newer: newer.clone(),
            }),
            Entry::File(_) | Entry::Directory(_) | Entry::Link(_) | Entry::Special(_) => None,
        }
    }
}
