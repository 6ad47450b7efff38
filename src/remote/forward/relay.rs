//! The forwarder's loop: one thread that waits for whatever happens at any socket.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with, getpeername};

use super::connection::{Connection, Fate, Side, Slot};
use super::listeners::Listeners;
use super::order::{self, Order, Received};
use super::peer::Peers;
use super::way::Way;

/// Connections at once; more wait to be accepted. As many as the proxy takes.
pub const CONNECTIONS_MAX: usize = 256;
/// How long a connection waits for a link: most links are back by then, and clients that wait for
/// an answer's head give up after minutes.
const LINK_WAIT: Duration = Duration::from_secs(30);
/// When a link's socket takes no connection, or no connection can be accepted: the next try.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// What passes at once in one direction of one connection: what it takes to read at the speed of
/// ssh.
const PASSED_MAX: usize = 64 * 1024;
/// Events of one turn.
const EVENTS: usize = 128;

const CONTROL: u64 = u64::MAX;
const TCP: u64 = u64::MAX - 1;
const UNIX: u64 = u64::MAX - 2;

/// The way to the proxy.
#[derive(Debug)]
enum Link {
    Up(Way),
    Down { lease_ends: Instant },
}

/// The forwarder.
#[derive(Debug)]
pub(super) struct Relay<'a> {
    epoll: OwnedFd,
    control: BorrowedFd<'a>,
    listeners: Listeners,
    /// Whether connections are accepted; not while there are too many.
    accepting: bool,
    /// When to accept again after that failed.
    accept_again: Option<Instant>,
    peers: Peers,
    link: Link,
    /// When to try the link's socket again for those that wait.
    join_again: Option<Instant>,
    slots: Vec<Option<Connection>>,
    open: usize,
    scratch: Vec<u8>,
}

/// Relays until the supervisor is gone.
///
/// # Errors
/// When the loop itself cannot go on.
pub(super) fn run(control: BorrowedFd<'_>) -> io::Result<()> {
    let Received::Order(order, Some(listeners)) = order::receive(control)? else {
        return Err(io::Error::other(
            "standard input does not give a forwarder's sockets: labproxy-remote starts this itself",
        ));
    };
    let mut relay = Relay {
        epoll: epoll::create(CreateFlags::CLOEXEC)?,
        control,
        listeners,
        accepting: false,
        accept_again: None,
        peers: Peers::new(),
        link: Link::Down {
            lease_ends: Instant::now(),
        },
        join_again: None,
        slots: Vec::new(),
        open: 0,
        scratch: vec![0; PASSED_MAX],
    };
    let token = EventData::new_u64(CONTROL);
    epoll::add(&relay.epoll, control, token, EventFlags::IN)?;
    for (descriptor, token) in relay.listeners.descriptors().into_iter().zip([TCP, UNIX]) {
        let token = EventData::new_u64(token);
        epoll::add(&relay.epoll, descriptor, token, EventFlags::empty())?;
    }
    relay.obey(order, Instant::now());
    relay.turn_until_the_end()
}

