//! The terminal's settings, put back when an agent could not do so itself.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The settings of the terminal on stdin, where there is one.
#[derive(Debug)]
pub(super) struct TerminalState {
    settings: Option<Termios>,
}

impl TerminalState {
    /// The settings as they are now.
    pub(super) fn remember() -> Self {
        Self {
            settings: tcgetattr(std::io::stdin()).ok(),
        }
    }

    /// Puts them back: an agent that a signal ended may have left raw mode on.
    pub(super) fn restore(&self) {
        if let Some(settings) = &self.settings {
            let _no_terminal_any_more =
                tcsetattr(std::io::stdin(), OptionalActions::Drain, settings);
        }
    }
}
