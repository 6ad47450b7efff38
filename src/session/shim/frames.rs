//! Messages over a socket of this machine, and the window of a stream in them.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};

use serde::Serialize;

use super::LOCAL_WINDOW;
use crate::wire::frame::{self, FrameError};

/// So much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Sends messages, whole, one after the other, whichever thread they come from.
#[derive(Debug)]
pub struct Sender(Mutex<UnixStream>);

impl Sender {
    /// Over this socket.
    pub fn new(stream: UnixStream) -> Self {
        Self(Mutex::new(stream))
    }

    /// Sends one.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send<M: Serialize>(&self, message: &M) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).map_err(io::Error::other)?;
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&bytes)
    }

    /// Ends the socket in both directions.
    pub fn close(&self) {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _gone = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Receives messages.
#[derive(Debug)]
pub struct Receiver {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// Where in `bytes` the next message begins.
    at: usize,
}

impl Receiver {
    /// Over this socket.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next message's bytes; `None` when the other end is gone.
    ///
    /// # Errors
    /// When what came is no frame, or cannot be read.
    pub fn message(&mut self) -> io::Result<Option<&[u8]>> {
        let nonsense = |error: FrameError| io::Error::new(io::ErrorKind::InvalidData, error);
        let length = loop {
            let waiting = self.bytes.get(self.at..).unwrap_or_default();
            if let Some((message, _)) = frame::split(waiting).map_err(nonsense)? {
                break message.len();
            }
            self.bytes.drain(..self.at);
            self.at = 0;
            let held = self.bytes.len();
            self.bytes.resize(held.saturating_add(READ_BYTES), 0);
            let read = self
                .stream
                .read(self.bytes.get_mut(held..).unwrap_or_default());
            self.bytes
                .truncate(held.saturating_add(*read.as_ref().unwrap_or(&0)));
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let begin = self.at.saturating_add(frame::PREFIX);
        self.at = begin.saturating_add(length);
        Ok(self.bytes.get(begin..self.at))
    }
}

/// How far a stream's sender may go.
#[derive(Debug, Default)]
pub struct Window {
    state: Mutex<Acknowledged>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Acknowledged {
    offset: u64,
    is_closed: bool,
}

impl Window {
    /// Waits until bytes may follow those before `sent`, and gives how many; `None` when nobody takes
    /// them any more.
    pub fn room(&self, sent: u64) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.is_closed {
                return None;
            }
            let under_way = sent.saturating_sub(state.offset);
            match LOCAL_WINDOW.saturating_sub(under_way) {
                0 => {
                    state = self
                        .moved
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                room => return Some(usize::try_from(room).unwrap_or(usize::MAX)),
            }
        }
    }

    /// Everything before `offset` was taken.
    pub fn acknowledge(&self, offset: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.offset = state.offset.max(offset);
        drop(state);
        self.moved.notify_all();
    }

    /// What was taken.
    pub fn acknowledged(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.offset
    }

    /// Nobody takes anything any more.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        drop(state);
        self.moved.notify_all();
    }
}
