//! The way of a program's standard input: from frames to its pipe, by way of a spool when the
//! program is slower.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::spool::Spool;
use super::terminal;

/// Bytes that are read back from the spool at once.
const CHUNK: usize = 64 * 1024;

/// A program's standard input.
#[derive(Debug)]
pub struct Stdin {
    /// Our end; shared with the output when it is a terminal.
    sink: Option<Arc<OwnedFd>>,
    is_terminal: bool,
    spool: Spool,
    /// What the disk did not take, behind what is in the spool; within the window.
    overflow: VecDeque<u8>,
    /// Bytes that the program's pipe took.
    taken: u64,
    /// The stream's length, once that is known.
    end: Option<u64>,
}

impl Stdin {
    /// Of a program whose pipe, or terminal, this is; `None` when it has none.
    pub fn new(sink: Option<Arc<OwnedFd>>, is_terminal: bool) -> Self {
        Self {
            sink,
            is_terminal,
            spool: Spool::default(),
            overflow: VecDeque::new(),
            taken: 0,
            end: None,
        }
    }

    /// Bytes that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether nothing is taken any more.
    pub fn is_closed(&self) -> bool {
        self.sink.is_none()
    }

    /// The pipe, and what to wait for: room when there is something to write, else its reader's
    /// end.
    pub fn wanted(&self) -> Option<(&OwnedFd, PollFlags)> {
        let sink = self.sink.as_deref()?;
        if self.is_waiting() {
            return Some((sink, PollFlags::OUT));
        }
        // A terminal's end is its output's.
        (!self.is_terminal).then_some((sink, PollFlags::empty()))
    }

    fn is_waiting(&self) -> bool {
        self.spool.length() > 0 || !self.overflow.is_empty() || self.end_is_due()
    }

    fn end_is_due(&self) -> bool {
        self.end == Some(self.taken)
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, folder: &OwnedFd, bytes: &[u8]) {
        let mut rest = bytes;
        if !self.is_waiting() {
            let written = self.write(bytes);
            rest = bytes.get(written..).unwrap_or_default();
        }
        if rest.is_empty() || self.sink.is_none() {
            return;
        }
        if self.overflow.is_empty() {
            if self.spool.length() == 0 {
                self.spool.skip_to(self.taken);
            }
            if self.spool.push(folder, rest).is_ok() {
                return;
            }
        }
        self.overflow.extend(rest);
    }

    /// The stream ends here.
    pub fn finish(&mut self, length: u64) {
        self.end = Some(length);
        self.finish_if_due();
    }

    /// Writes what waits, as much as the pipe takes; closes it when nothing waits, for then it is
    /// its reader's end that was waited for.
    pub fn pump(&mut self) {
        if !self.is_waiting() && !self.is_terminal {
            self.close();
            return;
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            let part = match self.spool.read(self.spool.start(), &mut buffer) {
                Ok(0) => self.overflow.as_slices().0,
                Ok(length) => buffer.get(..length).unwrap_or_default(),
                Err(error) => {
                    // Bytes are lost: the program must not take a shorter stream for a whole one.
                    super::tell(&format!("standard input cannot be read back: {error}"));
                    self.close();
                    return;
                }
            };
            if part.is_empty() {
                break;
            }
            let part = part.to_vec();
            let written = self.write(&part);
            let from_spool = self.spool.length() > 0;
            if from_spool {
                self.spool.release(self.taken);
            } else {
                self.overflow.drain(..written.min(self.overflow.len()));
            }
            if written < part.len() {
                break;
            }
        }
        self.finish_if_due();
    }

    /// Nothing more reaches the program.
    pub fn close(&mut self) {
        self.sink = None;
        self.spool = Spool::default();
        self.overflow = VecDeque::new();
    }

    fn finish_if_due(&mut self) {
        if !self.end_is_due() {
            return;
        }
        if !self.is_terminal {
            self.close();
            return;
        }
        let end = self.sink.as_ref().and_then(terminal::end_of_input);
        // A terminal that reads no lines has no end of input; it stays open.
        match (end, &self.sink) {
            (Some(character), Some(sink)) => {
                if rustix::io::write(sink, &[character]) != Err(Errno::AGAIN) {
                    self.end = None;
                }
            }
            _ => self.end = None,
        }
    }

    /// Writes to the pipe; gives how much it took.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while let (Some(sink), Some(rest)) = (&self.sink, bytes.get(written..)) {
            if rest.is_empty() {
                break;
            }
            match rustix::io::write(sink, rest) {
                Ok(length) => {
                    written += length;
                    self.taken += u64::try_from(length).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The program closed it, or is gone.
                Err(_) => self.close(),
            }
        }
        written
    }
}

/// Makes a pipe: the program's end and ours, which never waits.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((theirs, ours))
}
