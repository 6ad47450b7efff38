//! One link: a channel to the session's supervisor, from the first frame to the answer that it is
//! taken.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::error::TunnelError;
use super::phase::{Phase, PhaseLog};
use super::transport::{Carrier, LinkError, Opened, PhaseWatch as _, Role, Transport};
use crate::report::Failure;
use crate::wire::bytes::ByteString;
use crate::wire::frame::{self, FrameError};
use crate::wire::link::{ExecProgress, ExecState, FromHost, Opening, ToHost, User};

/// Room for so much is made before each read.
const READ_BYTES: usize = 512 * 1024;

/// Frames on their way to the host.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// A message that has no encoding: an error of ours.
    pub(super) failed: Option<FrameError>,
}

impl Outgoing {
    /// Adds a message.
    pub(super) fn push<M: Serialize>(&mut self, message: &M) {
        if let Err(error) = frame::encode(message, &mut self.bytes) {
            self.failed = Some(error);
        }
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.written)
    }

    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// So many of them are written.
    pub(super) fn advance(&mut self, count: usize) {
        self.written = self.written.saturating_add(count);
        // While much is under way there is never nothing left: what is written goes before it is more
        // than what waits, so that moving the rest costs less than writing did.
        if self.written >= self.len() {
            let written = self.written.min(self.bytes.len());
            self.bytes.drain(..written);
            self.written = 0;
        }
    }
}

/// Bytes that came, cut into frames.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) bytes: BytesMut,
}

impl Incoming {
    pub(super) fn make_room(&mut self) {
        self.bytes.reserve(READ_BYTES);
    }

    /// Length of the first whole message, which begins after its prefix.
    pub(super) fn first(&self) -> Result<Option<&[u8]>, FrameError> {
        Ok(frame::split(&self.bytes)?.map(|(message, _)| message))
    }

    /// Drops the first message.
    pub(super) fn next(&mut self, length: usize) {
        self.bytes.advance(frame::PREFIX.saturating_add(length));
    }
}

/// A link that the supervisor has taken.
pub(super) struct Link {
    pub(super) reader: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
    pub(super) incoming: Incoming,
    pub(super) carrier: Box<dyn Carrier>,
    pub(super) there: Attached,
}

/// What the supervisor said when it took the link.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The directory for the forward's socket.
    pub forward_directory: ByteString,
    /// The forwarder's port on the host.
    pub port: u16,
    /// The session's directory on the host.
    pub session_directory: ByteString,
    /// Whose account everything runs in there.
    pub user: User,
    /// The launches that it knows.
    pub execs: Vec<ExecState>,
}

/// Connects, and has the link taken.
pub(super) async fn dial(
    transport: &dyn Transport,
    role: Role,
    opening: &Opening,
    execs: Vec<ExecProgress>,
    phases: &PhaseLog,
) -> Result<Link, TunnelError> {
    let Opened {
        mut reader,
        pipe: _,
        mut writer,
        carrier,
    } = transport
        .open(role, phases)
        .await
        .map_err(TunnelError::Link)?;
    phases.begin(Phase::Attach);
    let mut incoming = Incoming::default();
    let attach = async {
        let mut out = Outgoing::default();
        out.push(opening);
        out.push(&ToHost::Attach { execs });
        if let Some(error) = out.failed {
            return Err(TunnelError::Protocol {
                what: error.to_string(),
            });
        }
        writer
            .write_all(out.waiting())
            .await
            .map_err(|e| broken(&e))?;
        writer.flush().await.map_err(|e| broken(&e))?;
        attached(&mut reader, &mut incoming).await
    };
    let taken = match Phase::Attach.limit() {
        Some(limit) => timeout(limit, attach).await.unwrap_or({
            Err(TunnelError::Slow {
                phase: Phase::Attach,
                limit,
            })
        }),
        None => attach.await,
    };
    match taken {
        Ok(there) => Ok(Link {
            reader,
            writer,
            incoming,
            carrier,
            there,
        }),
        Err(error) => {
            carrier.close().await;
            Err(error)
        }
    }
}

async fn attached(
    reader: &mut (dyn tokio::io::AsyncRead + Send + Unpin),
    incoming: &mut Incoming,
) -> Result<Attached, TunnelError> {
    loop {
        if let Some(message) = incoming.first().map_err(|error| nonsense(&error))? {
            let length = message.len();
            let answer = match frame::decode(message).map_err(|error| nonsense(&error))? {
                FromHost::Attached {
                    forward_directory,
                    port,
                    session_directory,
                    user,
                    execs,
                } => Some(Ok(Attached {
                    forward_directory,
                    port,
                    session_directory,
                    user,
                    execs,
                })),
                FromHost::Refused(refusal) => Some(Err(TunnelError::Refused(refusal))),
                // It may greet with a heartbeat; nothing else comes before the answer.
                FromHost::Ping(_) | FromHost::Pong(_) => None,
                _ => Some(Err(TunnelError::Protocol {
                    what: "a message before the link was taken".to_owned(),
                })),
            };
            incoming.next(length);
            match answer {
                Some(answer) => return answer,
                None => continue,
            }
        }
        incoming.make_room();
        let count = reader
            .read_buf(&mut incoming.bytes)
            .await
            .map_err(|error| broken(&error))?;
        if count == 0 {
            return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

pub(super) fn broken(error: &io::Error) -> TunnelError {
    TunnelError::Link(LinkError {
        phase: Phase::Attach,
        failure: Failure::because("the connection ended while the session was attached", error),
        retry_after: Some(Duration::ZERO),
    })
}

/// A frame that cannot be read.
pub(super) fn nonsense(error: &FrameError) -> TunnelError {
    TunnelError::Protocol {
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that is never empty keeps what waits, not what was written.
    #[test]
    fn a_queue_that_is_always_filled_stays_small() {
        const WAITING: usize = 100_000;
        let mut out = Outgoing::default();
        let (mut number, mut written) = (0, Vec::new());
        while written.len() < 100 * WAITING {
            while out.len() < WAITING {
                number += 1;
                out.push(&ToHost::Ping(number));
            }
            let part = out.waiting().get(..WAITING / 3).unwrap().to_vec();
            out.advance(part.len());
            written.extend(part);
            assert!(out.bytes.capacity() < 4 * WAITING);
        }
        let rest = out.waiting().to_vec();
        out.advance(rest.len());
        written.extend(rest);
        let mut all = Vec::new();
        for number in 1..=number {
            frame::encode(&ToHost::Ping(number), &mut all).unwrap();
        }
        assert!(written == all, "each byte once and in order");
        assert_eq!(out.len(), 0);
    }
}
