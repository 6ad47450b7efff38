//! One connection to a host: ssh as a child of ours, its channels and its forwards.
//!
//! ssh runs a remote command of its own, `cat`, which ends with the connection: a connection that
//! never had a session delays small packets by 40 ms. Channels and forwards go through its control
//! socket.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openssh::{ForwardType, Session, Socket, Stdio};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::check::check;
use super::control::Control;
use super::failure::{Awaited, LinkFailure, Phase};
use super::local::{Local, SshProcess};
use super::said::Said;
use super::{config, ended, pace};
use crate::tunnel::host::HostSpec;

/// Channels of one connection; a server takes ten sessions by default, and ssh's own is one.
pub const CHANNELS_MAX: usize = 8;
/// From the start of ssh until its control socket answers. Finding and reaching the host may take
/// `ConnectTimeout`, a jump host as long again, and a key that must be touched a while.
const CONNECT_LIMIT: Duration = Duration::from_secs(40);
/// For an answer of the control socket that needs no answer of the host.
const SOCKET_LIMIT: Duration = Duration::from_secs(5);
/// For a new channel or forward: a few round trips.
const HOST_LIMIT: Duration = Duration::from_secs(10);
/// For a place among the channels: what a channel is for, but the link itself, is done sooner.
const FREE_LIMIT: Duration = Duration::from_mins(2);
/// How often the control socket is looked for: every connection waits half of it for nothing.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long ssh may take to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// A line of ssh's standard error that is longer is cut.
const LINE_MAX: u64 = 64 * 1024;
/// Bytes of the login's output that are kept, should ssh end before it is up.
const PRINTED_MAX: usize = 4_096;
/// What ssh itself runs on the host, in whatever the login shell is.
const KEEPER: &str = "exec cat";

/// A connection. Dropping it ends it, without waiting.
#[derive(Debug)]
pub struct Master {
    host: HostSpec,
    session: Arc<Session>,
    channels: Arc<Semaphore>,
    end: watch::Receiver<Option<LinkFailure>>,
    stop: oneshot::Sender<()>,
    phases: Phases,
    /// Holds the socket.
    _control: Control,
}

/// When a connection reached each phase, since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Phases(Vec<(Phase, Duration)>);

impl Phases {
    /// Phases in the order in which they began, with the time since the start.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, Duration)> {
        self.0.iter().copied()
    }

    fn reached(&mut self, phase: Phase, after: Duration) {
        if self.0.last().is_none_or(|(last, _)| *last < phase) {
            self.0.push((phase, after));
        }
    }
}

/// What is known of a running ssh, shared with the task that reads what it says.
type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program on the host with its three streams; it holds one of the connection's channels.
#[derive(Debug)]
pub struct RawChannel {
    /// The program.
    pub child: openssh::Child<Arc<Session>>,
    /// To its standard input.
    pub stdin: openssh::ChildStdin,
    /// From its standard output.
    pub stdout: openssh::ChildStdout,
    /// From its standard error.
    pub stderr: openssh::ChildStderr,
    /// Its place among the channels.
    pub permit: OwnedSemaphorePermit,
}

impl Master {
    /// Connects to a host: checks what ssh would do, starts it, and waits until its control socket
    /// answers. Asks nothing.
    ///
    /// # Errors
    /// When there is no connection; nothing is left of the attempt.
    pub async fn connect(host: &HostSpec, local: &Local) -> Result<Self, LinkFailure> {
        pace::turn().await;
        let mut control = Control::new(local.sockets())?;
        check(local, host, &control).await?;
        let (file, socket) = (control.configuration(), control.socket());
        let mut arguments = config::arguments(host, &file, &socket);
        arguments.extend(["--".into(), host.destination.name().into(), KEEPER.into()]);
        let mut running = Running::new(local.start_ssh(arguments)?)?;
        let limit = tokio::time::sleep(CONNECT_LIMIT);
        let up = tokio::select! {
            biased;
            status = running.child.wait() => {
                let status = status.ok().and_then(|status| status.code());
                Err(running.ended(status, host).await)
            }
            () = answers(&socket) => Ok(()),
            () = limit => Err(LinkFailure::TimedOut {
                what: Awaited::Connection(lock(&running.said).phase()),
                after: CONNECT_LIMIT,
            }),
        };
        if let Err(failure) = up {
            running.kill().await;
            return Err(failure);
        }
        let path = control.hide().map_err(|error| LinkFailure::Here {
            what: "ssh's control socket cannot be opened".to_owned(),
            why: error.to_string(),
        })?;
        running.up();
        let phases = lock(&running.phases).clone();
        let (stop, stopped) = oneshot::channel();
        let (ends, end) = watch::channel(None);
        tokio::spawn(running.watch(stopped, ends));
        Ok(Self {
            host: host.clone(),
            session: Arc::new(Session::resume_mux(path.into_boxed_path(), None)),
            channels: Arc::new(Semaphore::new(CHANNELS_MAX)),
            end,
            stop,
            phases,
            _control: control,
        })
    }

