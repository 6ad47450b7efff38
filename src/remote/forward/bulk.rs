//! Bytes that nobody looks at: the kernel passes them on from socket to socket through a pipe, and
//! no copy is made of them here.
//!
//! Only a client's: with 64 KiB at once in whole pages, a large request takes a third less of the
//! forwarder's time. What ssh gives back comes in smaller pieces, of which a pipe holds only sixteen;
//! copied together they take less time than passed on one by one (`docs/benchmarks.md`).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::end::Read;

/// From so many bytes on a pipe is worth its making: with fewer left it is as quick to copy them.
pub(super) const BULK_LEAST: u64 = 128 * 1024;
/// What is asked for at once: as much as a pipe holds, unless somebody has changed the system's own size
/// of pipes.
const PIPE_HOLDS: u64 = 64 * 1024;

/// A pipe for one direction of a connection.
#[derive(Debug)]
pub(super) struct Bulk {
    from: OwnedFd,
    to: OwnedFd,
    /// Bytes that are in it.
    holds: u64,
}

impl Bulk {
    /// An empty one, while there are descriptors.
    pub(super) fn new() -> Option<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        Some(Self { from, to, holds: 0 })
    }

    /// Whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.holds == 0
    }

    /// Takes up to `most` bytes of a socket; only while [`Self::is_empty`], since a full pipe looks like
    /// a socket without bytes. `None` when the kernel cannot do that with this socket.
    pub(super) fn take(&mut self, socket: impl AsFd, most: u64) -> Option<Read> {
        let most = usize::try_from(most.min(PIPE_HOLDS)).unwrap_or(usize::MAX);
        match pass(socket, &self.to, most) {
            Ok(0) => Some(Read::End),
            Ok(length) => {
                self.holds += u64::try_from(length).unwrap_or(u64::MAX);
                Some(Read::Bytes(length))
            }
            Err(Errno::AGAIN | Errno::INTR) => Some(Read::Nothing),
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => None,
            Err(_) => Some(Read::Broken),
        }
    }

    /// Gives a socket what is in it, as far as it takes that.
    ///
    /// # Errors
    /// When nobody takes it any more.
    pub(super) fn give(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while self.holds > 0 {
            let most = usize::try_from(self.holds).unwrap_or(usize::MAX);
            match pass(&self.from, &socket, most) {
                Ok(length) => {
                    let length = u64::try_from(length).unwrap_or(u64::MAX);
                    self.holds = self.holds.saturating_sub(length);
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn pass(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize, Errno> {
    splice(
        from,
        None,
        to,
        None,
        most,
        SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
    )
}
