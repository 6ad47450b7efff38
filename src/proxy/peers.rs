//! The connections of clients: how many there may be, and telling them to end.
//!
//! A connection begins as a stranger's. Strangers share a small pool in which the newest pushes out
//! the oldest, so that a flood of silent sockets cannot keep a client out, who shows the
//! placeholder with its first request; then it counts against the session's own limit.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::stream::ClientSocket;

/// Connections that have not shown the placeholder yet. Beyond it the oldest are closed, once they
/// have had their moment.
const MAX_STRANGERS: usize = 32;
/// However young they are, there are never more than this.
const MOST_STRANGERS: usize = 256;
/// A client that opens many connections at once sends on each of them within this time, even on a
/// busy machine.
const STRANGER_MOMENT: Duration = Duration::from_secs(1);
/// How long a stranger may take to show it; clients send their first request at once.
pub(crate) const STRANGER_LIMIT: Duration = Duration::from_secs(10);

/// What a connection is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Go on.
    Serve,
    /// Finish what is in flight, take nothing more.
    Finish,
    /// Close now.
    End,
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Peer {
    number: u64,
    is_known: AtomicBool,
    order: AtomicU8,
    waker: AtomicWaker,
    socket: Weak<ClientSocket>,
}

impl Peer {
    /// Whether it has shown the placeholder.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// What it is told to do; `waker` is woken when that changes.
    pub(crate) fn order(&self, waker: &Waker) -> Order {
        self.waker.register(waker);
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Finish,
            _ => Order::End,
        }
    }

    /// Whether the client has closed its connection, as of now.
    pub(crate) fn has_left(&self) -> bool {
        self.socket.upgrade().is_none_or(|socket| socket.has_left())
    }

    /// Whether it came by the unix socket, as every connection of a host does.
    pub(crate) fn is_by_unix(&self) -> bool {
        let socket = self.socket.upgrade();
        socket.is_some_and(|socket| matches!(*socket, ClientSocket::Unix(_)))
    }

    fn tell(&self, order: Order) {
        let number = match order {
            Order::Serve => 0,
            Order::Finish => 1,
            Order::End => 2,
        };
        self.order.fetch_max(number, Ordering::AcqRel);
        self.waker.wake();
    }
}

/// All connections of one proxy.
#[derive(Debug)]
pub(crate) struct Peers {
    max_known: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    known: usize,
    strangers: VecDeque<(u64, Instant)>,
    all: HashMap<u64, Arc<Peer>>,
    /// What a new connection is told at once.
    order: Option<Order>,
}

impl State {
    fn must_evict(&self) -> bool {
        let count = self.strangers.len();
        let is_old = |(_, since): &(u64, Instant)| since.elapsed() >= STRANGER_MOMENT;
        count >= MOST_STRANGERS
            || (count >= MAX_STRANGERS && self.strangers.front().is_some_and(is_old))
    }
}

impl Peers {
    pub(crate) fn new(max_known: usize) -> Self {
        Self {
            max_known,
            state: Mutex::new(State::default()),
        }
    }

    /// Takes a new connection in, as a stranger's.
    pub(crate) fn enter(&self, socket: &Arc<ClientSocket>) -> Arc<Peer> {
        let mut state = self.lock();
        let number = state.next;
        state.next = number.wrapping_add(1);
        let peer = Arc::new(Peer {
            number,
            is_known: AtomicBool::new(false),
            order: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            socket: Arc::downgrade(socket),
        });
        if let Some(order) = state.order {
            peer.tell(order);
        }
        while state.must_evict() {
            let Some((oldest, _)) = state.strangers.pop_front() else {
                break;
            };
            if let Some(evicted) = state.all.get(&oldest) {
                evicted.tell(Order::End);
            }
        }
        state.strangers.push_back((number, Instant::now()));
        state.all.insert(number, peer.clone());
        peer
    }

    /// The peer has shown the placeholder; `false` when there are too many of its kind.
    pub(crate) fn recognise(&self, peer: &Peer) -> bool {
        if peer.is_known() {
            return true;
        }
        let mut state = self.lock();
        if state.known >= self.max_known {
            return false;
        }
        state.known = state.known.saturating_add(1);
        state.strangers.retain(|(number, _)| *number != peer.number);
        peer.is_known.store(true, Ordering::Release);
        true
    }

    /// The connection is closed.
    pub(crate) fn leave(&self, peer: &Peer) {
        let mut state = self.lock();
        state.all.remove(&peer.number);
        if peer.is_known() {
            state.known = state.known.saturating_sub(1);
        } else {
            state.strangers.retain(|(number, _)| *number != peer.number);
        }
    }

    /// Tells every connection, and every later one, what to do.
    pub(crate) fn tell_all(&self, order: Order) {
        let mut state = self.lock();
        state.order = state.order.max(Some(order));
        for peer in state.all.values() {
            peer.tell(order);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