    /// The host.
    pub fn host(&self) -> &HostSpec {
        &self.host
    }

    /// When it reached each phase.
    pub fn phases(&self) -> &Phases {
        &self.phases
    }

    /// Waits for the end of the connection and tells why.
    pub async fn closed(&self) -> LinkFailure {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().unwrap_or(LinkFailure::Closed),
            Err(_) => LinkFailure::Closed,
        }
    }

    /// Ends the connection and waits until ssh is gone.
    pub async fn close(self) {
        let Self { stop, mut end, .. } = self;
        // Ended by itself when nobody listens any more.
        let _told = stop.send(());
        let _gone = end.wait_for(Option::is_some).await;
    }

    /// Runs a command in the user's login shell on the host; waits while all channels are taken.
    ///
    /// # Errors
    /// When the host takes no more sessions, the connection does not answer, or no channel becomes
    /// free in time.
    pub async fn channel(&self, command: &str) -> Result<RawChannel, LinkFailure> {
        let free = self.channels.clone().acquire_owned();
        let permit = self
            .answered(Awaited::FreeChannel, FREE_LIMIT, free)
            .await?;
        let permit = permit.map_err(|_| LinkFailure::Closed)?;
        self.is_alive().await?;
        let mut prepared = self.session.clone().arc_raw_command(command);
        prepared
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let opened = self
            .answered(Awaited::Channel, HOST_LIMIT, prepared.spawn())
            .await?;
        let mut child = match opened {
            Ok(child) => child,
            Err(error) => {
                let refusal = |said| LinkFailure::ChannelRefused { said };
                return Err(self.refused(&error, refusal).await);
            }
        };
        let pipes = (
            child.stdin().take(),
            child.stdout().take(),
            child.stderr().take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(LinkFailure::Here {
                what: "a channel has no pipes".to_owned(),
                why: "all three were asked for".to_owned(),
            });
        };
        Ok(RawChannel {
            child,
            stdin,
            stdout,
            stderr,
            permit,
        })
    }

    /// Lets the host's sshd listen on a unix socket and passes connections on to one of ours. The
    /// remote path must be new: sshd replaces no socket, and leaves its own behind.
    ///
    /// # Errors
    /// When the server refuses, or the connection does not answer.
    pub async fn forward(&self, remote: &Path, local: &Path) -> Result<(), LinkFailure> {
        let listen = Socket::UnixSocket {
            path: remote.into(),
        };
        let name = remote.display().to_string();
        self.forward_from(listen, name, local).await
    }

    /// The same on a port of the host's loopback, for servers that forward no sockets: weaker,
    /// every user of the host can connect to it.
    ///
    /// # Errors
    /// When the server refuses or the port is taken, or the connection does not answer.
    pub async fn forward_tcp(&self, port: u16, local: &Path) -> Result<(), LinkFailure> {
        let listen = Socket::TcpSocket {
            host: "127.0.0.1".into(),
            port,
        };
        self.forward_from(listen, format!("127.0.0.1:{port}"), local)
            .await
    }

    async fn forward_from(
        &self,
        listen: Socket<'_>,
        path: String,
        local: &Path,
    ) -> Result<(), LinkFailure> {
        self.is_alive().await?;
        let connect = Socket::UnixSocket { path: local.into() };
        let asked = self
            .session
            .request_port_forward(ForwardType::Remote, listen, connect);
        let answer = self.answered(Awaited::Forward, HOST_LIMIT, asked).await?;
        match answer {
            Ok(()) => Ok(()),
            Err(error) => {
                let refusal = |said| LinkFailure::ForwardRefused { path, said };
                Err(self.refused(&error, refusal).await)
            }
        }
    }

    /// Whether ssh still answers at all.
    pub(in crate::tunnel) async fn is_alive(&self) -> Result<(), LinkFailure> {
        let answer = self
            .answered(Awaited::Ssh, SOCKET_LIMIT, self.session.check())
            .await?;
        match answer {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error).await),
        }
    }

    /// What ssh answers, or why it does not: it ended, or it says nothing for too long.
    async fn answered<T>(
        &self,
        what: Awaited,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, LinkFailure> {
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            failure = self.closed() => Err(failure),
            () = tokio::time::sleep(limit) => Err(LinkFailure::TimedOut {
                what,
                after: limit,
            }),
        }
    }

    /// A refusal, unless the connection is gone.
    async fn refused(
        &self,
        error: &openssh::Error,
        refusal: impl FnOnce(String) -> LinkFailure,
    ) -> LinkFailure {
        match error {
            openssh::Error::SshMux(error) => refusal(error.to_string()),
            error => self.lost(error).await,
        }
    }

    /// Why the connection is gone: what its end tells, which comes a little after the error, else
    /// the error.
    async fn lost(&self, error: &openssh::Error) -> LinkFailure {
        let told = tokio::time::timeout(SOCKET_LIMIT, self.closed()).await;
        told.unwrap_or_else(|_| LinkFailure::LinkLost {
            said: error.to_string(),
        })
    }
}

