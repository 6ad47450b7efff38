//! The forwarder and the link's forward: told where the proxy is, asked whether requests get
//! through, started again when it ends.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::remote::clock::Moment;
use crate::remote::forward::Forwarder;
use crate::remote::forward::probe::{PROBE_LIMIT, ProbeError, Prober};
use crate::remote::tell;
use crate::wire::link::{ForwardEnd, FromHost};

use super::Supervisor;

/// Between two starts of a forwarder: one that cannot run must not take the machine's time.
const RESTART_EVERY: Duration = Duration::from_millis(50);

/// A request that goes through the whole chain, in a thread of its own.
#[derive(Debug)]
pub(super) struct Probe {
    /// The link whose forward is asked.
    link: u64,
    answer: Receiver<Result<Duration, ProbeError>>,
    /// Readable when there is an answer.
    news: UnixStream,
}

impl Probe {
    fn start(prober: Prober, link: u64) -> io::Result<Self> {
        let (sender, answer) = sync_channel(1);
        let (news, mut teller) = UnixStream::pair()?;
        std::thread::Builder::new().spawn(move || {
            let passed = prober.probe(PROBE_LIMIT).map(|passed| passed.took);
            // Nobody waits any more when the link is gone.
            let _unheard = sender.send(passed);
            let _unheard = teller.write_all(&[0]);
        })?;
        Ok(Self { link, answer, news })
    }
}

impl AsFd for Probe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

/// The forwarder, until everything is killed.
#[derive(Debug)]
pub(super) struct Forwarding {
    pub(super) forwarder: Forwarder,
    pub(super) probe: Option<Probe>,
    /// When it was started last.
    started: Moment,
}

impl Forwarding {
    pub(super) fn new(forwarder: Forwarder) -> Self {
        Self {
            forwarder,
            probe: None,
            started: Moment::now(),
        }
    }

    /// When a forwarder that ended may be started again.
    pub(super) fn may_restart(&self) -> Moment {
        self.started.after(RESTART_EVERY)
    }
}

impl Supervisor {
    /// The proxy is behind `end`: tells the forwarder, and asks through it.
    pub(super) fn forward(&mut self, end: &ForwardEnd) {
        let link = self.newest;
        let Some(forwarding) = &mut self.forwarding else {
            return;
        };
        forwarding.forwarder.up(end);
        match Probe::start(forwarding.forwarder.prober(), link) {
            Ok(probe) => forwarding.probe = Some(probe),
            Err(error) => {
                let why = format!("the forward cannot be tried: {error}");
                self.say(&FromHost::NotForwarding { why });
            }
        }
    }

    /// There is an answer to what was asked through the forward.
    pub(super) fn serve_probe(&mut self) {
        let Some(probe) = self.forwarding.as_mut().and_then(|all| all.probe.take()) else {
            return;
        };
        if probe.link != self.newest {
            return;
        }
        let message = match probe.answer.recv() {
            Ok(Ok(took)) => FromHost::Forwarding {
                micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            },
            Ok(Err(error)) => FromHost::NotForwarding {
                why: error.to_string(),
            },
            Err(error) => FromHost::NotForwarding {
                why: format!("the probe ended: {error}"),
            },
        };
        self.say(&message);
    }

    /// No link works: the forwarder answers for the proxy.
    pub(super) fn forward_nothing(&mut self) {
        let lease = self.lease;
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.probe = None;
            forwarding.forwarder.down(lease);
        }
    }

    /// The forwarder ended: the next one takes its sockets over.
    pub(super) fn restart_forwarder(&mut self, now: Moment) {
        let Some(forwarding) = &mut self.forwarding else {
            return;
        };
        if now < forwarding.may_restart() {
            return;
        }
        forwarding.started = now;
        match forwarding.forwarder.restart() {
            Ok(()) => tell("the forwarder ended and was started again"),
            Err(error) => tell(&format!("no forwarder: {error}")),
        }
    }
}
