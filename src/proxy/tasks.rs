//! Every task that the proxy starts, so that shutdown can wait for them all.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A set of tasks that can be closed, joined and, past a deadline, aborted. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` once the set is closed.
    running: Mutex<Option<JoinSet<()>>>,
    runtime: Handle,
}

impl Tasks {
    /// An empty set whose tasks run on `runtime`.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            inner: Arc::new(Inner {
                running: Mutex::new(Some(JoinSet::new())),
                runtime,
            }),
        }
    }

    /// Starts `task`, and says whether it was started: a closed set drops it instead.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut running = self.lock();
        let Some(set) = running.as_mut() else {
            drop(running);
            return false;
        };
        set.spawn_on(task, &self.inner.runtime);
        // Ended tasks are taken out here, so that the set does not grow with the requests served.
        while let Some(ended) = set.try_join_next() {
            report(&ended);
        }
        true
    }

    /// Starts no more tasks, waits at most `limit` for the running ones, then aborts the rest;
    /// returns when none is left.
    pub(crate) async fn join(&self, limit: Duration) {
        let Some(mut set) = self.lock().take() else {
            return;
        };
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = set.join_next().await {
                report(&ended);
            }
        });
        if ended.await.is_err() {
            tracing::warn!(
                left = set.len(),
                "tasks did not end in time and are aborted"
            );
            set.shutdown().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<JoinSet<()>>> {
        self.inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(ended: &Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a proxy task panicked");
    }
}

/// Lets hyper's HTTP/2 client start its tasks in the set.
impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(async move {
            let _output = future.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn join_waits_for_tasks_and_then_takes_no_more() {
        let tasks = Tasks::new(Handle::current());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        assert!(tasks.spawn(async move {
            tokio::task::yield_now().await;
            sender.send(7).unwrap();
        }));
        tasks.join(Duration::from_secs(5)).await;
        assert_eq!(receiver.await, Ok(7));
        assert!(!tasks.spawn(async {}));
    }

    #[tokio::test]
    async fn a_task_that_never_ends_is_aborted() {
        let tasks = Tasks::new(Handle::current());
        let guard = Arc::new(());
        let held = guard.clone();
        tasks.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        tasks.join(Duration::from_millis(10)).await;
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
