//! Getting to the other end: a directory of this machine, or one of a host over an ssh connection
//! of its own, so that a mirror's bytes do not stand in the way of an agent's.

mod pipe;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::Handle;

use self::pipe::Pipe;
use super::peer::{Input, Peer};
use super::stop::Stop;
use crate::report::Failure;
use crate::tree::limits::Limits;
use crate::tunnel::phase::Phase;
use crate::tunnel::transport::{Carrier, LinkError, Opened, PhaseWatch, Role, Transport};
use crate::wire::mirror::SILENCE_MS;

/// So long the other end may be silent, and so long it may take no byte.
const SILENCE: Duration = Duration::from_millis(SILENCE_MS);

/// A peer, and what lies below it.
pub struct Connected {
    /// The other end.
    pub peer: Peer,
    below: Below,
}

enum Below {
    Thread(std::thread::JoinHandle<()>),
    Ssh(Handle, Box<dyn Carrier>),
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::because("no thread can be had for the other end of a mirror", error)
}

impl Connected {
    /// Connects to a host, until `stop` is told.
    ///
    /// # Errors
    /// When there is no link; with whether it is of use to try again.
    pub fn over(
        transport: &dyn Transport,
        runtime: &Handle,
        limits: Limits,
        stop: &Stop,
    ) -> Result<Self, Box<LinkError>> {
        let opened = runtime.block_on(async {
            tokio::select! {
                opened = transport.open(Role::Mirror, &Unwatched) => opened,
                () = stop.stopped() => Err(LinkError {
                    phase: Phase::Connect,
                    failure: Failure::failed("interrupted"),
                    retry_after: None,
                }),
            }
        });
        let Opened {
            reader,
            pipe,
            writer,
            carrier,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                runtime.block_on(transport.settled());
                return Err(Box::new(error));
            }
        };
        let input: io::Result<Box<dyn Input>> = match pipe {
            Some(pipe) => Pipe::new(pipe, SILENCE, stop, runtime).map(buffered),
            None => Ok(buffered(Timed {
                runtime: runtime.clone(),
                silence: SILENCE,
                stop: stop.clone(),
                inner: reader,
            })),
        };
        let output = Timed {
            runtime: runtime.clone(),
            silence: SILENCE,
            stop: stop.clone(),
            inner: writer,
        };
        let peer = input.and_then(|input| {
            let peer = Peer::new(input, Box::new(output), limits, true);
            peer.kept_alive()
        });
        match peer {
            Ok(peer) => Ok(Self {
                peer,
                below: Below::Ssh(runtime.clone(), carrier),
            }),
            Err(error) => {
                runtime.block_on(carrier.close());
                Err(Box::new(LinkError {
                    phase: Phase::Attach,
                    failure: no_thread(&error),
                    retry_after: None,
                }))
            }
        }
    }

    /// Serves the other end in this process, for a mirror within one machine.
    ///
    /// # Errors
    /// When there are no sockets or threads.
    #[cfg(target_os = "linux")]
    pub fn here(limits: Limits, login: crate::remote::login::Login) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::because("a mirror cannot be served here", &error);
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        ours.set_read_timeout(Some(SILENCE)).map_err(cannot)?;
        ours.set_write_timeout(Some(SILENCE)).map_err(cannot)?;
        let (input, output) = (ours.try_clone().map_err(cannot)?, ours);
        let there = (theirs.try_clone().map_err(cannot)?, theirs);
        let thread = std::thread::Builder::new()
            .name("mirror".to_owned())
            .spawn(move || {
                let (input, output) = there;
                // What is wrong was told to the peer, which is in this process.
                let _told = crate::remote::mirror::carry_out(input.into(), output.into(), &login);
            })
            .map_err(cannot)?;
        let input = io::BufReader::with_capacity(READ_BYTES, input);
        Ok(Self {
            peer: Peer::new(Box::new(input), Box::new(output), limits, false)
                .kept_alive()
                .map_err(|error| no_thread(&error))?,
            below: Below::Thread(thread),
        })
    }

    /// Leaves the other end; returns when nothing of it runs here any more.
    pub fn close(self) {
        drop(self.peer);
        match self.below {
            Below::Thread(thread) => {
                // It has no result, and a panic in it was told where it happened.
                let _ended = thread.join();
            }
            Below::Ssh(runtime, carrier) => runtime.block_on(carrier.close()),
        }
    }
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn Input> {
    Box::new(io::BufReader::with_capacity(READ_BYTES, input))
}

/// So much is read ahead; what a frame needs beyond it comes to its place at once.
const READ_BYTES: usize = 64 * 1024;

struct Unwatched;

impl PhaseWatch for Unwatched {
    fn begin(&self, phase: Phase) {
        tracing::debug!(%phase, "mirror");
    }
}

/// A channel of ssh, for code that blocks, with a limit of our own on each read and write.
struct Timed<T> {
    runtime: Handle,
    silence: Duration,
    stop: Stop,
    inner: T,
}

/// Does one thing on a channel, within its time and until it is to stop.
async fn timed<T>(
    silence: Duration,
    stop: &Stop,
    doing: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::select! {
        done = tokio::time::timeout(silence, doing) => done?,
        () = stop.stopped() => Err(aborted()),
    }
}

/// Of no kind that a caller tries again.
fn aborted() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "interrupted")
}

impl<T: AsyncRead + Unpin> Read for Timed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let reading = timed(self.silence, &self.stop, self.inner.read(buffer));
        self.runtime.block_on(reading)
    }
}

impl<T: AsyncWrite + Unpin> Write for Timed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let writing = timed(self.silence, &self.stop, self.inner.write(bytes));
        self.runtime.block_on(writing)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushing = timed(self.silence, &self.stop, self.inner.flush());
        self.runtime.block_on(flushing)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;
    use tokio::runtime::Runtime;

    use super::*;

    /// Our end of a channel, and the other one.
    fn channel(stop: Stop, silence: Duration) -> (Runtime, Timed<DuplexStream>, DuplexStream) {
        let runtime = Runtime::new().unwrap();
        let (there, inner) = tokio::io::duplex(8);
        let timed = Timed {
            runtime: runtime.handle().clone(),
            silence,
            stop,
            inner,
        };
        (runtime, timed, there)
    }

    /// An end that says nothing and takes nothing is given up.
    #[test]
    fn m25_silence_is_measured_here() {
        let (_runtime, mut timed, _there) = channel(Stop::default(), Duration::from_millis(10));
        let read = timed.read(&mut [0; 8]).unwrap_err();
        assert_eq!(read.kind(), io::ErrorKind::TimedOut);
        let written = timed.write_all(&[0; 64]).unwrap_err();
        assert_eq!(written.kind(), io::ErrorKind::TimedOut);
    }

    /// A read that waits ends when it is told to, and no later one begins.
    #[test]
    fn a_read_that_waits_can_be_ended() {
        let stop = Stop::default();
        let (_runtime, mut timed, _there) = channel(stop.clone(), SILENCE);
        let reading = std::thread::spawn(move || {
            let first = timed.read(&mut [0; 8]).unwrap_err().kind();
            (first, timed.read_exact(&mut [0; 8]).unwrap_err().kind())
        });
        stop.stop();
        let aborted = io::ErrorKind::ConnectionAborted;
        assert_eq!(reading.join().unwrap(), (aborted, aborted));
        assert!(stop.is_stopped());
    }
}
