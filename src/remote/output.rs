//! The way of a program's output: from its pipe to a spool, and from there to the link until the
//! controller has it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::wire::link::{OutputKind, WINDOW};

use super::spool::Spool;

/// An output of a program.
#[derive(Debug)]
pub struct Output {
    /// Which.
    pub kind: OutputKind,
    /// Our end; shared with the input when it is a terminal.
    source: Option<Arc<OwnedFd>>,
    spool: Spool,
    /// Bytes that were read and that the disk did not take.
    stuck: Vec<u8>,
    /// Whether that was told.
    told_stuck: bool,
    /// Bytes that the link got.
    sent: u64,
}

impl Output {
    /// Of a pipe or terminal; `None` when there is none.
    pub fn new(kind: OutputKind, source: Option<Arc<OwnedFd>>) -> Self {
        Self {
            kind,
            source,
            spool: Spool::default(),
            stuck: Vec::new(),
            told_stuck: false,
            sent: 0,
        }
    }

    /// The pipe, when there is room for what it gives.
    pub fn wanted(&self, room: u64) -> Option<&OwnedFd> {
        let wanted = self.stuck.is_empty() && self.spool.length() < room;
        self.source.as_deref().filter(|_| wanted)
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.spool.length()
    }

    /// Bytes that were read so far.
    pub fn written(&self) -> u64 {
        let stuck = u64::try_from(self.stuck.len()).unwrap_or_default();
        self.spool.end() + stuck
    }

    /// Bytes that the link got.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that can be read without waiting, when that is known.
    pub fn unread(&self) -> u64 {
        let source = self.source.as_deref();
        source.map_or(0, |source| rustix::io::ioctl_fionread(source).unwrap_or(0))
    }

    /// Whether nothing more will be read.
    pub fn is_over(&self) -> bool {
        self.source.is_none()
    }

    /// Closes it: who still writes there is told so.
    pub fn close(&mut self) {
        self.source = None;
    }

    /// Reads once; gives how many bytes came.
    pub fn read(&mut self, folder: &OwnedFd, buffer: &mut [u8]) -> usize {
        let Some(source) = &self.source else { return 0 };
        match rustix::io::read(source, &mut *buffer) {
            Ok(0) => self.source = None,
            Ok(length) => {
                self.stuck
                    .extend_from_slice(buffer.get(..length).unwrap_or_default());
                self.unstick(folder);
                return length;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal that no program has open any more.
            Err(_) => self.source = None,
        }
        0
    }

    /// Tries again what the disk did not take.
    pub fn unstick(&mut self, folder: &OwnedFd) {
        if self.stuck.is_empty() {
            return;
        }
        match self.spool.push(folder, &self.stuck) {
            Ok(()) => {
                self.stuck.clear();
                self.told_stuck = false;
            }
            Err(error) if !self.told_stuck => {
                super::tell(&format!("output waits for the disk: {error}"));
                self.told_stuck = true;
            }
            Err(_) => {}
        }
    }

    /// The next bytes for the link: where they stand, and how many are in `buffer`.
    ///
    /// # Errors
    /// When the disk does not give them back.
    pub fn next(&mut self, buffer: &mut [u8]) -> io::Result<Option<(u64, usize)>> {
        let limit = self.spool.start() + WINDOW;
        let room = usize::try_from(limit.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(room);
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        let length = self.spool.read(self.sent, part)?;
        if length == 0 {
            return Ok(None);
        }
        let offset = self.sent;
        self.sent += u64::try_from(length).unwrap_or_default();
        Ok(Some((offset, length)))
    }

    /// The controller has everything before `offset`; gives whether that can be.
    pub fn acknowledge(&mut self, offset: u64) -> bool {
        if offset > self.sent {
            return false;
        }
        self.spool.release(offset);
        true
    }

    /// A new link goes on at `offset`; gives whether the bytes from there on are still here.
    pub fn resume(&mut self, offset: u64) -> bool {
        if offset < self.spool.start() || offset > self.spool.end() {
            return false;
        }
        self.spool.release(offset);
        self.sent = offset;
        true
    }
}

/// Makes a pipe: our end, which never waits, and the program's.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}
