//! One link's life: frames both ways, the forward, heartbeats.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, interval};

use super::{Driver, Over, reached};
use crate::report::Failure;
use crate::tunnel::error::TunnelError;
use crate::tunnel::exec::Status;
use crate::tunnel::link::{Attached, Incoming, Link, Outgoing, nonsense};
use crate::tunnel::phase::Phase;
use crate::tunnel::session::LinkState;
use crate::tunnel::transport::{Doing, LinkError, PhaseWatch as _};
use crate::wire::frame;
use crate::wire::link::{ExecId, ForwardEnd, FromHost, HEARTBEAT_MS, SILENCE_MS, ToHost};

/// So much is put together at once. What is more important than data waits behind it.
const OUT_BYTES: usize = 256 * 1024;
/// The socket's name in the link's directory on the host.
const SOCKET: &str = "proxy.sock";

/// Said of a port through which nothing comes: the host's side sends nothing to one that the network
/// reaches too.
const OPEN_PORT: &str = "; a forwarded port is used only where it listens on 127.0.0.1 alone: the server \
                         must not have 'GatewayPorts yes'";

/// Where a link stands.
struct Standing {
    out: Outgoing,
    /// The forward is a port of the host.
    is_port: bool,
    /// When the forward has to work.
    forward_by: Option<Instant>,
    beats: u64,
    /// Nothing was heard for too long at the last look.
    is_silent: bool,
    end_sent: bool,
}

impl Driver {
    /// Serves a link until it is over.
    pub(super) async fn serve(&mut self, link: &mut Link) -> Over {
        if let Err(what) = self.resume(&link.there) {
            return Over::Hopeless(TunnelError::Protocol { what });
        }
        self.phases.begin(Phase::Forward);
        let remote = link.there.forward_directory.to_path_buf().join(SOCKET);
        let local = self.settings.proxy.clone();
        let mut forward = Some(link.carrier.forward(&remote, &local));
        let closed = link.carrier.closed();
        tokio::pin!(closed);
        let mut standing = Standing {
            out: Outgoing::default(),
            is_port: false,
            forward_by: Phase::Forward.limit().map(|limit| Instant::now() + limit),
            beats: 0,
            is_silent: false,
            end_sent: false,
        };
        let mut beat = interval(Duration::from_millis(HEARTBEAT_MS));
        loop {
            match self.process(&mut link.incoming, &mut standing) {
                Step::On => {}
                Step::Works => self.works(&link.there),
                Step::Over(over) => return over,
            }
            if let Some(over) = self.fill(&mut standing) {
                return over;
            }
            link.incoming.make_room();
            let until = self.ending.as_ref().map(|ending| ending.until);
            tokio::select! {
                read = link.reader.read_buf(&mut link.incoming.bytes) => match read {
                    Ok(0) => return lost_by(&"the host closed the channel"),
                    Ok(_) => self.heard = self.settings.clock.since_boot(),
                    Err(error) => return lost_by(&error),
                },
                wrote = link.writer.write(standing.out.waiting()), if standing.out.len() > 0 => {
                    match wrote {
                        Ok(count) => standing.out.advance(count),
                        Err(error) => return lost_by(&error),
                    }
                }
                made = made(&mut forward) => {
                    forward = None;
                    if let Some(over) = self.forwarded(made, &mut standing) {
                        return over;
                    }
                }
                command = self.commands.recv(), if !self.is_left => {
                    self.take(command);
                    if self.is_left {
                        return Over::Left;
                    }
                }
                () = self.wake.notified() => {}
                _ = beat.tick() => {
                    if let Some(over) = self.beat(&mut standing) {
                        return over;
                    }
                }
                () = &mut closed => return lost_by(&"the connection ended"),
                () = reached(standing.forward_by) => {
                    if let Some(over) = self.too_slow(&mut standing) {
                        return over;
                    }
                }
                () = reached(until) => return Over::Hopeless(self.given_up()),
            }
        }
    }

