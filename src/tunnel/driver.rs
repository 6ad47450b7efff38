//! The task that owns a session's links: makes the first, serves it, and makes another when it is
//! lost, within the lease.

mod serve;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::error::TunnelError;
use super::exec::Status;
use super::exec::launch::Launch;
use super::link::{Attached, Link, dial};
use super::phase::{Phase, PhaseLog};
use super::session::{LinkState, Settings};
use super::transport::{LinkError, Role, Transport};
use crate::wire::link::{EndReport, ExecId, Opening, Refusal, SILENCE_MS};

/// Between a lost link and the first try; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two tries: a network that is back is used soon, and a host that
/// throttles logins is left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What the host needs beyond the grace to kill, look again and answer.
pub(super) const END_ROOM: Duration = Duration::from_secs(15);

/// What the session asks of its tunnel.
pub(super) enum Command {
    Launch(Box<Launch>),
    End {
        grace: Duration,
        reply: oneshot::Sender<Ended>,
    },
}

/// What the host says is left; nothing when nothing was begun there.
pub(super) type Ended = Result<Option<EndReport>, Arc<TunnelError>>;

/// How the end was asked for.
struct Ending {
    grace: Duration,
    /// When the answer has to be there.
    until: Instant,
    reply: oneshot::Sender<Ended>,
}

/// The task's state.
pub(super) struct Driver {
    transport: Arc<dyn Transport>,
    settings: Settings,
    commands: mpsc::Receiver<Command>,
    /// Nobody can command any more.
    is_left: bool,
    wake: Arc<Notify>,
    state: watch::Sender<LinkState>,
    ready: Option<oneshot::Sender<Result<Attached, Arc<TunnelError>>>>,
    launches: BTreeMap<ExecId, Launch>,
    ending: Option<Ending>,
    phases: PhaseLog,
    /// When something was heard of the host last, on the clock that counts suspended time.
    heard: Duration,
    trouble: Trouble,
    /// Whether a link worked once.
    was_up: bool,
    /// Whether the supervisor took a link once: then something of the session is on the host.
    was_attached: bool,
}

/// A loss that is not made good yet.
#[derive(Debug, Default)]
struct Trouble {
    /// When the lost link was heard of last, on the clock that counts suspended time.
    since: Option<Duration>,
    /// Tries since then.
    tries: u32,
    /// Why the last one failed.
    obstacle: Option<LinkError>,
}

/// How one link ended.
enum Over {
    /// It broke.
    Lost(LinkError),
    /// The host ended everything and says what is left.
    Ended(EndReport),
    /// No other link will help.
    Hopeless(TunnelError),
    /// Nobody needs it any more.
    Left,
}

