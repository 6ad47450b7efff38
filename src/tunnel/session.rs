//! A session's tunnel: one link after the other, and programs on the host that do not notice.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::driver::{Command, Driver};
use super::error::TunnelError;
use super::exec::launch::Launch;
use super::exec::{RemoteExec, Stdio};
use super::link::Attached;
use super::transport::Transport;
use crate::clock::SharedClock;
use crate::wire::bytes::ByteString;
use crate::wire::link::{EndReport, ExecId, ExecSpec, LAUNCHES_MAX, SPEC_MAX};

/// Programs that are asked for and not taken in by the tunnel's task, which waits for nothing long:
/// as many as a host has at once.
const COMMANDS_MAX: usize = LAUNCHES_MAX;

/// What a tunnel is for.
pub struct Settings {
    /// The session's name.
    pub session: String,
    /// The directory on the host that holds `sessions/`.
    pub workdir: ByteString,
    /// How long everything there outlives its last link.
    pub lease: Duration,
    /// The proxy's socket here.
    pub proxy: PathBuf,
    /// The clock, which counts suspended time.
    pub clock: SharedClock,
    /// Who hears of lost links, and writes down their numbers.
    pub watcher: Arc<dyn LinkWatcher>,
}

/// Hears what becomes of the links.
pub trait LinkWatcher: Send + Sync {
    /// The number of the next link: above every earlier one of the session, whoever made it.
    ///
    /// # Errors
    /// When it cannot be written down, why.
    fn next_link(&self) -> Result<u64, String>;

    /// The link is lost; another is tried. Connections of the proxy that came through it are about
    /// to break.
    fn lost(&self);

    /// A link's forward listens on this port of the host, where every user of it can connect.
    fn exposed(&self, port: u16);

    /// A new one works, after so long.
    fn back(&self, after: Duration);
}

/// What is known of the link.
#[derive(Clone, Debug)]
pub enum LinkState {
    /// The first one is being made.
    Connecting,
    /// One works.
    Up,
    /// None works, and another is tried.
    Down,
    /// The tunnel is over.
    Over(Arc<TunnelError>),
}

/// A session's way to its host.
#[derive(Debug)]
pub struct Tunnel {
    launches: Launches,
    state: watch::Receiver<LinkState>,
    task: JoinHandle<()>,
}

/// Starts programs through a tunnel; may be shared, and is of no use when the tunnel is over.
#[derive(Clone, Debug)]
pub struct Launches {
    commands: mpsc::Sender<Command>,
    wake: Arc<Notify>,
    next_exec: Arc<AtomicU32>,
}

/// Why a program cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Its arguments, environment and files are more than can be sent.
    #[error("arguments, environment and settings have {0} bytes, and {SPEC_MAX} is the most")]
    TooLong(usize),
    /// More are asked for than a host takes, and none was begun yet.
    #[error("{COMMANDS_MAX} programs wait to be started")]
    TooMany,
    /// It has no encoding, or there are no threads.
    #[error("the program cannot be asked for")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Tunnel {
    /// Begins to connect, and goes on doing so until the tunnel is ended or dropped.
    pub fn begin(transport: Arc<dyn Transport>, settings: Settings) -> (Self, Opening) {
        let (commands, orders) = mpsc::channel(COMMANDS_MAX);
        let (state, seen) = watch::channel(LinkState::Connecting);
        let (ready, opened) = oneshot::channel();
        let wake = Arc::new(Notify::new());
        let driver = Driver::new(transport, settings, orders, Arc::clone(&wake), state, ready);
        let tunnel = Self {
            launches: Launches {
                commands,
                wake,
                next_exec: Arc::new(AtomicU32::new(1)),
            },
            state: seen,
            task: tokio::spawn(driver.run()),
        };
        (tunnel, Opening(opened))
    }

    /// What starts programs, for somebody else too.
    pub fn launches(&self) -> &Launches {
        &self.launches
    }

    /// Asks for a program; its streams begin to move at once.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn launch(&self, spec: &ExecSpec, stdio: Stdio) -> Result<RemoteExec, LaunchError> {
        self.launches.launch(spec, stdio)
    }

    /// What is known of the link.
    pub fn state(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Resolves when the tunnel is over.
    pub async fn over(&self) -> Arc<TunnelError> {
        let mut state = self.state.clone();
        let over = state
            .wait_for(|state| matches!(state, LinkState::Over(_)))
            .await;
        match over.as_deref() {
            Ok(LinkState::Over(error)) => Arc::clone(error),
            Ok(_) | Err(_) => Arc::new(TunnelError::Ending),
        }
    }

    /// Ends everything of the session on the host and the link here, and gives what the host says
    /// is left. `None`: nothing was ever begun there.
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub async fn end(self, grace: Duration) -> Result<Option<EndReport>, Arc<TunnelError>> {
        let (reply, answer) = oneshot::channel();
        // When nobody takes it any more, `reply` must go with it: it would be waited for.
        let command = Command::End { grace, reply };
        drop(self.launches.commands.send(command).await);
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(_) => match self.state() {
                LinkState::Over(error) => Err(error),
                _ => Err(Arc::new(TunnelError::Ending)),
            },
        };
        let _ended = self.task.await;
        answer
    }
}

impl Launches {
    /// Asks for a program; its streams begin to move at once.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn launch(&self, spec: &ExecSpec, stdio: Stdio) -> Result<RemoteExec, LaunchError> {
        let encoded =
            postcard::to_allocvec(spec).map_err(|error| LaunchError::Failed(error.into()))?;
        if u64::try_from(encoded.len()).is_ok_and(|length| length > SPEC_MAX) {
            return Err(LaunchError::TooLong(encoded.len()));
        }
        let id = ExecId(self.next_exec.fetch_add(1, Ordering::Relaxed));
        let (launch, status) = Launch::new(id, encoded, stdio, &self.wake)
            .map_err(|error| LaunchError::Failed(error.into()))?;
        let orders = launch.orders();
        match self.commands.try_send(Command::Launch(Box::new(launch))) {
            // When the tunnel is over the status says so.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => return Err(LaunchError::TooMany),
        }
        Ok(RemoteExec {
            orders,
            _commands: self.commands.clone(),
            status,
        })
    }
}

/// The first link on its way.
#[derive(Debug)]
pub struct Opening(oneshot::Receiver<Result<Attached, Arc<TunnelError>>>);

impl Opening {
    /// Waits until a request has gone through the whole chain.
    ///
    /// # Errors
    /// Why there is no link.
    pub async fn ready(&mut self) -> Result<Attached, Arc<TunnelError>> {
        match (&mut self.0).await {
            Ok(ready) => ready,
            Err(_) => Err(Arc::new(TunnelError::Ending)),
        }
    }
}