/// Comes back when the control socket answers.
async fn answers(socket: &Path) {
    loop {
        if socket.exists() {
            let session = Session::resume_mux(socket.into(), None);
            if let Ok(Ok(())) = tokio::time::timeout(SOCKET_LIMIT, session.check()).await {
                return;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A running ssh and the tasks that read it.
#[derive(Debug)]
struct Running {
    child: SshProcess,
    /// Ends the keeper when it is dropped.
    keeper: Option<ChildStdin>,
    said: Shared<Said>,
    printed: Shared<Vec<u8>>,
    phases: Shared<Phases>,
    start: tokio::time::Instant,
    readers: tokio::task::JoinSet<()>,
}

impl Running {
    fn new(mut child: SshProcess) -> Result<Self, LinkFailure> {
        let id = child.id().unwrap_or_default();
        let said = Arc::new(Mutex::new(Said::of(id)));
        let printed = Arc::new(Mutex::new(Vec::new()));
        let phases = Shared::<Phases>::default();
        let start = tokio::time::Instant::now();
        let (keeper, Some(stdout), Some(stderr)) = child.streams() else {
            return Err(LinkFailure::Here {
                what: "ssh has no pipes".to_owned(),
                why: "all three were asked for".to_owned(),
            });
        };
        let mut readers = tokio::task::JoinSet::new();
        readers.spawn(read_printed(stdout, printed.clone()));
        readers.spawn(read_said(stderr, said.clone(), phases.clone(), start));
        Ok(Self {
            child,
            keeper,
            said,
            printed,
            phases,
            start,
            readers,
        })
    }

    fn up(&self) {
        lock(&self.said).is_up();
        lock(&self.phases).reached(Phase::Up, self.start.elapsed());
    }

    /// Why it ended, once everything that it said is read.
    async fn ended(&mut self, status: Option<i32>, host: &HostSpec) -> LinkFailure {
        self.read_out().await;
        let said = lock(&self.said);
        self.with_printed(ended::before_up(&said, status, host))
    }

    /// Reads what is left in its pipes; a process that it started may hold them open.
    async fn read_out(&mut self) {
        let all = async { while self.readers.join_next().await.is_some() {} };
        let _held_open = tokio::time::timeout(CLOSE_LIMIT, all).await;
    }

    /// Adds what the login printed, where that is the reason.
    fn with_printed(&self, failure: LinkFailure) -> LinkFailure {
        let LinkFailure::GreetingNotSeen { printed, status } = failure else {
            return failure;
        };
        let mut all = String::from_utf8_lossy(&lock(&self.printed)).into_owned();
        all.push_str(&printed);
        LinkFailure::GreetingNotSeen {
            printed: all,
            status,
        }
    }

    /// Waits for its end, by itself or because it is told to, and tells why.
    async fn watch(
        mut self,
        stopped: oneshot::Receiver<()>,
        ends: watch::Sender<Option<LinkFailure>>,
    ) {
        let failure = tokio::select! {
            status = self.child.wait() => {
                let status = status.ok().and_then(|status| status.code());
                self.read_out().await;
                let failure = ended::after_authentication(&lock(&self.said), status);
                self.with_printed(failure)
            }
            // Also when the master was dropped.
            _told = stopped => {
                self.end().await;
                LinkFailure::Closed
            }
        };
        let _nobody_asks = ends.send(Some(failure));
    }

    /// Asks it to end, then kills it.
    async fn end(&mut self) {
        drop(self.keeper.take());
        self.child.signal(Signal::TERM);
        let gone = tokio::time::timeout(CLOSE_LIMIT, self.child.wait()).await;
        if gone.is_err() {
            self.kill().await;
        }
    }

    /// Kills it, and what it started.
    async fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        let _gone = self.child.wait().await;
    }
}

/// Keeps the first of what the login prints, and reads on.
async fn read_printed(mut stdout: impl AsyncRead + Unpin, printed: Shared<Vec<u8>>) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = stdout.read(&mut buffer).await {
        let mut printed = lock(&printed);
        let room = PRINTED_MAX.saturating_sub(printed.len());
        printed.extend(buffer.iter().take(length.min(room)));
    }
}

/// Reads what ssh says, line by line.
async fn read_said(
    stderr: impl AsyncRead + Unpin,
    said: Shared<Said>,
    phases: Shared<Phases>,
    start: tokio::time::Instant,
) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(LINE_MAX);
        match limited.read_until(b'\n', &mut line).await {
            Ok(1..) => {
                let mut said = lock(&said);
                said.line(&line);
                lock(&phases).reached(said.phase(), start.elapsed());
            }
            Ok(0) | Err(_) => return,
        }
    }
}
