//! An HTTP/1.1 connection to the upstream, driven by a task of its own while nobody reads from it,
//! and by the response's reader while one is read.
//!
//! The reader needs no switch of tasks for each chunk then, and sees everything that has already
//! come, so that it can pass it on in one piece.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::Connection;
use hyper_util::rt::TokioIo;

use super::stream::UpstreamStream;

type Http1 = Connection<TokioIo<UpstreamStream>, Full<Bytes>>;

/// The connection's own task.
pub(crate) struct Driving(Arc<Shared>);

/// Drives the connection in its task's place, from the first time it is asked to until it is
/// dropped.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    is_driving: bool,
}

/// What a connection's lease and its task share.
pub(crate) struct Shared(Mutex<State>);

struct State {
    /// `None` once it has ended.
    connection: Option<Http1>,
    /// A reader drives it: what the connection waits for wakes that reader.
    is_lent: bool,
    /// Wakes the connection's own task.
    task: Option<Waker>,
}

impl Shared {
    pub(crate) fn new(connection: Http1) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            connection: Some(connection),
            is_lent: false,
            task: None,
        })))
    }

    pub(crate) fn driving(self: &Arc<Self>) -> Driving {
        Driving(self.clone())
    }

    pub(crate) fn driver(self: &Arc<Self>) -> Driver {
        Driver {
            shared: self.clone(),
            is_driving: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = self.connection.as_mut() else {
            return Poll::Ready(());
        };
        let ended = std::task::ready!(Pin::new(connection).poll(cx));
        if let Err(error) = ended {
            tracing::debug!(%error, "an upstream connection ended");
        }
        self.connection = None;
        Poll::Ready(())
    }
}

impl Future for Driving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        match &mut state.task {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        // Polling it here would make it wake this task from then on.
        if state.is_lent && state.connection.is_some() {
            return Poll::Pending;
        }
        state.poll(cx)
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.lock().connection = None;
    }
}

impl Driver {
    /// Lets the connection do what it can do now; from then on it wakes the caller.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        let mut state = self.shared.lock();
        state.is_lent = true;
        self.is_driving = true;
        if state.poll(cx).is_ready()
            && let Some(task) = state.task.take()
        {
            task.wake();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.is_driving {
            let mut state = self.shared.lock();
            state.is_lent = false;
            if let Some(task) = state.task.take() {
                task.wake();
            }
        }
    }
}
