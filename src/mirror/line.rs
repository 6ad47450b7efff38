//! How far a mirror is: one line on a terminal, drawn again and again, and gone at the end.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::progress::{Amount, Phase, Progress};
use crate::clock::SharedClock;
use crate::config::Environment;
use crate::report::{self, counted};
use crate::tree::directory::Totals;

/// Drawn again at most so often: faster than this nobody reads.
const REDRAW: Duration = Duration::from_millis(100);
/// Columns of a terminal that does not tell.
const COLUMNS: u16 = 80;
/// No rate or time left is told before: the first moments say little.
const SETTLED: Duration = Duration::from_secs(1);

/// The line, or nothing where stderr is no terminal.
pub struct Line {
    clock: SharedClock,
    /// The other end, escaped.
    far: String,
    is_shown: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Option<(Phase, Option<Amount>, Duration)>,
    drawn_at: Option<Duration>,
    /// Columns that the last drawing took.
    drawn: usize,
}

impl Line {
    /// The line of this process.
    pub fn new(environment: &Environment, clock: SharedClock, far: String) -> Self {
        let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
        Self {
            clock,
            far,
            is_shown: std::io::stderr().is_terminal() && !dumb,
            state: Mutex::default(),
        }
    }

    fn draw(&self, state: &mut State, text: &str) {
        if !self.is_shown {
            return;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        let columns = columns(size.map_or(0, |size| size.ws_col));
        let text = cut(text, usize::from(columns).saturating_sub(1));
        let length = text.chars().count();
        // Blanks and no erasing: they are understood by every terminal.
        let rest = " ".repeat(state.drawn.saturating_sub(length));
        report::tell(&format!("\r{text}{rest}\r"));
        state.drawn = length;
    }

    /// Takes the line away.
    pub fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.drawn > 0 {
            self.draw(&mut state, "");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress for Line {
    fn begin(&self, phase: Phase, all: Option<Amount>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.since_boot();
        state.phase = Some((phase, all, now));
        state.drawn_at = Some(now);
        self.draw(
            &mut state,
            &text(phase, all, Amount::default(), Duration::ZERO),
        );
    }

    fn at(&self, done: Amount) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.since_boot();
        let is_due = state
            .drawn_at
            .is_none_or(|drawn| now.saturating_sub(drawn) >= REDRAW);
        if let (Some((phase, all, began)), true) = (state.phase, is_due) {
            state.drawn_at = Some(now);
            let passed = now.saturating_sub(began);
            self.draw(&mut state, &text(phase, all, done, passed));
        }
    }

    fn first_push(&self, all: Totals) {
        self.clear();
        report::tell(&format!(
            "first push: {}, {}, to {}\n",
            counted(all.files, "file", "files"),
            size(all.bytes),
            self.far
        ));
    }
}

/// What the line says.
fn text(phase: Phase, all: Option<Amount>, done: Amount, passed: Duration) -> String {
    let all = all.unwrap_or_default();
    let of = |done: String, all: Option<String>| match all {
        Some(all) => format!("{done} of {all}"),
        None => done,
    };
    let mut parts = vec![phase.to_string()];
    if done.entries > 0 || (all.entries > 0 && all.bytes == 0) {
        let all = (all.entries > 0).then(|| all.entries.to_string());
        parts.push(format!("{} entries", of(done.entries.to_string(), all)));
    }
    if done.bytes > 0 || all.bytes > 0 {
        let all = (all.bytes > 0).then(|| size(all.bytes));
        parts.push(of(size(done.bytes), all));
    }
    let milliseconds = passed.as_millis();
    if passed >= SETTLED && done.bytes > 0 {
        let rate = u128::from(done.bytes) * 1000 / milliseconds.max(1);
        parts.push(format!(
            "{}/s",
            size(u64::try_from(rate).unwrap_or(u64::MAX))
        ));
        if let Some(left) = all.bytes.checked_sub(done.bytes).filter(|left| *left > 0) {
            let left = u128::from(left) * milliseconds / u128::from(done.bytes) / 1000;
            parts.push(format!("{}:{:02} left", left / 60, left % 60));
        }
    }
    parts.join("  ")
}

/// How wide the terminal is that tells this; 0 is what one tells that nobody has told.
const fn columns(told: u16) -> u16 {
    match told {
        0 => COLUMNS,
        1 => 2,
        _ => told,
    }
}

/// Text that takes at most so many columns; all of ours is one column a character.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// Bytes as a person reads them.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => counted(bytes, "byte", "bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_known_and_nothing_else() {
        let amount = |entries, bytes| Amount { entries, bytes };
        let second = Duration::from_secs(1);
        let reading = text(Phase::Reading, None, amount(12, 4096), second);
        assert_eq!(reading, "reading  12 entries  4.0 KiB  4.0 KiB/s");
        let all = Some(amount(7, 10 << 20));
        let sending = text(Phase::Sending, all, amount(0, 5 << 20), 5 * second);
        assert_eq!(
            sending,
            "sending  5.0 MiB of 10.0 MiB  1.0 MiB/s  0:05 left"
        );
        let applying = text(Phase::Applying, Some(amount(9, 0)), amount(3, 0), second);
        assert_eq!(applying, "applying  3 of 9 entries");
        assert_eq!(cut(&sending, 10), "sending  5");
        assert_eq!((columns(0), columns(1), columns(132)), (80, 2, 132));
        assert_eq!(
            (size(1), size(1023)),
            ("1 byte".into(), "1023 bytes".into())
        );
    }
}
