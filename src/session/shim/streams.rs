//! A shim's streams on the session's side: what its program reads, and where its outputs go.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::frames::{Sender, Window};
use super::{ONLY, PART};
use crate::session::carry::{Rolling, Watch};
use crate::wire::link::{FromHost, OutputKind};

/// What the shim read, on its way to the program; looked through for the credential.
pub(super) struct StdinSource {
    pub(super) chunks: mpsc::Receiver<Vec<u8>>,
    pub(super) sender: Arc<Sender>,
    pub(super) watch: Arc<Watch>,
    pub(super) rolling: Rolling,
    /// Told when the credential was found.
    pub(super) found: Box<dyn Fn() + Send>,
    pub(super) chunk: Vec<u8>,
    /// Where in `chunk` the next byte stands.
    pub(super) at: usize,
    pub(super) taken: u64,
    pub(super) acknowledged: Arc<AtomicU64>,
}

impl StdinSource {
    /// Takes the next chunk; `false` at the end of the stream.
    fn refill(&mut self) -> io::Result<bool> {
        let Ok(chunk) = self.chunks.recv() else {
            return Ok(false);
        };
        if self.rolling.finds(&self.watch, &chunk) {
            (self.found)();
            return Err(io::Error::other("the credential is in standard input"));
        }
        self.chunk = chunk;
        self.at = 0;
        Ok(true)
    }
}

impl Read for StdinSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() && !self.refill()? {
            return Ok(0);
        }
        let count = self.chunk.get(self.at..).unwrap_or_default().read(buffer)?;
        self.at = self.at.saturating_add(count);
        if self.at == self.chunk.len() {
            let length = u64::try_from(self.chunk.len()).unwrap_or(u64::MAX);
            self.taken = self.taken.saturating_add(length);
            self.acknowledged.store(self.taken, Ordering::Release);
            // A shim that is gone is noticed by whoever reads its messages.
            let _gone = self.sender.send(&FromHost::StdinTaken {
                exec: ONLY,
                offset: self.taken,
            });
        }
        Ok(count)
    }
}

/// When the reader of standard input has gone, the shim learns that nothing more is read.
impl Drop for StdinSource {
    fn drop(&mut self) {
        let _gone = self.sender.send(&FromHost::StdinClosed { exec: ONLY });
    }
}

/// Where an output of the program goes: to the shim.
pub(super) struct OutputSink {
    pub(super) output: OutputKind,
    pub(super) sender: Arc<Sender>,
    pub(super) window: Arc<Window>,
    pub(super) sent: Arc<AtomicU64>,
}

impl Write for OutputSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let offset = self.sent.load(Ordering::Acquire);
        let room = self
            .window
            .room(offset)
            .ok_or(io::ErrorKind::BrokenPipe)?
            .min(PART);
        let bytes = bytes.get(..room).unwrap_or(bytes);
        self.sender.send(&FromHost::Output {
            exec: ONLY,
            output: self.output,
            offset,
            bytes: bytes.into(),
        })?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.sent
            .store(offset.saturating_add(length), Ordering::Release);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