impl Driver {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        settings: Settings,
        commands: mpsc::Receiver<Command>,
        wake: Arc<Notify>,
        state: watch::Sender<LinkState>,
        ready: oneshot::Sender<Result<Attached, Arc<TunnelError>>>,
    ) -> Self {
        let phases = PhaseLog::new(Arc::clone(&settings.clock));
        let heard = settings.clock.since_boot();
        Self {
            transport,
            settings,
            commands,
            is_left: false,
            wake,
            state,
            ready: Some(ready),
            launches: BTreeMap::new(),
            ending: None,
            phases,
            heard,
            trouble: Trouble::default(),
            was_up: false,
            was_attached: false,
        }
    }

    /// Runs until the session has ended, the lease is over, or nobody is left.
    pub(super) async fn run(mut self) {
        let over = self.links().await;
        // Whoever is answered may take what still runs here for somebody else's.
        self.transport.settled().await;
        // Whoever asked for the end waits for this task; others may still hold what starts programs.
        if self.ending.is_some() {
            self.commands.close();
        }
        let error = match over {
            Ok(report) => {
                self.reply(Ok(Some(report)));
                TunnelError::Ending
            }
            Err(TunnelError::Ending) if !self.was_attached => {
                self.reply(Ok(None));
                TunnelError::Ending
            }
            Err(error) => error,
        };
        let error = Arc::new(error);
        self.reply(Err(Arc::clone(&error)));
        if let Some(ready) = self.ready.take() {
            let _left = ready.send(Err(Arc::clone(&error)));
        }
        for launch in self.launches.values_mut() {
            launch.abandon(&error);
        }
        self.state.send_replace(LinkState::Over(Arc::clone(&error)));
        self.refuse_the_rest(&error);
    }

    /// Answers what was asked of a tunnel that is over; whoever asks later sees its state.
    fn refuse_the_rest(&mut self, error: &Arc<TunnelError>) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Launch(mut launch) => launch.abandon(error),
                Command::End { reply, .. } => {
                    let _left = reply.send(Err(Arc::clone(error)));
                }
            }
        }
    }

    fn reply(&mut self, answer: Ended) {
        if let Some(ending) = self.ending.take() {
            let _left = ending.reply.send(answer);
        }
    }

    /// One link after the other.
    async fn links(&mut self) -> Result<EndReport, TunnelError> {
        loop {
            let again = self.trouble.since.is_some();
            let error = match self.dial(again).await {
                Ok(link) => match self.use_up(link).await? {
                    Over::Ended(report) => return Ok(report),
                    Over::Hopeless(error) => return Err(self.judged(error)),
                    Over::Left => return Err(TunnelError::Ending),
                    Over::Lost(error) => TunnelError::Link(error),
                },
                Err(error) => error,
            };
            match error {
                TunnelError::Link(error) if self.was_up && error.retry_after.is_some() => {
                    tracing::info!(why = %error.failure.message(), "no link");
                    self.trouble.obstacle = Some(error);
                }
                TunnelError::Slow { phase, limit } if self.was_up => {
                    tracing::info!(%phase, ?limit, "no link");
                }
                error => return Err(self.judged(error)),
            }
            self.pause().await?;
        }
    }

    /// Serves a link to its end, and takes in that it is lost.
    async fn use_up(&mut self, mut link: Link) -> Result<Over, TunnelError> {
        self.was_attached = true;
        self.heard = self.settings.clock.since_boot();
        let over = self.serve(&mut link).await;
        if matches!(over, Over::Lost(_)) && self.was_up && self.trouble.since.is_none() {
            self.trouble.since = Some(self.heard);
            self.state.send_replace(LinkState::Down);
            self.settings.watcher.lost();
        }
        link.carrier.close().await;
        Ok(over)
    }

    /// What an error means when a link worked before.
    fn judged(&self, error: TunnelError) -> TunnelError {
        let over = TunnelError::LeaseOver {
            lease: self.settings.lease,
            obstacle: None,
        };
        match (&error, self.trouble.since) {
            (TunnelError::Refused(Refusal::LeaseOver), _) => over,
            (TunnelError::Refused(Refusal::NoSupervisor), Some(_))
                if self.away() >= self.settings.lease =>
            {
                over
            }
            (TunnelError::Refused(Refusal::NoSupervisor), Some(_)) => TunnelError::SupervisorGone,
            _ => error,
        }
    }

    /// How long there has been no link.
    fn away(&self) -> Duration {
        let now = self.settings.clock.since_boot();
        self.trouble
            .since
            .map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Makes a link, and goes on listening to commands meanwhile.
    async fn dial(&mut self, again: bool) -> Result<Link, TunnelError> {
        let number = self.settings.watcher.next_link().map_err(|why| {
            TunnelError::Link(LinkError {
                phase: Phase::Connect,
                failure: crate::report::Failure::failed("the link cannot be written down")
                    .problem(why),
                retry_after: None,
            })
        })?;
        let opening = Opening {
            session: self.settings.session.clone(),
            workdir: self.settings.workdir.clone(),
            lease_ms: u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX),
            link: number,
            must_live: again,
        };
        let role = if again { Role::Attach } else { Role::Supervise };
        let execs = self.launches.values().map(Launch::progress).collect();
        let transport = Arc::clone(&self.transport);
        let phases = self.phases.clone();
        let attempt = dial(&*transport, role, &opening, execs, &phases);
        tokio::pin!(attempt);
        loop {
            let until = self.ending.as_ref().map(|ending| ending.until);
            tokio::select! {
                made = &mut attempt => return made,
                command = self.commands.recv(), if !self.is_left => self.take(command),
                () = reached(until) => return Err(self.given_up()),
            }
            // Before the supervisor is asked for, nothing is there that would have to be ended.
            let is_early = self
                .phases
                .current()
                .is_none_or(|phase| phase < Phase::Attach);
            let is_needless = self.ending.is_some() && !self.was_attached && is_early;
            if self.is_left || is_needless {
                return Err(TunnelError::Ending);
            }
        }
    }

    /// Waits before the next try, as long as there may be one.
    async fn pause(&mut self) -> Result<(), TunnelError> {
        let away = self.away();
        // The host may have heard of us later than we of it.
        let patience = self.settings.lease + Duration::from_millis(SILENCE_MS);
        // After a night's sleep one try is due, however late it is.
        if away >= patience && self.trouble.tries > 0 {
            return Err(TunnelError::LeaseOver {
                lease: self.settings.lease,
                obstacle: self.trouble.obstacle.clone(),
            });
        }
        let left = patience.saturating_sub(away).max(FIRST_PAUSE);
        let rest = self
            .trouble
            .obstacle
            .as_ref()
            .and_then(|error| error.retry_after);
        let pause = backoff(self.trouble.tries)
            .max(rest.unwrap_or_default())
            .min(left);
        self.trouble.tries = self.trouble.tries.saturating_add(1);
        let until = Instant::now() + pause;
        loop {
            let ending = self.ending.as_ref().map(|ending| ending.until);
            tokio::select! {
                () = sleep_until(until) => return Ok(()),
                command = self.commands.recv(), if !self.is_left => self.take(command),
                () = reached(ending) => return Err(self.given_up()),
            }
            if self.is_left {
                return Err(TunnelError::Ending);
            }
        }
    }

    /// The end was asked for, and its time is over.
    fn given_up(&self) -> TunnelError {
        TunnelError::Link(LinkError {
            phase: self.phases.current().unwrap_or(Phase::Connect),
            failure: crate::report::Failure::failed(format!(
                "{} was not reached in time",
                self.transport.host()
            )),
            retry_after: None,
        })
    }

    /// Does what can be done without a link.
    fn take(&mut self, command: Option<Command>) {
        match command {
            None => self.is_left = true,
            Some(Command::Launch(launch)) => {
                self.launches.insert(launch.id(), *launch);
            }
            Some(Command::End { grace, reply }) => {
                self.ending = Some(Ending {
                    grace,
                    until: Instant::now() + grace + END_ROOM,
                    reply,
                });
            }
        }
    }

    /// A program of which the host knows nothing any more is lost.
    fn resume(&mut self, there: &Attached) -> Result<(), String> {
        let gone = Arc::new(TunnelError::SupervisorGone);
        for (id, launch) in &mut self.launches {
            let state = there.execs.iter().find(|state| state.exec == *id);
            if state.is_none() && launch.is_known_there() {
                launch.over(Status::Lost(Arc::clone(&gone)));
            }
            launch.go_on(state)?;
        }
        self.launches.retain(|_, launch| !launch.is_over());
        Ok(())
    }
}

/// Resolves at a time, or never.
async fn reached(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The pause before a try: doubled each time, up to a limit, and varied by half of it either way so
/// that many controllers of one host do not come at once.
fn backoff(tries: u32) -> Duration {
    let pause = FIRST_PAUSE
        .saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX))
        .min(LONGEST_PAUSE);
    let mut random = [0; 4];
    // Without random bytes every pause is the shortest, which is as good.
    let _none = getrandom::fill(&mut random);
    let random = u64::from(u32::from_le_bytes(random));
    let half = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 2;
    Duration::from_millis(
        half + half.saturating_mul(2).saturating_mul(random) / u64::from(u32::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses grow, stay below one and a half of the longest, and are not all alike.
    #[test]
    fn pauses_grow_and_vary() {
        for tries in 0..40 {
            let pause = backoff(tries);
            assert!(pause >= FIRST_PAUSE / 2, "{pause:?}");
            assert!(pause <= LONGEST_PAUSE * 3 / 2, "{pause:?}");
        }
        let many: std::collections::BTreeSet<_> = (0..50).map(|_| backoff(10)).collect();
        assert!(many.len() > 10);
        assert!(
            many.first()
                .is_some_and(|least| *least >= LONGEST_PAUSE / 2)
        );
    }
}
