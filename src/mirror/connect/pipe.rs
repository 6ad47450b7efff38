//! Reading a pipe in the thread that wants its bytes: the kernel wakes that one, and not a thread of the
//! runtime first, which would cost a large tree a wake more for each packet of ssh.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::aborted;
use crate::mirror::stop::Stop;

/// The end of a pipe that bytes come from. It does not block.
pub(super) struct Pipe {
    from: OwnedFd,
    silence: Timespec,
    stop: Stop,
    /// Its other end is closed when it is to stop.
    until: OwnedFd,
    waiting: AbortHandle,
}

impl Pipe {
    /// # Errors
    /// When there are no more descriptors.
    pub(super) fn new(
        from: OwnedFd,
        silence: Duration,
        stop: &Stop,
        runtime: &Handle,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&from, true)?;
        let (until, open) = io::pipe()?;
        let told = stop.clone();
        let waiting = runtime.spawn(async move {
            told.stopped().await;
            drop(open);
        });
        Ok(Self {
            from,
            silence: Timespec {
                tv_sec: i64::try_from(silence.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(silence.subsec_nanos()),
            },
            stop: stop.clone(),
            until: until.into(),
            waiting: waiting.abort_handle(),
        })
    }

    /// Waits until there is something to read, or nothing will come any more.
    fn wait(&self) -> io::Result<()> {
        let mut both = [
            PollFd::new(&self.from, PollFlags::IN),
            PollFd::new(&self.until, PollFlags::IN),
        ];
        match poll(&mut both, Some(&self.silence)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.is_stopped() {
                return Err(aborted());
            }
            match rustix::io::read(&self.from, &mut *buffer) {
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::runtime::Runtime;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// What comes is read as it comes, and the end of it is one.
    #[test]
    fn a_pipe_is_read_to_its_end() {
        let runtime = Runtime::new().unwrap();
        let (from, mut into) = io::pipe().unwrap();
        let mut pipe = Pipe::new(from.into(), LONG, &Stop::default(), runtime.handle()).unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            pipe.read_to_end(&mut all).map(|_| all)
        });
        for part in [&b"one"[..], b" and ", b"another"] {
            into.write_all(part).unwrap();
        }
        drop(into);
        assert_eq!(reading.join().unwrap().unwrap(), b"one and another");
    }

    /// M-25: an end that says nothing is given up.
    #[test]
    fn m25_a_silent_pipe_is_given_up() {
        let runtime = Runtime::new().unwrap();
        let (from, _into) = io::pipe().unwrap();
        let short = Duration::from_millis(10);
        let mut pipe = Pipe::new(from.into(), short, &Stop::default(), runtime.handle()).unwrap();
        let silent = pipe.read(&mut [0; 8]).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    }

    /// A read that waits ends when it is told to, and no later one begins, whatever there is.
    #[test]
    fn a_read_of_a_pipe_can_be_ended() {
        let runtime = Runtime::new().unwrap();
        let (from, mut into) = io::pipe().unwrap();
        let stop = Stop::default();
        let mut pipe = Pipe::new(from.into(), LONG, &stop, runtime.handle()).unwrap();
        let reading = std::thread::spawn(move || {
            let first = pipe.read(&mut [0; 8]).unwrap_err().kind();
            (first, pipe)
        });
        stop.stop();
        let (first, mut pipe) = reading.join().unwrap();
        into.write_all(b"more").unwrap();
        let second = pipe.read(&mut [0; 8]).unwrap_err().kind();
        let aborted = io::ErrorKind::ConnectionAborted;
        assert_eq!((first, second), (aborted, aborted));
    }
}
