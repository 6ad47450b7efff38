//! The terminal here, while the agent's terminal is on the host: keys go there as they are.

use std::io;

use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::wire::link::WindowSize;

/// The size of the terminal, when stdin and stdout are one: then the agent gets one too.
pub(super) fn size() -> Option<WindowSize> {
    if !isatty(io::stdin()) || !isatty(io::stdout()) {
        return None;
    }
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Raw mode, until it is dropped.
#[derive(Debug)]
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Switches raw mode on.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }

    /// Whether Ctrl-C, Ctrl-\\ and Ctrl-Z signal this process instead of being passed on.
    pub(super) fn signal_us(&self, yes: bool) {
        let mut raw = self.before.clone();
        raw.make_raw();
        raw.local_modes.set(LocalModes::ISIG, yes);
        let _no_terminal_any_more = tcsetattr(io::stdin(), OptionalActions::Now, &raw);
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _no_terminal_any_more = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}
