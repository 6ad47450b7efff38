//! The way from the rsync here to the one at a host: a connection of its own, and a socket that
//! leads to it.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::arguments::{self, HOST};
use super::version::Version;
use super::{Moved, Rsync, RsyncError, Where};
use crate::tunnel::phase::Phase;
use crate::tunnel::transport::{Opened, PhaseWatch, Role, Transport};
use crate::wire::bytes::ByteString;
use crate::wire::frame::{self, PREFIX};
use crate::wire::rsync::{FromRsync, ToRsync};

/// So long nothing may pass, by our own clock and by rsync's: twice as long as labproxy's own ends
/// may be silent, for they say that they work while they read a large file, and rsync does not.
pub(super) const SILENCE: Duration = Duration::from_mins(1);
/// How long the rsync here may take to ask for its connection: it only starts.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How long the host may take to tell its rsync's version.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How often the time is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much passes at once.
const PART: usize = 256 * 1024;
/// The socket in its directory.
const SOCKET: &str = "s";

/// The way to a host's rsync.
pub(super) struct Way {
    transport: Arc<dyn Transport>,
    /// The directory that is made for a socket.
    place: PathBuf,
    /// A connection whose rsync may be used, and has no order yet.
    ready: Option<Opened>,
}

/// What is to be moved.
pub(super) struct Order<'a> {
    /// The directory here.
    pub(super) here: &'a Path,
    /// The directory there.
    pub(super) there: &'a Path,
    /// In which direction.
    pub(super) direction: Direction<'a>,
    /// The files, as rsync reads them.
    pub(super) list: Vec<u8>,
    /// Most bytes that may come from the host.
    pub(super) most: u64,
    /// Hears how many bytes went and came.
    pub(super) passed: &'a (dyn Fn(u64, u64) + Sync),
}

/// From where to where.
#[derive(Clone, Copy)]
pub(super) enum Direction<'a> {
    /// From there to here.
    Pull,
    /// From here to there, where this directory has older versions.
    Push(&'a Path),
}

impl Rsync {
    /// Has rsync move files between the two ends.
    pub(super) fn carry(&mut self, order: Order<'_>) -> Result<Moved, RsyncError> {
        let runtime = self.runtime.clone();
        let Some(mut way) = self.way.take() else {
            return runtime.block_on(self.carry_here(order));
        };
        let moved = runtime.block_on(way.carry(self, order));
        self.way = Some(way);
        moved
    }

    /// Both directories are of this machine.
    async fn carry_here(&self, order: Order<'_>) -> Result<Moved, RsyncError> {
        let there = arguments::Place::Local(order.there);
        let argv = order.direction.argv(there);
        let mut running = self.start(&argv, order.here)?;
        running.end(order.list).await?.moved()
    }
}

impl Direction<'_> {
    fn argv(self, there: arguments::Place<'_>) -> Vec<OsString> {
        let here = arguments::Place::Here;
        match self {
            Self::Pull => arguments::arguments(there, here, None),
            Self::Push(basis) => arguments::arguments(here, there, Some(basis)),
        }
    }
}

impl Way {
    pub(super) const fn new(transport: Arc<dyn Transport>, place: PathBuf) -> Self {
        Self {
            transport,
            place,
            ready: None,
        }
    }

