//! A connection of the agent: it waits for a link, is relayed, and gets an end that its client
//! understands.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{EventData, EventFlags};

use super::end::{End, Read};
use super::framing::{Dialogue, Standing};
use super::refusal;

/// How long a client may take to send the head of a request that is to be refused.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long an ended connection is read on. Closing with unread bytes would reset it, and a client
/// that is still sending would lose the answer.
const LINGER: Duration = Duration::from_secs(5);

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Keep,
    /// It is closed in order.
    Close,
    /// It is cut: what its client has is not all.
    Reset,
}

/// Which end something happened at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The agent's.
    Client,
    /// The link's.
    Upstream,
}

/// Where a connection is kept, and what epoll calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    fn token(self, side: Side) -> EventData {
        let side = u64::from(side == Side::Upstream);
        EventData::new_u64(u64::from(self.0) * 2 + side)
    }

    /// Whose event it is.
    pub(super) fn of(token: u64) -> Option<(Self, Side)> {
        let side = if token.is_multiple_of(2) {
            Side::Client
        } else {
            Side::Upstream
        };
        Some((Self(u32::try_from(token / 2).ok()?), side))
    }
}

#[derive(Debug)]
enum Stage {
    /// No link: nothing is read.
    Waiting { until: Instant },
    /// Both ends are joined.
    Open { upstream: End },
    /// No link came, or it died: read until there is a request to answer.
    Refusing { until: Instant },
    /// Everything was sent or waits to be: read on until the client ends, once it was told.
    Ending { until: Option<Instant> },
}

/// A connection of the agent.
#[derive(Debug)]
pub(super) struct Connection {
    client: End,
    dialogue: Dialogue,
    stage: Stage,
}

impl Connection {
    /// Accepted; it waits for a link until `until`.
    pub(super) fn new(client: OwnedFd, until: Instant) -> Self {
        Self {
            client: End::new(client),
            dialogue: Dialogue::default(),
            stage: Stage::Waiting { until },
        }
    }

    /// Whether it waits for a link.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }

    /// Whether it is joined with the link, of which the end has not been seen.
    pub(super) const fn is_open(&self) -> bool {
        matches!(&self.stage, Stage::Open { upstream } if !upstream.read_ended)
    }

    /// Its waiting ends at `latest`, if not before.
    pub(super) fn wait_at_most(&mut self, latest: Instant) {
        if let Stage::Waiting { until } = &mut self.stage {
            *until = latest.min(*until);
        }
    }

