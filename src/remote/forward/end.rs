//! One end of a connection: a socket, the bytes that it has not taken yet, and what is watched.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, sockopt};

use super::bulk::{BULK_LEAST, Bulk};

/// What a read gave.
pub(super) enum Read {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other side sends no more.
    End,
    /// The connection is broken.
    Broken,
}

/// What epoll knows of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// Nothing yet.
    New,
    /// What it is to report.
    For(EventFlags),
    /// Taken out: a closed socket is reported again and again, wanted or not.
    Out,
}

/// How bytes for a socket come that nobody looks at.
#[derive(Debug)]
enum Unseen {
    /// There were none yet.
    None,
    /// Through a pipe.
    By(Bulk),
    /// As all others: there was no pipe, or this kernel's sockets do not go with pipes.
    Seen,
}

/// A connected socket, not blocking.
#[derive(Debug)]
pub(super) struct End {
    socket: OwnedFd,
    /// Bytes that the socket did not take, and how many of them it took since. While there are
    /// any, nothing more is read for it.
    unsent: Vec<u8>,
    sent: usize,
    /// Before those: nothing is taken here while others wait.
    unseen: Unseen,
    watched: Watched,
    /// The other side sends no more.
    pub(super) read_ended: bool,
    /// We send no more, or nobody takes it.
    pub(super) write_ended: bool,
}

impl End {
    /// A socket that does not block.
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            unsent: Vec::new(),
            sent: 0,
            unseen: Unseen::None,
            watched: Watched::New,
            read_ended: false,
            write_ended: false,
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Read {
        let read = match rustix::io::read(&self.socket, into) {
            Ok(0) => Read::End,
            Ok(length) => Read::Bytes(length),
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::Broken,
        };
        self.has_read(read)
    }

    fn has_read(&mut self, read: Read) -> Read {
        self.read_ended |= matches!(read, Read::End | Read::Broken);
        read
    }

    /// Takes up to `most` bytes of `other` that nobody has to look at, to be sent by
    /// [`Self::flush`]; only while [`Self::is_flushed`]. `None` when they have to be read.
    pub(super) fn take_unseen(&mut self, other: &mut Self, most: u64) -> Option<Read> {
        if most < BULK_LEAST || self.write_ended {
            return None;
        }
        if matches!(self.unseen, Unseen::None) {
            self.unseen = Bulk::new().map_or(Unseen::Seen, Unseen::By);
        }
        let Unseen::By(bulk) = &mut self.unseen else {
            return None;
        };
        if let Some(read) = bulk.take(&other.socket, most) {
            return Some(other.has_read(read));
        }
        self.unseen = Unseen::Seen;
        None
    }

    /// Whether everything was taken.
    pub(super) const fn is_flushed(&self) -> bool {
        let is_unseen_sent = match &self.unseen {
            Unseen::By(bulk) => bulk.is_empty(),
            Unseen::None | Unseen::Seen => true,
        };
        is_unseen_sent && self.unsent.is_empty()
    }

    /// Sends bytes after those that wait already; what the socket does not take waits.
    ///
    /// # Errors
    /// When nobody takes them any more.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let taken = if self.is_flushed() {
            // What nobody looks at is over for now: the pipe goes.
            if matches!(self.unseen, Unseen::By(_)) {
                self.unseen = Unseen::None;
            }
            self.send_now(bytes)?
        } else {
            0
        };
        self.unsent
            .extend_from_slice(bytes.get(taken..).unwrap_or_default());
        Ok(())
    }

    /// Sends what waits, as far as the socket takes it.
    ///
    /// # Errors
    /// When nobody takes it any more.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        if let Unseen::By(bulk) = &mut self.unseen {
            bulk.give(&self.socket)?;
            if !bulk.is_empty() {
                return Ok(());
            }
        }
        while self.sent < self.unsent.len() {
            let taken = self.send_now(self.unsent.get(self.sent..).unwrap_or_default())?;
            if taken == 0 {
                return Ok(());
            }
            self.sent += taken;
        }
        // The memory goes too: most connections are idle most of the time.
        self.unsent = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// Sends bytes, or forgets them when nobody takes them any more: an upstream that closes early
    /// may have answered before, and that is still to be read.
    pub(super) fn send_if_taken(&mut self, bytes: &[u8]) {
        if !self.write_ended && self.send(bytes).is_err() {
            self.give_up_writing();
        }
    }

    /// Sends what waits, or forgets it, as [`Self::send_if_taken`] does.
    pub(super) fn flush_if_taken(&mut self) {
        if !self.write_ended && self.flush().is_err() {
            self.give_up_writing();
        }
    }

    fn give_up_writing(&mut self) {
        self.write_ended = true;
        self.unseen = Unseen::None;
        self.unsent = Vec::new();
        self.sent = 0;
    }

    fn send_now(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            other => other,
        }
    }

    /// Tells the other side that nothing more comes.
    pub(super) fn end_writing(&mut self) {
        if !self.write_ended {
            self.write_ended = true;
            // One that is gone already needs no telling.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// Makes closing a TCP socket an end, where it was a reset. A unix socket knows no reset.
    pub(super) fn no_reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.socket, None)?)
    }

    /// Tells epoll what is wanted: to read, and to send what waits. With neither it reports a
    /// socket that closes, once: `closed` says that it just did.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn watch(
        &mut self,
        epoll: BorrowedFd<'_>,
        token: EventData,
        reads: bool,
        closed: bool,
    ) -> io::Result<()> {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, reads);
        wanted.set(EventFlags::OUT, !self.is_flushed());
        match self.watched {
            Watched::For(_) if closed && wanted.is_empty() => {
                epoll::delete(epoll, &self.socket)?;
                self.watched = Watched::Out;
                return Ok(());
            }
            Watched::Out if wanted.is_empty() => return Ok(()),
            Watched::For(watched) if watched == wanted => return Ok(()),
            Watched::For(_) => epoll::modify(epoll, &self.socket, token, wanted)?,
            Watched::New | Watched::Out => epoll::add(epoll, &self.socket, token, wanted)?,
        }
        self.watched = Watched::For(wanted);
        Ok(())
    }
}
