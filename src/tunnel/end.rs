//! Ending what a session left on its host, when nobody owns the session any more.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::driver::END_ROOM;
use super::error::TunnelError;
use super::link::{Link, Outgoing, broken, dial, nonsense};
use super::phase::{Phase, PhaseLog};
use super::transport::{Role, Transport};
use crate::clock::SharedClock;
use crate::wire::frame;
use crate::wire::link::{EndReport, FromHost, Opening, ToHost};

/// Takes the session over from whoever had it, ends everything there, and gives what the host says
/// is left.
///
/// # Errors
/// When the host cannot be asked; that nothing of the session runs there is one too
/// ([`TunnelError::is_over_there`]).
pub async fn end_there(
    transport: &dyn Transport,
    opening: &Opening,
    grace: Duration,
    clock: SharedClock,
) -> Result<EndReport, TunnelError> {
    let phases = PhaseLog::new(clock);
    let mut link = dial(transport, Role::Attach, opening, Vec::new(), &phases).await?;
    phases.done();
    let limit = grace + END_ROOM;
    let ended = timeout(limit, ask(&mut link, grace)).await;
    link.carrier.close().await;
    ended.unwrap_or(Err(TunnelError::Slow {
        phase: Phase::End,
        limit,
    }))
}

async fn ask(link: &mut Link, grace: Duration) -> Result<EndReport, TunnelError> {
    let mut out = Outgoing::default();
    out.push(&ToHost::End {
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
    });
    loop {
        link.writer
            .write_all(out.waiting())
            .await
            .map_err(|error| broken(&error))?;
        out.advance(out.len());
        while let Some(message) = link.incoming.first().map_err(|error| nonsense(&error))? {
            let length = message.len();
            match frame::decode(message).map_err(|error| nonsense(&error))? {
                FromHost::Ended(report) => return Ok(report),
                FromHost::Refused(refusal) => return Err(TunnelError::Refused(refusal)),
                // An end may take longer than a silent link lives.
                FromHost::Ping(number) => out.push(&ToHost::Pong(number)),
                // What its programs still write.
                _ => {}
            }
            link.incoming.next(length);
        }
        if out.len() > 0 {
            continue;
        }
        link.incoming.make_room();
        let count = link
            .reader
            .read_buf(&mut link.incoming.bytes)
            .await
            .map_err(|error| broken(&error))?;
        if count == 0 {
            return Err(broken(&std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use tokio::io::{DuplexStream, duplex, split};

    use super::*;
    use crate::clock::SystemClock;
    use crate::tunnel::transport::{Carrier, Doing, LinkError, Opened, PhaseWatch};
    use crate::wire::bytes::ByteString;
    use crate::wire::link::ForwardEnd;

    /// A connection to what a test says for the host.
    struct Wire(std::sync::Mutex<Option<DuplexStream>>);

    impl Transport for Wire {
        fn host(&self) -> &'static str {
            "h"
        }

        fn open<'a>(
            &'a self,
            _: Role,
            _: &'a dyn PhaseWatch,
        ) -> Doing<'a, Result<Opened, LinkError>> {
            let ours = self.0.lock().unwrap().take().unwrap();
            Box::pin(async move {
                let (reader, writer) = split(ours);
                Ok(Opened {
                    pipe: None,
                    reader: Box::new(reader),
                    writer: Box::new(writer),
                    carrier: Box::new(Nothing),
                })
            })
        }

        fn settled(&self) -> Doing<'_, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    struct Nothing;

    impl Carrier for Nothing {
        fn forward<'a>(
            &'a self,
            _: &'a Path,
            _: &'a Path,
        ) -> Doing<'a, Result<ForwardEnd, LinkError>> {
            Box::pin(async { Ok(ForwardEnd::Port(1)) })
        }

        fn closed(&self) -> Doing<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn close(self: Box<Self>) -> Doing<'static, ()> {
            Box::pin(async {})
        }
    }

    async fn frame_of(theirs: &mut DuplexStream) -> Vec<u8> {
        let length = theirs.read_u32_le().await.unwrap();
        let mut message = vec![0; usize::try_from(length).unwrap()];
        theirs.read_exact(&mut message).await.unwrap();
        message
    }

    async fn say(theirs: &mut DuplexStream, message: &FromHost<'_>) {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).unwrap();
        theirs.write_all(&bytes).await.unwrap();
    }

    /// An end that takes longer than a silent link lives: heartbeats are answered meanwhile, and the
    /// report is heard.
    #[tokio::test]
    async fn heartbeats_are_answered_while_things_end() {
        let (ours, mut theirs) = duplex(4096);
        let wire = Wire(std::sync::Mutex::new(Some(ours)));
        let opening = Opening {
            session: "s".to_owned(),
            workdir: ByteString::from("/w"),
            lease_ms: 0,
            link: 2,
            must_live: true,
        };
        let host = async {
            let _opening = frame_of(&mut theirs).await;
            let _attach = frame_of(&mut theirs).await;
            let attached = FromHost::Attached {
                forward_directory: ByteString::from("/f"),
                port: 1,
                session_directory: ByteString::from("/s"),
                user: crate::wire::link::User { name: None, uid: 1 },
                execs: Vec::new(),
            };
            say(&mut theirs, &attached).await;
            let end = frame_of(&mut theirs).await;
            assert!(matches!(frame::decode(&end), Ok(ToHost::End { .. })));
            for number in 1..4 {
                say(&mut theirs, &FromHost::Ping(number)).await;
                let pong = frame_of(&mut theirs).await;
                assert_eq!(frame::decode(&pong), Ok(ToHost::Pong(number)));
            }
            say(&mut theirs, &FromHost::Ended(EndReport::default())).await;
        };
        let clock = Arc::new(SystemClock);
        let ended = end_there(&wire, &opening, Duration::from_secs(2), clock);
        let (ended, ()) = tokio::join!(ended, host);
        assert_eq!(ended.unwrap(), EndReport::default());
    }
}