    /// Joins it with the link.
    pub(super) fn join(&mut self, upstream: OwnedFd) {
        self.stage = Stage::Open {
            upstream: End::new(upstream),
        };
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting { until } | Stage::Refusing { until } => Some(until),
            Stage::Ending { until } => until,
            Stage::Open { .. } => None,
        }
    }

    /// A deadline may have passed.
    pub(super) fn on_time(&mut self, now: Instant) -> Fate {
        if self.deadline().is_none_or(|until| until > now) {
            return Fate::Keep;
        }
        let fate = match self.stage {
            Stage::Waiting { .. } => self.refuse(now),
            Stage::Refusing { .. } if self.dialogue.standing() != Standing::Idle => Fate::Reset,
            _ => Fate::Close,
        };
        self.settled(fate, now)
    }

    /// The link is gone.
    pub(super) fn link_lost(&mut self, now: Instant) -> Fate {
        let fate = match self.stage {
            Stage::Open { .. } => self.upstream_ended(true, now),
            _ => Fate::Keep,
        };
        self.settled(fate, now)
    }

    /// epoll reported `flags` at one end. `scratch` is where bytes pass through.
    pub(super) fn on_event(
        &mut self,
        side: Side,
        flags: EventFlags,
        scratch: &mut [u8],
        now: Instant,
    ) -> Fate {
        let fate = match side {
            Side::Client => self.on_client(flags, scratch, now),
            Side::Upstream => self.on_upstream(flags, scratch, now),
        };
        self.settled(fate, now)
    }

    fn on_client(&mut self, flags: EventFlags, scratch: &mut [u8], now: Instant) -> Fate {
        let closed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if closed && self.is_client_gone(flags) || self.client.flush().is_err() {
            return Fate::Reset;
        }
        if !self.reads_client() || flags == EventFlags::OUT {
            return Fate::Keep;
        }
        if let Stage::Open { upstream } = &mut self.stage
            && let Some(read) = upstream.take_unseen(&mut self.client, self.dialogue.unseen_asked())
        {
            if let Read::Bytes(length) = read {
                self.dialogue.asked_unseen(length);
                upstream.flush_if_taken();
            }
            return if matches!(read, Read::Broken) {
                Fate::Reset
            } else {
                Fate::Keep
            };
        }
        let length = match self.client.read(scratch) {
            Read::Bytes(length) => length,
            Read::Nothing | Read::End => return Fate::Keep,
            Read::Broken => return Fate::Reset,
        };
        let bytes = scratch.get(..length).unwrap_or_default();
        self.dialogue.asked(bytes);
        match &mut self.stage {
            Stage::Open { upstream } => {
                upstream.send_if_taken(bytes);
                Fate::Keep
            }
            Stage::Refusing { .. } => self.refuse(now),
            Stage::Waiting { .. } | Stage::Ending { .. } => Fate::Keep,
        }
    }

    fn on_upstream(&mut self, flags: EventFlags, scratch: &mut [u8], now: Instant) -> Fate {
        let reads = self.reads_upstream();
        let Stage::Open { upstream } = &mut self.stage else {
            return Fate::Keep;
        };
        upstream.flush_if_taken();
        if upstream.read_ended && flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            // It takes no more either, so the client need not send more.
            return self.end();
        }
        if !reads || flags == EventFlags::OUT {
            return Fate::Keep;
        }
        match upstream.read(scratch) {
            Read::Nothing => Fate::Keep,
            Read::End => self.upstream_ended(false, now),
            Read::Broken => self.upstream_ended(true, now),
            Read::Bytes(length) => {
                let bytes = scratch.get(..length).unwrap_or_default();
                self.dialogue.answered(bytes);
                match self.client.send(bytes) {
                    Ok(()) => Fate::Keep,
                    Err(_) => Fate::Reset,
                }
            }
        }
    }

    /// The link gives no more bytes: at its end, or because it is broken.
    fn upstream_ended(&mut self, broken: bool, now: Instant) -> Fate {
        match self.dialogue.standing() {
            Standing::Idle => self.end(),
            Standing::Unanswered { .. } => self.refuse(now),
            Standing::AnsweringUntilClose if !broken => self.end(),
            // What is not HTTP may go on in the other direction.
            Standing::Unknown if !broken => Fate::Keep,
            // A clean end would make a part look like the whole.
            Standing::Answering | Standing::AnsweringUntilClose | Standing::Unknown => Fate::Reset,
        }
    }

    /// Tells the client to come again, as soon as it has asked something. Nothing is ever sent to
    /// another link: the request may have been taken by the first.
    fn refuse(&mut self, now: Instant) -> Fate {
        let until = match self.stage {
            Stage::Refusing { until } => until,
            _ => now + HEAD_LIMIT,
        };
        self.stage = Stage::Refusing { until };
        match self.dialogue.standing() {
            Standing::Unanswered {
                head_sent: true,
                to_head,
            } => match self.client.send(&refusal::no_link(to_head)) {
                Ok(()) => self.end(),
                Err(_) => Fate::Reset,
            },
            Standing::Idle | Standing::Unanswered { .. } => Fate::Keep,
            _ => Fate::Reset,
        }
    }

    /// Nothing more comes for the client but what waits to be sent.
    fn end(&mut self) -> Fate {
        self.stage = Stage::Ending { until: None };
        Fate::Keep
    }

    /// Passes ends on once everything before them was sent, when it goes on at all.
    fn settled(&mut self, fate: Fate, now: Instant) -> Fate {
        if fate != Fate::Keep {
            return fate;
        }
        let client = &mut self.client;
        match &mut self.stage {
            Stage::Refusing { .. } if client.read_ended => Fate::Close,
            Stage::Waiting { .. } | Stage::Refusing { .. } => Fate::Keep,
            Stage::Open { upstream } => {
                if client.read_ended && upstream.is_flushed() {
                    upstream.end_writing();
                }
                if upstream.read_ended && client.is_flushed() {
                    client.end_writing();
                }
                if upstream.write_ended && client.write_ended {
                    Fate::Close
                } else {
                    Fate::Keep
                }
            }
            Stage::Ending { until } => {
                if client.is_flushed() {
                    client.end_writing();
                    until.get_or_insert(now + LINGER);
                    if client.read_ended {
                        return Fate::Close;
                    }
                }
                Fate::Keep
            }
        }
    }

    /// Whether a socket reported as closed cannot take an answer any more: it is broken, or it was
    /// closed after its client had said that it sends no more.
    const fn is_client_gone(&self, flags: EventFlags) -> bool {
        flags.contains(EventFlags::ERR)
            || self.is_waiting()
            || (self.client.read_ended && !self.client.write_ended)
    }

    const fn reads_client(&self) -> bool {
        !self.client.read_ended
            && match &self.stage {
                Stage::Waiting { .. } => false,
                Stage::Open { upstream } => upstream.is_flushed(),
                Stage::Refusing { .. } | Stage::Ending { .. } => true,
            }
    }

    const fn reads_upstream(&self) -> bool {
        match &self.stage {
            Stage::Open { upstream } => !upstream.read_ended && self.client.is_flushed(),
            _ => false,
        }
    }

    /// Tells epoll what to report. `closed` is the end that it just reported as closed.
    ///
    /// # Errors
    /// As the system says; the connection cannot go on.
    pub(super) fn watch(
        &mut self,
        epoll: BorrowedFd<'_>,
        slot: Slot,
        closed: Option<Side>,
    ) -> io::Result<()> {
        let (client, upstream_reads) = (self.reads_client(), self.reads_upstream());
        let token = slot.token(Side::Client);
        let is_closed = closed == Some(Side::Client);
        self.client.watch(epoll, token, client, is_closed)?;
        if let Stage::Open { upstream } = &mut self.stage {
            let token = slot.token(Side::Upstream);
            let is_closed = closed == Some(Side::Upstream);
            upstream.watch(epoll, token, upstream_reads, is_closed)?;
        }
        Ok(())
    }

    /// Closes it in order: its client sees an end, not the reset that every other end is, that of this
    /// process too.
    pub(super) fn close(self) {
        drop(self.client.no_reset_on_close());
    }
}
