//! Where the thread that hears leaves what it heard, and the one that waits is woken.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Entries;
use crate::tree::path::Name;

/// Names that are kept until somebody looks; of more it is only known that there were more. As many
/// as the kernel itself keeps by default (`fs.inotify.max_queued_events`).
const NAMES_MAX: usize = 16_384;

/// What happened to a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct What {
    /// Something came to stand there.
    pub(super) made: bool,
    /// What stood there was moved away.
    pub(super) left: bool,
    /// It was a directory, as far as was told.
    pub(super) directory: bool,
}

/// What was heard since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) entries: Entries,
    /// More happened than was told.
    pub(super) lost: bool,
}

/// What ends a wait.
#[derive(Debug)]
pub(super) enum Next {
    Told(Told),
    Quiet,
    Stopped,
}

/// Wakes whoever waits.
#[derive(Debug, Default)]
pub struct Wake {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    told: Told,
    stopped: bool,
}

impl Wake {
    /// Ends every wait, now and later.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.bell.notify_all();
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Waits so long; says whether it was ended meanwhile.
    pub fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state();
        while !state.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.sleep(state, left);
        }
        true
    }

    pub(super) fn tell(&self, directory: u32, name: Option<Name>, what: What) {
        let mut state = self.state();
        let told = &mut state.told;
        if told.entries.len() >= NAMES_MAX {
            told.entries.clear();
            told.lost = true;
        }
        if !told.lost {
            let known = told.entries.entry((directory, name)).or_default();
            known.made |= what.made;
            known.left |= what.left;
            known.directory |= what.directory;
        }
        self.bell.notify_all();
    }

    pub(super) fn tell_lost(&self) {
        let mut state = self.state();
        state.told.entries.clear();
        state.told.lost = true;
        self.bell.notify_all();
    }

    /// Waits until something was told, or until then.
    pub(super) fn next(&self, until: Option<Instant>) -> Next {
        let mut state = self.state();
        loop {
            if state.stopped {
                return Next::Stopped;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::Quiet;
            }
            if state.told.lost || !state.told.entries.is_empty() {
                return Next::Told(std::mem::take(&mut state.told));
            }
            state = match left {
                Some(left) => self.sleep(state, left),
                None => self
                    .bell
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        let woken = self.bell.wait_timeout(state, most);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