impl Relay<'_> {
    fn turn_until_the_end(&mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            self.accept_or_not()?;
            let timeout = self.time_left(Instant::now());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            let (mut tcp, mut unix) = (false, false);
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                match token {
                    CONTROL => match order::receive(self.control)? {
                        Received::Order(order, _) => self.obey(order, now),
                        Received::Nothing => {}
                        Received::End => return Ok(()),
                    },
                    TCP => tcp = true,
                    UNIX => unix = true,
                    token => self.on_event(token, flags, now),
                }
            }
            // After all else: a place must not be taken again while events of its last owner wait.
            if tcp {
                self.accept_tcp(now);
            }
            if unix {
                self.accept_unix(now);
            }
            self.on_time(now);
        }
    }

    /// Watches the listening sockets while there is room.
    fn accept_or_not(&mut self) -> io::Result<()> {
        let accepting = self.open < CONNECTIONS_MAX && self.accept_again.is_none();
        if accepting == self.accepting {
            return Ok(());
        }
        self.accepting = accepting;
        let wanted = if accepting {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        for (descriptor, token) in self.listeners.descriptors().into_iter().zip([TCP, UNIX]) {
            epoll::modify(&self.epoll, descriptor, EventData::new_u64(token), wanted)?;
        }
        Ok(())
    }

    fn time_left(&self, now: Instant) -> Option<Timespec> {
        let connections = self.slots.iter().flatten();
        let way = match &self.link {
            Link::Up(way) => way.deadline(),
            Link::Down { .. } => None,
        };
        let next = connections
            .filter_map(Connection::deadline)
            .chain(way)
            .chain(self.join_again)
            .chain(self.accept_again)
            .min()?;
        // Rounded up, so that it has passed when the wait is over.
        let left = next.saturating_duration_since(now) + Duration::from_micros(1);
        Timespec::try_from(left).ok()
    }

    fn obey(&mut self, order: Order, now: Instant) {
        match order {
            Order::Up(end) => {
                if matches!(&self.link, Link::Up(known) if *known.end() == end) {
                    return;
                }
                self.lose_link(now);
                self.link = Link::Up(Way::new(end));
                self.join_waiting(now);
            }
            Order::Down { lease_ms } => {
                let lease_ends = now
                    .checked_add(Duration::from_millis(lease_ms))
                    .unwrap_or(now);
                self.lose_link(now);
                self.link = Link::Down { lease_ends };
                self.join_again = None;
                for connection in self.slots.iter_mut().flatten() {
                    connection.wait_at_most(lease_ends);
                }
            }
        }
    }

    fn lose_link(&mut self, now: Instant) {
        self.each(|connection| connection.link_lost(now));
    }

    /// Does something with every connection.
    fn each(&mut self, mut act: impl FnMut(&mut Connection) -> Fate) {
        for at in 0..self.slots.len() {
            let Some(slot) = u32::try_from(at).ok().map(Slot) else {
                continue;
            };
            if let Some(Some(connection)) = self.slots.get_mut(at) {
                let fate = act(connection);
                self.done(slot, fate, None);
            }
        }
    }

    /// Something was done with a connection: what becomes of it?
    fn done(&mut self, slot: Slot, fate: Fate, closed: Option<Side>) {
        let Some(place) = usize::try_from(slot.0)
            .ok()
            .and_then(|at| self.slots.get_mut(at))
        else {
            return;
        };
        let fate = match (fate, place.as_mut()) {
            (Fate::Keep, Some(connection)) => {
                match connection.watch(self.epoll.as_fd(), slot, closed) {
                    Ok(()) => return,
                    Err(_) => Fate::Reset,
                }
            }
            (fate, _) => fate,
        };
        if let Some(connection) = place.take() {
            self.open -= 1;
            if fate == Fate::Close {
                connection.close();
            }
        }
    }

    fn on_event(&mut self, token: u64, flags: EventFlags, now: Instant) {
        let Some((slot, side)) = Slot::of(token) else {
            return;
        };
        let at = usize::try_from(slot.0).unwrap_or(usize::MAX);
        let Some(Some(connection)) = self.slots.get_mut(at) else {
            return;
        };
        let fate = connection.on_event(side, flags, &mut self.scratch, now);
        let is_answer = side == Side::Upstream && flags.contains(EventFlags::IN);
        let is_answered = is_answer && connection.is_open();
        let closed = flags
            .intersects(EventFlags::HUP | EventFlags::ERR)
            .then_some(side);
        self.done(slot, fate, closed);
        if is_answered
            && self.open < CONNECTIONS_MAX
            && let Link::Up(way) = &mut self.link
        {
            way.answered(&self.peers, now);
        }
    }

    fn on_time(&mut self, now: Instant) {
        if let Link::Up(way) = &mut self.link {
            way.on_time(now);
        }
        if self.accept_again.is_some_and(|again| again <= now) {
            self.accept_again = None;
        }
        if self.join_again.is_some_and(|again| again <= now) {
            self.join_waiting(now);
        }
        self.each(|connection| connection.on_time(now));
    }

    /// Joins every connection that waits with the link, if it takes them.
    fn join_waiting(&mut self, now: Instant) {
        self.join_again = None;
        for at in 0..self.slots.len() {
            if matches!(self.slots.get(at), Some(Some(connection)) if connection.is_waiting())
                && let Ok(slot) = u32::try_from(at)
            {
                self.join(Slot(slot), now);
            }
        }
    }

    /// Joins a connection with the link, or lets it wait.
    fn join(&mut self, slot: Slot, now: Instant) {
        let Some(at) = usize::try_from(slot.0).ok() else {
            return;
        };
        let (Link::Up(way), Some(Some(connection))) = (&mut self.link, self.slots.get_mut(at))
        else {
            return;
        };
        let mut fate = Fate::Keep;
        if let Ok(upstream) = way.take(&self.peers, now) {
            connection.join(upstream);
            // A client asks as soon as it is connected: mostly its request is there already, and is
            // on its way before epoll is even told of the connection.
            fate = connection.on_event(Side::Client, EventFlags::IN, &mut self.scratch, now);
        } else {
            // Gone, or too busy at the moment: the supervisor will say which.
            self.join_again = Some(now + TRY_AGAIN);
        }
        self.done(slot, fate, None);
    }

    fn accept_tcp(&mut self, now: Instant) {
        while self.open < CONNECTIONS_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(self.listeners.tcp(), flags) {
                Ok((socket, theirs)) => {
                    let theirs = theirs.and_then(|theirs| SocketAddrV4::try_from(theirs).ok());
                    if theirs.is_some_and(|theirs| self.is_welcome(&socket, theirs)) {
                        self.take(socket, now);
                    }
                }
                Err(error) => return self.not_accepted(error, now),
            }
        }
    }

    fn accept_unix(&mut self, now: Instant) {
        while self.open < CONNECTIONS_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(self.listeners.unix(), flags) {
                Ok(socket) => self.take(socket, now),
                Err(error) => return self.not_accepted(error, now),
            }
        }
    }

    fn not_accepted(&mut self, error: Errno, now: Instant) {
        if !matches!(error, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) {
            // No more descriptors or memory, until some are given back.
            self.accept_again = Some(now + TRY_AGAIN);
        }
    }

    /// Whether a connection is of our user or of root. Anybody on the host can connect to a port
    /// of the loopback.
    fn is_welcome(&self, socket: &OwnedFd, theirs: SocketAddrV4) -> bool {
        let ours = self.listeners.address();
        // Still connected after the look-up: so it was about this connection, not about a later
        // one with the same addresses.
        self.peers.is_friend(ours, theirs) && matches!(getpeername(socket), Ok(Some(_)))
    }

    fn take(&mut self, socket: OwnedFd, now: Instant) {
        let until = match &self.link {
            Link::Up(_) => now + LINK_WAIT,
            Link::Down { lease_ends } => (now + LINK_WAIT).min(*lease_ends),
        };
        let connection = Connection::new(socket, until);
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or(self.slots.len());
        match self.slots.get_mut(at) {
            Some(place) => *place = Some(connection),
            None => self.slots.push(Some(connection)),
        }
        self.open += 1;
        let Ok(slot) = u32::try_from(at).map(Slot) else {
            return;
        };
        if matches!(self.link, Link::Up(_)) {
            self.join(slot, now);
        } else {
            self.done(slot, Fate::Keep, None);
        }
    }
}
