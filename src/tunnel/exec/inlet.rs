//! The standard input of a remote program on its way: read here, sent, kept until the host has it.

use std::io::{ErrorKind, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use bytes::{Buf as _, BytesMut};
use tokio::sync::Notify;

use crate::wire::link::WINDOW;

/// So much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// A stream's bytes from the first that the host has not taken.
#[derive(Debug)]
pub(super) struct Inlet {
    state: Mutex<State>,
    room: Condvar,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// Where `kept` begins.
    taken: u64,
    kept: BytesMut,
    has_ended: bool,
    /// The program reads no more.
    is_closed: bool,
}

impl State {
    fn length(&self) -> u64 {
        self.taken
            .saturating_add(u64::try_from(self.kept.len()).unwrap_or(u64::MAX))
    }
}

impl Inlet {
    /// An empty stream; `wake` is told of every change that the link should know.
    pub(super) fn new(wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            room: Condvar::new(),
            wake,
        })
    }

    /// Adds bytes, waiting until there is room within [`WINDOW`]; `false` when the program reads no
    /// more.
    pub(super) fn push(&self, mut bytes: &[u8]) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return false;
            }
            let room = WINDOW.saturating_sub(state.length().saturating_sub(state.taken));
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if !now.is_empty() {
                state.kept.extend_from_slice(now);
                self.wake.notify_one();
            }
            bytes = later;
            if bytes.is_empty() {
                return true;
            }
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The stream ends here.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.wake.notify_one();
    }

    /// The host has everything before `offset`; `false` when that was never sent.
    pub(super) fn taken(&self, offset: u64) -> bool {
        let mut state = self.lock();
        if offset > state.length() {
            return false;
        }
        let count = offset.saturating_sub(state.taken);
        state
            .kept
            .advance(usize::try_from(count).unwrap_or(usize::MAX));
        state.taken = state.taken.max(offset);
        drop(state);
        self.room.notify_all();
        true
    }

    /// The program reads no more: what is kept and what comes goes nowhere.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.kept = BytesMut::new();
        drop(state);
        self.room.notify_all();
    }

    /// Up to `most` bytes that begin at `offset`, put behind what is in `out`; gives how many.
    pub(super) fn copy_from(&self, offset: u64, most: usize, out: &mut Vec<u8>) -> usize {
        let state = self.lock();
        if state.is_closed {
            return 0;
        }
        let begin = usize::try_from(offset.saturating_sub(state.taken)).unwrap_or(usize::MAX);
        let bytes = state.kept.get(begin..).unwrap_or_default();
        let bytes = bytes.get(..most).unwrap_or(bytes);
        out.extend_from_slice(bytes);
        bytes.len()
    }

    /// The stream's length, when all of it is known and stands before `offset`.
    pub(super) fn end_at(&self, offset: u64) -> Option<u64> {
        let state = self.lock();
        let length = state.length();
        (state.has_ended && !state.is_closed && offset >= length).then_some(length)
    }

    /// Reads `source` to its end from a thread of its own. The thread may outlive the program: a
    /// terminal's read ends only when somebody types.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn read_from(
        self: &Arc<Self>,
        mut source: Box<dyn Read + Send>,
    ) -> std::io::Result<()> {
        let inlet = Arc::clone(self);
        let _detached = thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || {
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    match source.read(&mut buffer) {
                        // A terminal that is gone reads as an error; nothing follows either way.
                        Ok(0) => break,
                        Err(error) if error.kind() != ErrorKind::Interrupted => break,
                        Err(_) => {}
                        Ok(count) => {
                            if !inlet.push(buffer.get(..count).unwrap_or_default()) {
                                return;
                            }
                        }
                    }
                }
                inlet.end();
            })?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inlet() -> Arc<Inlet> {
        Inlet::new(Arc::new(Notify::new()))
    }

    fn copy(inlet: &Inlet, offset: u64, most: usize) -> Vec<u8> {
        let mut out = Vec::new();
        inlet.copy_from(offset, most, &mut out);
        out
    }

    /// Bytes are there again until the host has taken them, so that a new link can repeat them.
    #[test]
    fn bytes_are_kept_until_they_are_taken() {
        let inlet = inlet();
        assert!(inlet.push(b"hello world"));
        assert_eq!(copy(&inlet, 0, 5), b"hello");
        assert_eq!(copy(&inlet, 0, 100), b"hello world");
        assert!(inlet.taken(6));
        assert_eq!(copy(&inlet, 6, 100), b"world");
        assert!(inlet.taken(6), "the second time as the first");
        assert!(!inlet.taken(12), "what was never sent cannot be taken");
        assert_eq!(inlet.end_at(11), None);
        inlet.end();
        assert_eq!(inlet.end_at(10), None);
        assert_eq!(inlet.end_at(11), Some(11));
    }

    /// The reader stops at the window and goes on when the host has taken something.
    #[test]
    fn a_full_window_stops_the_reader() {
        let inlet = inlet();
        let window = usize::try_from(WINDOW).unwrap();
        let source = std::io::Cursor::new(vec![7; window + 10]);
        inlet.read_from(Box::new(source)).unwrap();
        let mut seen = 0;
        while seen < window {
            seen = copy(&inlet, 0, usize::MAX).len();
            thread::yield_now();
        }
        assert_eq!(inlet.end_at(WINDOW), None);
        assert!(inlet.taken(10));
        while inlet.end_at(WINDOW + 10).is_none() {
            thread::yield_now();
        }
        assert_eq!(copy(&inlet, 10, usize::MAX).len(), window);
    }

    /// A program that closed its input lets a waiting reader go.
    #[test]
    fn a_closed_stream_takes_nothing() {
        let inlet = inlet();
        assert!(inlet.push(&vec![0; usize::try_from(WINDOW).unwrap()]));
        let waiting = {
            let inlet = Arc::clone(&inlet);
            thread::spawn(move || inlet.push(b"more"))
        };
        inlet.close();
        assert!(!waiting.join().unwrap());
        assert_eq!(copy(&inlet, 0, 10), b"");
        inlet.end();
        assert_eq!(inlet.end_at(WINDOW), None, "nobody is told of its end");
    }
}