    /// The first time, or again after a loss.
    fn works(&mut self, there: &Attached) {
        self.phases.done();
        self.was_up = true;
        self.state.send_replace(LinkState::Up);
        if let Some(ready) = self.ready.take() {
            let _left = ready.send(Ok(there.clone()));
        }
        let away = self.away();
        if std::mem::take(&mut self.trouble).since.is_some() {
            self.settings.watcher.back(away);
        }
    }

    fn too_slow(&mut self, standing: &mut Standing) -> Option<Over> {
        if self.was_up {
            return Some(lost_by(&"the new forward did not work in time"));
        }
        let slow = TunnelError::Slow {
            phase: Phase::Forward,
            limit: Phase::Forward.limit().unwrap_or_default(),
        };
        self.useless(slow, standing);
        None
    }

    /// Requests do not get through the first link: told to whoever waits for that. The link itself
    /// works, and everything on the host is ended through it.
    fn useless(&mut self, why: TunnelError, standing: &mut Standing) {
        standing.forward_by = None;
        if let Some(ready) = self.ready.take() {
            let _left = ready.send(Err(Arc::new(why)));
        }
    }

    /// ssh listens on the host, or says why not.
    fn forwarded(
        &mut self,
        made: Result<ForwardEnd, LinkError>,
        standing: &mut Standing,
    ) -> Option<Over> {
        match made {
            Ok(end) => {
                if let ForwardEnd::Port(port) = end {
                    standing.is_port = true;
                    self.settings.watcher.exposed(port);
                }
                standing.out.push(&ToHost::Forward(end));
                None
            }
            Err(error) if self.was_up => Some(Over::Lost(error)),
            Err(error) => {
                self.useless(TunnelError::Link(error), standing);
                None
            }
        }
    }

    /// A heartbeat, and a look whether the host still sends its own.
    fn beat(&mut self, standing: &mut Standing) -> Option<Over> {
        let silence = self.settings.clock.since_boot().saturating_sub(self.heard);
        let is_silent = silence >= Duration::from_millis(SILENCE_MS);
        // After a stop of this process the bytes that came meanwhile are read before it is judged.
        if is_silent && standing.is_silent {
            return Some(lost_by(&"nothing was heard from the host"));
        }
        standing.is_silent = is_silent;
        standing.beats = standing.beats.saturating_add(1);
        standing.out.push(&ToHost::Ping(standing.beats));
        None
    }

    /// Puts together what the host should hear, once what was put together before is written.
    fn fill(&mut self, standing: &mut Standing) -> Option<Over> {
        self.bury(standing);
        if standing.out.len() < OUT_BYTES / 2 {
            if let Some(ending) = &self.ending
                && !standing.end_sent
            {
                standing.end_sent = true;
                standing.out.push(&ToHost::End {
                    grace_ms: u64::try_from(ending.grace.as_millis()).unwrap_or(u64::MAX),
                });
            }
            let mut more = true;
            while more && standing.out.len() < OUT_BYTES {
                more = false;
                for launch in self.launches.values_mut() {
                    more |= launch.fill(&mut standing.out);
                }
            }
        }
        let failed = standing.out.failed.as_ref()?;
        Some(Over::Hopeless(nonsense(failed)))
    }

    /// Forgets the programs whose end and output are passed on.
    fn bury(&mut self, standing: &mut Standing) {
        self.launches.retain(|id, launch| {
            if launch.is_whole() {
                launch.finish();
            }
            let is_over = launch.is_over();
            if is_over {
                standing.out.push(&ToHost::Forget { exec: *id });
            }
            !is_over
        });
    }

