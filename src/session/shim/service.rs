//! The session's `shim.sock`: every shim of the session speaks to it, also those that the agent
//! started. It runs programs on the host and does nothing else.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::conversation::{Launcher, converse};
use crate::session::control::bind_private;
use crate::wire::link::LAUNCHES_MAX;

/// Launches at once: a person's harness runs a few; each keeps some MiB under way. More wait.
const SHIMS_MAX: usize = 64;
const _: () = assert!(
    SHIMS_MAX * 2 <= LAUNCHES_MAX,
    "the host takes them all, with the agent and what is forgotten a little later"
);
/// After a failed accept: out of descriptors, most likely, and those in use must end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The server of a session's shims, until it is dropped.
#[derive(Debug)]
pub struct ShimServer {
    path: PathBuf,
    accepting: AbortHandle,
    open: Arc<Open>,
}

/// Conversations that go on.
#[derive(Debug, Default)]
struct Open {
    launches: AtomicU64,
    sockets: Mutex<BTreeMap<u64, UnixStream>>,
}

impl Open {
    fn sockets(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShimServer {
    /// Binds `path` (in a 0700 directory) and serves until it is dropped.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(path: &Path, launcher: Arc<dyn Launcher>) -> io::Result<Self> {
        let listener = bind_private(path)?;
        let open = Arc::<Open>::default();
        let served = Arc::clone(&open);
        let room = Arc::new(Semaphore::new(SHIMS_MAX));
        let accepting = tokio::spawn(async move {
            loop {
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // The socket is 0600 in a 0700 directory; a peer of another user came as root.
                let ours = stream
                    .peer_cred()
                    .is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw());
                if !ours {
                    tracing::warn!("another user's shim was refused");
                    continue;
                }
                let launcher = Arc::clone(&launcher);
                let served = Arc::clone(&served);
                let begun = begin(stream, &served, move |stream| {
                    converse(stream, &*launcher, &Handle::current());
                    drop(permit);
                });
                if let Err(error) = begun {
                    tracing::warn!(%error, "a shim cannot be served");
                }
            }
        })
        .abort_handle();
        Ok(Self {
            path: path.to_owned(),
            accepting,
            open,
        })
    }

    /// How often a shim was started so far.
    pub fn launches(&self) -> u64 {
        self.open.launches.load(Ordering::Relaxed)
    }
}

/// Takes no more shims and lets go of those that are there, whose programs are told to end.
impl Drop for ShimServer {
    fn drop(&mut self) {
        self.accepting.abort();
        let _already_gone = std::fs::remove_file(&self.path);
        for socket in self.open.sockets().values() {
            let _gone = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Starts a conversation's thread.
fn begin(
    stream: tokio::net::UnixStream,
    open: &Arc<Open>,
    conversation: impl FnOnce(UnixStream) + Send + 'static,
) -> io::Result<()> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let number = open.launches.fetch_add(1, Ordering::Relaxed);
    open.sockets().insert(number, stream.try_clone()?);
    let runtime = Handle::current();
    let ended = Arc::clone(open);
    let started = std::thread::Builder::new()
        .name("shim".to_owned())
        .spawn(move || {
            let _entered = runtime.enter();
            conversation(stream);
            ended.sockets().remove(&number);
        });
    if let Err(error) = started {
        open.sockets().remove(&number);
        return Err(error);
    }
    Ok(())
}
