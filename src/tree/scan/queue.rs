//! The work of a scan, shared by its threads: what was begun comes before what is new, so that few
//! descriptors are open at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Work that makes more work.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Parts of what is open.
    begun: Vec<T>,
    /// What opens something new.
    new: Vec<T>,
    /// Threads that may still add work.
    busy: usize,
    /// Threads that wait for some: who waits for nothing is not woken, which costs a call each time.
    waiting: usize,
    stopped: bool,
}

/// A piece of work in a thread's hands; the work is over when all are dropped and none is left.
#[derive(Debug)]
pub(super) struct Taken<'a, T> {
    queue: &'a Queue<T>,
}

impl<T> Queue<T> {
    /// Begins with these.
    pub(super) const fn new(tasks: Vec<T>) -> Self {
        Self {
            state: Mutex::new(State {
                begun: Vec::new(),
                new: tasks,
                busy: 0,
                waiting: 0,
                stopped: false,
            }),
            wake: Condvar::new(),
        }
    }

    /// The next piece, waiting while others may still add some; nothing when all is done.
    pub(super) fn next(&self) -> Option<(T, Taken<'_, T>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stopped {
                return None;
            }
            let taken = state.begun.pop();
            if let Some(task) = taken.or_else(|| state.new.pop()) {
                state.busy += 1;
                return Some((task, Taken { queue: self }));
            }
            if state.busy == 0 {
                return None;
            }
            state.waiting += 1;
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Adds parts of what is open.
    pub(super) fn add_begun(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.begun.extend(tasks);
        self.wake(state);
    }

    /// Adds what opens something new.
    pub(super) fn add_new(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.new.extend(tasks);
        self.wake(state);
    }

    /// Drops all that is left.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        state.begun.clear();
        state.new.clear();
        self.wake(state);
    }

    fn wake(&self, state: MutexGuard<'_, State<T>>) {
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.wake.notify_all();
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.busy -= 1;
        if state.busy == 0 {
            self.queue.wake(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Work that was made by work is done by someone, and all threads end.
    #[test]
    fn all_work_is_done_once() {
        let queue = Queue::new(vec![10_u32]);
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some((task, _taken)) = queue.next() {
                        done.fetch_add(1, Ordering::Relaxed);
                        if task > 0 {
                            queue.add_begun([task - 1]);
                            queue.add_new([task - 1]);
                        }
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 2_u32.pow(11) - 1);
    }
}
