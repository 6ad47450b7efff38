//! Signals and terminal sizes on their way to a program, with a link or without.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::wire::link::{ExecSignal, WindowSize};

/// Signals of a program that are kept for a host which may not have them. A user's keys while a link
/// is down are far fewer; of more, the kernel's own rule remains: one of each kind is pending.
const SIGNALS_MAX: usize = 64;

/// What a program's owner asks for, and what the tunnel has not told the host for sure.
#[derive(Debug)]
pub(in crate::tunnel) struct Orders {
    state: Mutex<State>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its number, in order.
    signals: VecDeque<(u64, ExecSignal)>,
    made: u64,
    size: Option<WindowSize>,
}

impl Orders {
    pub(super) fn new(wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            wake,
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn signal(&self, signal: ExecSignal) {
        let mut state = self.state();
        state.made = state.made.saturating_add(1);
        let number = state.made;
        if state.signals.len() >= SIGNALS_MAX {
            // The last of each kind stays, in its place.
            let mut kinds = Vec::new();
            let mut kept: VecDeque<_> = VecDeque::new();
            for (number, earlier) in state.signals.drain(..).rev() {
                if earlier != signal && !kinds.contains(&earlier) {
                    kinds.push(earlier);
                    kept.push_front((number, earlier));
                }
            }
            state.signals = kept;
        }
        state.signals.push_back((number, signal));
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn resize(&self, size: WindowSize) {
        self.state().size = Some(size);
        self.wake.notify_one();
    }

    /// The host has every signal up to this number.
    pub(super) fn had(&self, number: u64) {
        self.state().signals.retain(|(known, _)| *known > number);
    }

    /// The first signal behind this number.
    pub(super) fn after(&self, number: u64) -> Option<(u64, ExecSignal)> {
        let state = self.state();
        let mut all = state.signals.iter();
        all.find(|(known, _)| *known > number).copied()
    }

    /// The terminal's size, when it was ever told.
    pub(super) fn size(&self) -> Option<WindowSize> {
        self.state().size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(orders: &Orders) -> Vec<(u64, ExecSignal)> {
        let mut all = Vec::new();
        while let Some(next) = orders.after(all.last().map_or(0, |(number, _)| *number)) {
            all.push(next);
        }
        all
    }

    /// Signals keep their order and number; what the host has is forgotten.
    #[test]
    fn signals_are_kept_until_the_host_has_them() {
        let orders = Orders::new(Arc::default());
        for signal in [ExecSignal::Interrupt, ExecSignal::Interrupt] {
            orders.signal(signal);
        }
        let interrupts = [(1, ExecSignal::Interrupt), (2, ExecSignal::Interrupt)];
        assert_eq!(all(&orders), interrupts);
        orders.had(1);
        assert_eq!(all(&orders), interrupts[1..]);
    }

    /// However many come while there is no link, few are kept: one of each kind, the last.
    #[test]
    fn a_flood_of_signals_is_bounded_and_loses_no_kind() {
        let orders = Orders::new(Arc::default());
        orders.signal(ExecSignal::Terminate);
        for _ in 0..100_000 {
            orders.signal(ExecSignal::Interrupt);
            orders.signal(ExecSignal::HangUp);
            assert!(orders.state().signals.len() <= SIGNALS_MAX);
        }
        orders.signal(ExecSignal::Kill);
        let kept = all(&orders);
        assert!(kept.iter().any(|(_, kind)| *kind == ExecSignal::Terminate));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(kept.last(), Some(&(200_002, ExecSignal::Kill)));
    }
}