    /// Does what the frames say that have come whole.
    fn process(&mut self, incoming: &mut Incoming, standing: &mut Standing) -> Step {
        loop {
            let message = match incoming.first() {
                Ok(Some(message)) => message,
                Ok(None) => return Step::On,
                Err(error) => return Step::Over(Over::Hopeless(nonsense(&error))),
            };
            let length = message.len();
            let step = match frame::decode::<FromHost<'_>>(message) {
                Ok(message) => self.hear(message, standing),
                Err(error) => Step::Over(Over::Hopeless(nonsense(&error))),
            };
            incoming.next(length);
            if !matches!(step, Step::On) {
                return step;
            }
        }
    }

    fn hear(&mut self, message: FromHost<'_>, standing: &mut Standing) -> Step {
        match message {
            FromHost::Ping(number) => standing.out.push(&ToHost::Pong(number)),
            FromHost::Pong(_) => {}
            FromHost::Forwarding { micros } => {
                tracing::info!(micros, "requests get through");
                standing.forward_by = None;
                return Step::Works;
            }
            FromHost::NotForwarding { why } if self.was_up => {
                return Step::Over(lost_by(&why));
            }
            FromHost::NotForwarding { mut why } => {
                if standing.is_port {
                    why.push_str(OPEN_PORT);
                }
                self.useless(TunnelError::NotForwarding { why }, standing);
            }
            FromHost::Ended(report) => return Step::Over(Over::Ended(report)),
            FromHost::Refused(refusal) => {
                return Step::Over(Over::Hopeless(TunnelError::Refused(refusal)));
            }
            FromHost::Attached { .. } => return out_of_place("a second answer to a link"),
            other => {
                if let Err(what) = self.hear_of_launch(other) {
                    return Step::Over(Over::Hopeless(TunnelError::Protocol { what }));
                }
            }
        }
        Step::On
    }

    /// A message about a program. What comes about one that is forgotten was on its way.
    fn hear_of_launch(&mut self, message: FromHost<'_>) -> Result<(), String> {
        match message {
            FromHost::Started { exec, pid } => {
                if let Some(launch) = self.launches.get_mut(&exec) {
                    tracing::info!(exec = exec.0, pid, "the program runs");
                    launch.started(pid);
                }
            }
            FromHost::NotStarted { exec, why } => self.over(exec, Status::NotStarted(why)),
            FromHost::StdinTaken { exec, offset } => {
                if let Some(launch) = self.launches.get_mut(&exec) {
                    launch.stdin_taken(offset)?;
                }
            }
            FromHost::StdinClosed { exec } => {
                if let Some(launch) = self.launches.get_mut(&exec) {
                    launch.stdin_closed();
                }
            }
            FromHost::Output {
                exec,
                output,
                offset,
                bytes,
            } => {
                if let Some(launch) = self.launches.get_mut(&exec)
                    && launch.output(output, offset, &bytes)?
                {
                    tracing::info!(exec = exec.0, phase = Phase::FirstByte.word(), "phase done");
                }
            }
            FromHost::Exited {
                exec,
                end,
                stdout,
                stderr,
            } => {
                if let Some(launch) = self.launches.get_mut(&exec) {
                    tracing::info!(exec = exec.0, ?end, stdout, stderr, "the program ended");
                    launch.exited(end, stdout, stderr);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn over(&mut self, exec: ExecId, status: Status) {
        if let Some(launch) = self.launches.get_mut(&exec) {
            launch.over(status);
        }
    }
}

/// What a message leads to.
enum Step {
    On,
    /// The whole chain works.
    Works,
    Over(Over),
}

fn out_of_place(what: &str) -> Step {
    Step::Over(Over::Hopeless(TunnelError::Protocol {
        what: what.to_owned(),
    }))
}

fn lost_by(why: &dyn std::fmt::Display) -> Over {
    Over::Lost(LinkError {
        phase: Phase::FirstByte,
        failure: Failure::failed(format!("the link was lost: {why}")),
        retry_after: Some(Duration::ZERO),
    })
}

/// The forward's outcome, once.
async fn made(
    forward: &mut Option<Doing<'_, Result<ForwardEnd, LinkError>>>,
) -> Result<ForwardEnd, LinkError> {
    match forward {
        Some(forward) => forward.await,
        None => std::future::pending().await,
    }
}
