//! Links over ssh: a connection of their own each, with the helper on a channel and the forward
//! beside it.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openssh::ChildStderr;
use tokio::io::AsyncReadExt as _;

use super::deploy::{self, nonce};
use super::host::HostSpec;
use super::phase::Phase;
use super::ssh::failure::LinkFailure;
use super::ssh::local::Local;
use super::ssh::master::Master;
use super::transport::{Carrier, Doing, LinkError, Opened, PhaseWatch, Role, Transport};
use crate::child::Trampoline;
use crate::escape::escape_line;
use crate::report::Failure;
use crate::wire::bytes::ByteString;
use crate::wire::link::ForwardEnd;

/// ssh says goodbye within this, or is not waited for: its death signal ends it with us.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of a mirror's pipes to ssh: what Linux gives everybody.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;

/// Ports that a forward tries: a server that forbids them refuses each, and a host where so many
/// random ones are taken has none to give.
const PORT_TRIES: u32 = 4;
/// The lowest port that is tried: above those that Linux gives to outgoing connections by default.
const PORT_LOWEST: u16 = 61_000;

/// Links to a host over ssh. `sockets` is a directory of ours, 0700, for control sockets.
///
/// # Errors
/// When there is no ssh.
pub fn over_ssh(
    name: &str,
    spec: &HostSpec,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    sockets: &Path,
) -> Result<Arc<dyn Transport>, Failure> {
    let local = Local::new(environment, sockets, Trampoline::own())
        .map_err(|error| failure(name, &error))?;
    Ok(Arc::new(Ssh {
        name: name.to_owned(),
        spec: spec.clone(),
        local,
    }))
}

/// What a user reads of a link that cannot be made.
pub fn failure(name: &str, error: &LinkFailure) -> Failure {
    Failure::failed(format!("there is no link to {name}: {error}")).hint(error.remedy())
}

struct Ssh {
    name: String,
    spec: HostSpec,
    local: Local,
}

impl Ssh {
    fn error(&self, phase: Phase, error: &LinkFailure) -> LinkError {
        LinkError {
            phase,
            failure: failure(&self.name, error),
            retry_after: error.retry_after(),
        }
    }

    async fn connect(&self, role: Role, phases: &dyn PhaseWatch) -> Result<Opened, LinkError> {
        phases.begin(Phase::Connect);
        let nonce = nonce().map_err(|error| self.error(Phase::Connect, &error))?;
        let master = Master::connect(&self.spec, &self.local)
            .await
            .map_err(|error| self.error(Phase::Connect, &error))?;
        for (phase, since) in master.phases().iter() {
            tracing::info!(%phase, at_ms = since.as_millis(), "ssh");
        }
        phases.begin(Phase::Put);
        match master.helper(role, nonce).await {
            Ok(channel) => {
                tokio::spawn(log(channel.stderr));
                let mut pipe = None;
                if role == Role::Mirror {
                    let (came, from) = channel.reader.get_ref();
                    widen(from);
                    widen(&channel.writer);
                    // What came with the greeting is in no pipe any more.
                    let all = u64::try_from(came.get_ref().len()) == Ok(came.position());
                    pipe = all
                        .then(|| from.as_fd().try_clone_to_owned().ok())
                        .flatten();
                }
                Ok(Opened {
                    pipe,
                    reader: Box::new(channel.reader),
                    writer: Box::new(channel.writer),
                    carrier: Box::new(Connection {
                        name: self.name.clone(),
                        master,
                        _life: channel.life,
                    }),
                })
            }
            Err(error) => {
                master.close().await;
                Err(self.error(Phase::Put, &error))
            }
        }
    }
}

impl Transport for Ssh {
    fn host(&self) -> &str {
        &self.name
    }

    fn open<'a>(
        &'a self,
        role: Role,
        phases: &'a dyn PhaseWatch,
    ) -> Doing<'a, Result<Opened, LinkError>> {
        Box::pin(self.connect(role, phases))
    }

    fn settled(&self) -> Doing<'_, ()> {
        Box::pin(async move {
            let settled = self.local.settled();
            if tokio::time::timeout(CLOSE_LIMIT, settled).await.is_err() {
                tracing::warn!("ssh did not end in time");
            }
        })
    }
}

/// Gives a pipe to ssh room for some frames of a mirror, so that neither end waits for each packet of
/// the other. Where the system gives no more, it is as it was.
#[cfg(target_os = "linux")]
fn widen(pipe: impl AsFd) {
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES) {
        tracing::debug!(%error, "a pipe stays as small as it is");
    }
}

#[cfg(not(target_os = "linux"))]
fn widen(_pipe: impl AsFd) {}

/// What the helper writes to standard error is for the log.
async fn log(mut stderr: ChildStderr) {
    let mut buffer = [0; 4_096];
    while let Ok(count) = stderr.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        tracing::warn!(said = %escape_line(bytes), "labproxy-remote");
    }
}

/// Forwards the host's socket `remote` to `local` here; where the server refuses that and the user
/// allows it, a port of the host's loopback.
///
/// # Errors
/// When the server refuses, or the connection does not answer.
pub(super) async fn forward(
    master: &Master,
    remote: &Path,
    local: &Path,
) -> Result<ForwardEnd, LinkFailure> {
    match master.forward(remote, local).await {
        Ok(()) => Ok(ForwardEnd::Socket(ByteString::from(remote))),
        Err(LinkFailure::ForwardRefused { .. }) if master.host().tcp_fallback => {
            forward_port(master, local).await
        }
        Err(failure) => Err(failure),
    }
}

/// Forwards a free port. One is tried, not left to the server: ssh would tell which one that chose,
/// and the library that asks ssh does not pass it on.
async fn forward_port(master: &Master, local: &Path) -> Result<ForwardEnd, LinkFailure> {
    let mut tries = 0;
    loop {
        let port = some_port()?;
        tries += 1;
        match master.forward_tcp(port, local).await {
            Ok(()) => return Ok(ForwardEnd::Port(port)),
            Err(LinkFailure::ForwardRefused { .. }) if tries < PORT_TRIES => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// A random port.
fn some_port() -> Result<u16, LinkFailure> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(|error| LinkFailure::Here {
        what: "there are no random bytes".to_owned(),
        why: error.to_string(),
    })?;
    Ok(PORT_LOWEST.saturating_add(u16::from_ne_bytes(random) % (u16::MAX - PORT_LOWEST)))
}

struct Connection {
    name: String,
    master: Master,
    _life: deploy::ChannelLife,
}

impl Carrier for Connection {
    fn forward<'a>(
        &'a self,
        remote: &'a Path,
        local: &'a Path,
    ) -> Doing<'a, Result<ForwardEnd, LinkError>> {
        Box::pin(async move {
            forward(&self.master, remote, local)
                .await
                .map_err(|error| LinkError {
                    phase: Phase::Forward,
                    failure: failure(&self.name, &error),
                    retry_after: error.retry_after(),
                })
        })
    }

    fn closed(&self) -> Doing<'_, ()> {
        Box::pin(async move {
            let why = self.master.closed().await;
            tracing::info!(%why, "ssh ended");
        })
    }

    fn close(self: Box<Self>) -> Doing<'static, ()> {
        Box::pin(async move {
            if tokio::time::timeout(CLOSE_LIMIT, self.master.close())
                .await
                .is_err()
            {
                tracing::warn!("ssh did not end in time");
            }
        })
    }
}
