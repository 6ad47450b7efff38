//! An output of a remote program on its way: received, kept until it is written here.

use std::io::{ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// So much is written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// A stream's bytes from the first that is not written yet.
#[derive(Debug)]
pub(super) struct Outlet {
    state: Mutex<State>,
    more: Condvar,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    received: u64,
    passed: u64,
    kept: BytesMut,
    /// Nothing more comes.
    has_ended: bool,
    /// The sink takes no more; what comes is dropped.
    is_broken: bool,
}

/// Bytes that do not follow what was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap;

impl Outlet {
    /// An empty stream; `wake` is told when something was written.
    pub(super) fn new(wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            more: Condvar::new(),
            wake,
        })
    }

    /// Takes bytes that stand at `offset`; what was received before is passed over.
    ///
    /// # Errors
    /// When bytes are missing before them.
    pub(super) fn receive(&self, offset: u64, bytes: &[u8]) -> Result<(), Gap> {
        let mut state = self.lock();
        let known = state.received.checked_sub(offset).ok_or(Gap)?;
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let new = bytes.get(known..).unwrap_or_default();
        let count = u64::try_from(new.len()).unwrap_or(u64::MAX);
        state.received = state.received.saturating_add(count);
        if state.is_broken {
            state.passed = state.received;
            drop(state);
            self.wake.notify_one();
        } else {
            state.kept.extend_from_slice(new);
            drop(state);
            self.more.notify_one();
        }
        Ok(())
    }

    /// Nothing more comes; the thread ends when all is written.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.more.notify_one();
    }

    /// Bytes that came.
    pub(super) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Bytes that were written, or dropped because the sink takes no more.
    pub(super) fn passed(&self) -> u64 {
        self.lock().passed
    }

    /// Whether everything that came is passed on.
    pub(super) fn is_dry(&self) -> bool {
        let state = self.lock();
        state.passed == state.received
    }

    /// Whether the sink takes no more.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// Writes everything to `sink` from a thread of its own.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn write_to(
        self: &Arc<Self>,
        mut sink: Box<dyn Write + Send>,
    ) -> std::io::Result<()> {
        let outlet = Arc::clone(self);
        let _ends_with_the_stream =
            thread::Builder::new()
                .name("output".to_owned())
                .spawn(move || {
                    while let Some(bytes) = outlet.next() {
                        let written = sink.write_all(&bytes).and_then(|()| sink.flush());
                        // A reader that left says all there is to say; a full disk does not.
                        if let Err(error) = &written
                            && error.kind() != ErrorKind::BrokenPipe
                        {
                            tracing::warn!(%error, "a program's output cannot be written here");
                        }
                        outlet.written(bytes.len(), written.is_err());
                    }
                })?;
        Ok(())
    }

    fn next(&self) -> Option<Bytes> {
        let mut state = self.lock();
        loop {
            if state.is_broken {
                return None;
            }
            if !state.kept.is_empty() {
                let count = state.kept.len().min(WRITE_BYTES);
                return Some(state.kept.split_to(count).freeze());
            }
            if state.has_ended {
                return None;
            }
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn written(&self, count: usize, failed: bool) {
        let mut state = self.lock();
        if failed {
            state.is_broken = true;
            state.kept = BytesMut::new();
            state.passed = state.received;
        } else {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            state.passed = state.passed.saturating_add(count);
        }
        drop(state);
        self.wake.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;

    use super::*;

    fn outlet() -> Arc<Outlet> {
        Outlet::new(Arc::new(Notify::new()))
    }

    struct Sink(mpsc::Sender<Vec<u8>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .send(bytes.to_vec())
                .map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a new link repeats is written once; what is missing is noticed.
    #[test]
    fn what_comes_twice_is_written_once() {
        let outlet = outlet();
        outlet.receive(0, b"hello ").unwrap();
        outlet.receive(0, b"hello ").unwrap();
        outlet.receive(3, b"lo world").unwrap();
        assert_eq!(outlet.receive(12, b"!"), Err(Gap));
        let (sender, written) = mpsc::channel();
        outlet.end();
        outlet.write_to(Box::new(Sink(sender))).unwrap();
        let all: Vec<u8> = written.iter().flatten().collect();
        assert_eq!(all, b"hello world");
        assert_eq!(outlet.passed(), 11);
    }

    /// A reader that left does not hold the program up: the rest is dropped.
    #[test]
    fn a_broken_sink_drops_what_follows() {
        let outlet = outlet();
        let (sender, written) = mpsc::channel();
        drop(written);
        outlet.receive(0, b"one").unwrap();
        outlet.write_to(Box::new(Sink(sender))).unwrap();
        while !outlet.is_broken() {
            thread::yield_now();
        }
        outlet.receive(3, b"two").unwrap();
        assert_eq!(outlet.passed(), 6);
        assert!(outlet.is_dry());
    }
}