    /// Connects, and makes sure that the rsync there may be used.
    pub(super) async fn ready(&mut self) -> Result<(), RsyncError> {
        if self.ready.is_none() {
            self.ready = Some(self.connect().await?);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Opened, RsyncError> {
        let opened = self.transport.open(Role::Rsync, &Unwatched).await;
        let mut opened = opened.map_err(|error| RsyncError::Link(Box::new(error.failure)))?;
        let answer = tokio::time::timeout(ANSWER_LIMIT, message(&mut opened.reader)).await;
        let checked = match answer {
            Ok(Ok(bytes)) => judge(&bytes),
            Ok(Err(error)) => Err(RsyncError::Answer(error.to_string())),
            Err(_) => Err(RsyncError::Answer("it says nothing".to_owned())),
        };
        match checked {
            Ok(()) => Ok(opened),
            Err(refused) => {
                opened.carrier.close().await;
                Err(refused)
            }
        }
    }

    /// Ends a connection that was not used.
    pub(super) async fn close(self) {
        if let Some(opened) = self.ready {
            opened.carrier.close().await;
        }
    }

    async fn carry(&mut self, rsync: &Rsync, order: Order<'_>) -> Result<Moved, RsyncError> {
        let Opened {
            reader,
            pipe: _,
            writer,
            carrier,
        } = match self.ready.take() {
            Some(opened) => opened,
            None => self.connect().await?,
        };
        let moved = self.pass(rsync, order, (reader, writer)).await;
        carrier.close().await;
        moved
    }

    async fn pass(
        &self,
        rsync: &Rsync,
        order: Order<'_>,
        channel: (Reader, Writer),
    ) -> Result<Moved, RsyncError> {
        let door = Door::open(&self.place).map_err(here("no socket can be made for rsync"))?;
        let shell = arguments::shell(&rsync.own, &door.socket());
        let argv = order.direction.argv(arguments::Place::Host(&shell));
        let mut running = rsync.start(&argv, order.here)?;
        let serve = async {
            let local = door.let_in().await?;
            serve(local, channel, order.there, (order.most, order.passed)).await
        };
        let (mut serve, mut ended) = (
            std::pin::pin!(serve),
            std::pin::pin!(running.end(order.list)),
        );
        let ended = tokio::select! {
            biased;
            served = &mut serve => {
                served?;
                ended.await?
            }
            // It has not even asked for its connection, or has all that it needs.
            ended = &mut ended => ended?,
        };
        ended.moved()
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

struct Unwatched;

impl PhaseWatch for Unwatched {
    fn begin(&self, phase: Phase) {
        tracing::debug!(%phase, "rsync");
    }
}

fn here(what: &'static str) -> impl FnOnce(io::Error) -> RsyncError {
    move |error| RsyncError::Here { what, error }
}

/// Whether the host's first message names an rsync that may be used.
fn judge(bytes: &[u8]) -> Result<(), RsyncError> {
    let found: FromRsync =
        frame::decode(bytes).map_err(|error| RsyncError::Answer(error.to_string()))?;
    match found {
        FromRsync::Version(printed) => Version::check(&printed, Where::There),
        FromRsync::Absent { why } => Err(RsyncError::Absent {
            at: Where::There,
            why,
        }),
    }
}

/// The next frame's message.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut prefix = [0; PREFIX];
    from.read_exact(&mut prefix).await?;
    let length = frame::length(prefix).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A socket in a directory of its own, until it is dropped.
struct Door {
    directory: PathBuf,
    listener: UnixListener,
}

impl Door {
    /// Makes it; what a killed process left there is removed. Nobody else works with this mirror.
    fn open(directory: &Path) -> io::Result<Self> {
        remove(directory);
        DirBuilder::new().mode(0o700).create(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            listener: UnixListener::bind(directory.join(SOCKET))?,
        })
    }

    fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Takes the one connection that is made.
    async fn let_in(&self) -> Result<UnixStream, RsyncError> {
        let came = tokio::time::timeout(ASK_LIMIT, self.listener.accept()).await;
        let came = came.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, _) = came.map_err(here("rsync asked for no connection"))?;
        Ok(stream)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

fn remove(directory: &Path) {
    // Either may be gone.
    let _socket = fs::remove_file(directory.join(SOCKET));
    let _directory = fs::remove_dir(directory);
}

/// Tells the host what the rsync here wants to be run there, and passes bytes both ways.
async fn serve(
    mut local: UnixStream,
    (reader, mut writer): (Reader, Writer),
    directory: &Path,
    (most, passed): (u64, &(dyn Fn(u64, u64) + Sync)),
) -> Result<(), RsyncError> {
    let asked = tokio::time::timeout(ASK_LIMIT, message(&mut local)).await;
    let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let asked = asked.map_err(here("rsync asked for nothing"))?;
    let words: Vec<ByteString> = frame::decode(&asked)
        .map_err(|error| here("rsync's wish is none")(io::Error::other(error)))?;
    let [host, _rsync, arguments @ ..] = words.as_slice() else {
        let error = io::Error::other("too few words");
        return Err(here("rsync's wish is none")(error));
    };
    debug_assert_eq!(host.as_os_str(), OsStr::new(HOST));
    let order = ToRsync {
        directory: ByteString::from(directory),
        arguments: arguments.to_vec(),
    };
    let mut bytes = Vec::new();
    let encoded = frame::encode(&order, &mut bytes);
    encoded.map_err(|error| here("rsync's wish is none")(io::Error::other(error)))?;
    let told = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    told.await.map_err(here("the host cannot be told"))?;
    pump(local, (reader, writer), most, passed).await
}

/// Passes bytes until both directions have ended, nothing passes, or too much comes.
async fn pump(
    local: UnixStream,
    (mut reader, mut writer): (Reader, Writer),
    most: u64,
    passed: &(dyn Fn(u64, u64) + Sync),
) -> Result<(), RsyncError> {
    let (mut from, mut to) = local.into_split();
    let (last, up, down) = (Cell::new(Instant::now()), Cell::new(0), Cell::new(0));
    let count = |bytes: usize, all: &Cell<u64>| {
        last.set(Instant::now());
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        all.set(all.get().saturating_add(bytes));
        passed(up.get(), down.get());
    };
    // What breaks a direction ends it: rsync then says what it misses.
    let upwards = async {
        let mut buffer = vec![0; PART];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            count(length, &up);
            let part = buffer.get(..length).unwrap_or_default();
            if writer.write_all(part).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
        let _broken = writer.shutdown().await;
        Ok(())
    };
    let downwards = async {
        let mut buffer = vec![0; PART];
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            count(length, &down);
            if down.get() > most {
                return Err(RsyncError::TooMuch);
            }
            let part = buffer.get(..length).unwrap_or_default();
            if to.write_all(part).await.is_err() {
                break;
            }
        }
        let _broken = to.shutdown().await;
        Ok(())
    };
    let silence = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if last.get().elapsed() > SILENCE {
                return RsyncError::Silent;
            }
        }
    };
    tokio::select! {
        biased;
        done = async { tokio::try_join!(upwards, downwards) } => done.map(|_| ()),
        silent = silence => Err(silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    /// By our own clock, whatever the other end says or not.
    #[tokio::test(start_paused = true)]
    async fn m25_an_rsync_that_is_silent_is_given_up() {
        let ((local, _rsync), (there, _host)) = (pair(), tokio::io::duplex(64));
        let (reader, writer) = tokio::io::split(there);
        let channel: (Reader, Writer) = (Box::new(reader), Box::new(writer));
        let began = Instant::now();
        let passed = pump(local, channel, u64::MAX, &|_, _| {}).await;
        assert!(matches!(passed, Err(RsyncError::Silent)));
        assert!(began.elapsed() >= SILENCE);
    }

    /// A sender that goes on and on fills no disk here.
    #[tokio::test]
    async fn m26_more_than_was_asked_for_is_not_taken() {
        let ((local, mut rsync), (there, mut host)) = (pair(), tokio::io::duplex(1024));
        let (reader, writer) = tokio::io::split(there);
        let channel: (Reader, Writer) = (Box::new(reader), Box::new(writer));
        let endless = async {
            loop {
                if host.write_all(&[7; 512]).await.is_err() {
                    break;
                }
            }
        };
        let taken = async {
            let mut all = Vec::new();
            let _ended = rsync.read_to_end(&mut all).await;
            all.len()
        };
        let pumped = async {
            let done = pump(local, channel, 100_000, &|_, _| {}).await;
            assert!(matches!(done, Err(RsyncError::TooMuch)));
        };
        let ((), taken, ()) = tokio::join!(pumped, taken, endless);
        assert!(taken <= 100_000, "{taken}");
    }
}
