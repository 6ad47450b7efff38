//! The dumb part of a link: bytes between the ssh channel and the supervisor's socket.
//!
//! Neither side waits for the other, and an ssh server that reads no more cannot hold this process
//! for ever: what it inherited is never made non-blocking (others may share it), but opened again
//! or written without waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use super::clock::{Moment, patience};

/// Bytes that are held in each direction.
const BUFFER: usize = 64 * 1024;
/// How long the last bytes may take once the supervisor has closed the link.
const LAST_BYTES_LIMIT: Duration = Duration::from_secs(5);

/// Where bytes go without waiting.
enum Sink<'a> {
    Socket(BorrowedFd<'a>),
    /// Opened by us, non-blocking.
    File(OwnedFd),
    /// What we cannot open again, as another user's pipe: written in parts that a pipe with any
    /// room takes whole.
    Shared(BorrowedFd<'a>),
}

impl Sink<'_> {
    fn stdout() -> io::Result<Self> {
        let stdout = rustix::stdio::stdout();
        let kind = FileType::from_raw_mode(rustix::fs::fstat(stdout)?.st_mode);
        if kind == FileType::Socket {
            return Ok(Self::Socket(stdout));
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
            Ok(opened) => Ok(Self::File(opened)),
            Err(_) => Ok(Self::Shared(stdout)),
        }
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Socket(socket) => {
                rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            Self::File(file) => rustix::io::write(file, bytes),
            Self::Shared(pipe) => {
                let part = bytes.get(..rustix::pipe::PIPE_BUF).unwrap_or(bytes);
                rustix::io::write(pipe, part)
            }
        }
    }
}

impl AsFd for Sink<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::File(file) => file.as_fd(),
            Self::Shared(pipe) => pipe.as_fd(),
        }
    }
}

/// One direction: what was read and not yet written.
struct Direction {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// No more will be read.
    over: bool,
}

impl Direction {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            over: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn wants_to_read(&self) -> bool {
        self.is_empty() && !self.over
    }

    fn read(&mut self, from: impl AsFd) {
        match rustix::io::read(from, &mut *self.buffer) {
            Ok(0) => self.over = true,
            Ok(length) => (self.start, self.end) = (0, length),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The other end was reset: the same as its end.
            Err(_) => self.over = true,
        }
    }

    fn write(&mut self, to: &Sink<'_>) -> io::Result<()> {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        match to.write(bytes) {
            Ok(length) => self.start += length,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Carries bytes until the supervisor closes the link or nobody reads any more.
///
/// # Errors
/// When a side breaks.
pub fn run(supervisor: &UnixStream) -> io::Result<()> {
    let stdout = Sink::stdout()?;
    let mut carrier = Carrier {
        supervisor,
        socket: Sink::Socket(supervisor.as_fd()),
        stdout,
        up: Direction::new(),
        down: Direction::new(),
        told_end: false,
        give_up: None,
    };
    while carrier.step()? {}
    Ok(())
}

struct Carrier<'a> {
    supervisor: &'a UnixStream,
    socket: Sink<'a>,
    stdout: Sink<'a>,
    /// To the supervisor.
    up: Direction,
    /// To the controller.
    down: Direction,
    told_end: bool,
    /// Once the supervisor has hung up: until when something more must be taken.
    give_up: Option<Moment>,
}

impl Carrier<'_> {
    /// Waits for something and does it; gives whether there is more to do.
    fn step(&mut self) -> io::Result<bool> {
        if self.up.over && self.up.is_empty() && !self.told_end {
            self.told_end = true;
            // It may have gone meanwhile; then reading says so.
            let _gone = rustix::net::shutdown(self.supervisor, Shutdown::Write);
        }
        let late = self.give_up.is_some_and(|until| Moment::now() >= until);
        if late || (self.down.over && self.down.is_empty()) {
            return Ok(false);
        }
        let [from, to, socket] = self.wait()?;
        let broken = PollFlags::ERR | PollFlags::HUP;
        if from.intersects(PollFlags::IN | broken) {
            self.up.read(rustix::stdio::stdin());
        }
        if self.down.wants_to_read() && socket.intersects(PollFlags::IN | broken) {
            self.down.read(self.supervisor);
        }
        // The supervisor may close while we write to it; what it said last is still read.
        if !self.up.is_empty()
            && socket.intersects(PollFlags::OUT | broken)
            && self.up.write(&self.socket).is_err()
        {
            (self.up.start, self.up.end, self.up.over) = (0, 0, true);
        }
        if socket.intersects(broken) || self.down.over {
            let until = Moment::now().after(LAST_BYTES_LIMIT);
            self.give_up.get_or_insert(until);
        }
        if to.intersects(broken) {
            return Ok(false);
        }
        if !self.down.is_empty() && to.contains(PollFlags::OUT) {
            self.down.write(&self.stdout)?;
            self.give_up = self.give_up.map(|_| Moment::now().after(LAST_BYTES_LIMIT));
        }
        Ok(true)
    }

    /// What stdin, stdout and the supervisor's socket are ready for.
    fn wait(&self) -> io::Result<[PollFlags; 3]> {
        let stdin = rustix::stdio::stdin();
        let when = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
        let reads = self.up.wants_to_read();
        let socket = when(self.down.wants_to_read(), PollFlags::IN)
            | when(!self.up.is_empty(), PollFlags::OUT);
        // What hung up is reported whether it is wanted or not: it is asked for only when it helps.
        let listens = self.give_up.is_none() || !socket.is_empty();
        let mut polled = vec![PollFd::new(
            &self.stdout,
            when(!self.down.is_empty(), PollFlags::OUT),
        )];
        if reads {
            polled.push(PollFd::new(&stdin, PollFlags::IN));
        }
        if listens {
            polled.push(PollFd::new(self.supervisor, socket));
        }
        let wait = self.give_up.map(|until| patience(Moment::now(), until));
        match poll(&mut polled, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut seen = polled.iter().map(PollFd::revents);
        let mut next = |asked: bool| asked.then(|| seen.next()).flatten();
        let to = next(true).unwrap_or(PollFlags::empty());
        let from = next(reads).unwrap_or(PollFlags::empty());
        let socket = next(listens).unwrap_or(PollFlags::empty());
        Ok([from, to, socket])
    }
}
