//! One link at the supervisor: frames in and out of its socket, and its heartbeat.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::wire::frame::{self, FRAME_MAX, FrameError};
use crate::wire::link::{FromHost, HEARTBEAT_MS, Opening, SILENCE_MS};

use super::clock::Moment;

/// Bytes that are read at once.
const READ: usize = 256 * 1024;
/// Outputs are put in frames while less than this waits to be written.
const OUT_FULL: usize = 512 * 1024;
/// Who lets so much wait and goes on asking does not read.
const OUT_MAX: usize = 8 * 1024 * 1024;
/// How long the last message of a link may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection of an `attach` process.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Bytes of `outbox` that were written.
    written: usize,
    /// What opened it; `None` until it has.
    pub opening: Option<Opening>,
    /// Whether the controller has said what it has.
    pub attached: bool,
    /// No more is read; it is closed when all is written, or then.
    closing: Option<Moment>,
    heard: Moment,
    pinged: Moment,
    pings: u64,
}

/// What reading a link brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// Bytes, or none yet.
    Bytes,
    /// Its end.
    End,
}

impl Link {
    /// A connection that has just come.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let now = Moment::now();
        Ok(Self {
            socket,
            inbox: Vec::new(),
            outbox: Vec::new(),
            written: 0,
            opening: None,
            attached: false,
            closing: None,
            heard: now,
            pinged: now,
            pings: 0,
        })
    }

    /// Its number; 0 before it has opened.
    pub fn number(&self) -> u64 {
        self.opening.as_ref().map_or(0, |opening| opening.link)
    }

    /// Reads what is there.
    pub fn read(&mut self) -> Came {
        let mut buffer = vec![0; READ];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Came::End,
                Ok(length) => {
                    self.heard = Moment::now();
                    let part = buffer.get(..length).unwrap_or_default();
                    self.inbox.extend_from_slice(part);
                    return Came::Bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Came::Bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Came::End,
            }
        }
    }

    /// What came and was not looked at, to be given back by [`Self::put_back`].
    pub fn take_inbox(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox)
    }

    /// Keeps what is behind the first `done` bytes.
    pub fn put_back(&mut self, mut inbox: Vec<u8>, done: usize) {
        inbox.drain(..done.min(inbox.len()));
        // One long frame must not hold its room for ever.
        if inbox.is_empty() && inbox.capacity() > 2 * READ {
            inbox = Vec::new();
        }
        debug_assert!(inbox.len() <= FRAME_MAX + READ + 4, "a frame at most");
        self.inbox = inbox;
    }

    /// Queues a message.
    ///
    /// # Errors
    /// When it fits no frame, or the other side does not read.
    pub fn send(&mut self, message: &FromHost<'_>) -> Result<(), FrameError> {
        if self.outbox.len() > OUT_MAX {
            return Err(FrameError::TooLong(self.outbox.len()));
        }
        frame::encode(message, &mut self.outbox)
    }

    /// Whether outputs may be queued.
    pub fn has_room(&self) -> bool {
        self.outbox.len() - self.written < OUT_FULL
    }

    /// Whether something waits to be written.
    pub fn is_waiting(&self) -> bool {
        self.written < self.outbox.len()
    }

    /// Writes what waits, as much as the socket takes.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn write(&mut self) -> io::Result<()> {
        while let Some(rest) = self
            .outbox
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match (&self.socket).write(rest) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.written == self.outbox.len() {
            self.outbox.clear();
            self.outbox.shrink_to(2 * OUT_FULL);
            self.written = 0;
        } else if self.written > OUT_FULL {
            self.outbox.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    /// Sends a last message: nothing more is read or sent.
    pub fn say_last(&mut self, message: &FromHost<'_>) {
        if self.closing.is_none() {
            // One that cannot be queued is not read either.
            let _unread = self.send(message);
            self.closing = Some(Moment::now().after(FAREWELL));
        }
    }

    /// What to wait for.
    pub fn wanted(&self) -> PollFlags {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.closing.is_none());
        wanted.set(PollFlags::OUT, self.is_waiting());
        wanted
    }

    /// It is of no use any more.
    pub fn finish(&mut self) {
        self.outbox.clear();
        self.written = 0;
        self.closing = Some(Moment::now());
    }

    /// Whether its last message was queued.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether it is to be closed now.
    pub fn is_done(&self, now: Moment) -> bool {
        self.closing
            .is_some_and(|until| !self.is_waiting() || now >= until)
    }

    /// Whether it was silent for too long.
    pub fn is_silent(&self, now: Moment) -> bool {
        now.since(self.heard) >= Duration::from_millis(SILENCE_MS)
    }

    /// Sends a heartbeat when one is due.
    pub fn beat(&mut self, now: Moment) {
        if now.since(self.pinged) < Duration::from_millis(HEARTBEAT_MS) {
            return;
        }
        self.pinged = now;
        // Nothing comes before the answer to the first message, or behind the last.
        if !self.attached || self.is_closing() {
            return;
        }
        self.pings += 1;
        let ping = FromHost::Ping(self.pings);
        // Who does not read is found silent.
        let _unread = self.send(&ping);
    }

    /// When something is to be done without any news.
    pub fn next(&self) -> Moment {
        let beat = self.pinged.after(Duration::from_millis(HEARTBEAT_MS));
        self.closing.map_or(beat, |until| until.min(beat))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
