//! What ssh says on standard error: how far it came, and why it ended.
//!
//! `LogVerbose` marks lines of the two files that connect and authenticate with where they come
//! from and the pid; lines of a jump host's ssh have another pid. After authentication the host's
//! own standard error is mixed in, so nothing of that is taken for ssh's word.

use super::failure::Phase;

/// Lines that are kept of the time before authentication, and the last ones of the time after.
/// Real failures have twenty.
const LINES_MAX: usize = 400;
/// Bytes of a line that are kept.
const LINE_MAX: usize = 4_096;
/// Lines that are shown of a failure.
const LINES_SHOWN: usize = 3;

/// A line that ssh said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Whether it stands there only because we asked how far ssh came.
    pub(super) debug: bool,
    /// The pid, where it is told.
    pub(super) pid: Option<u32>,
    /// The text, without level and mark.
    pub(super) text: String,
}

impl Line {
    /// Reads `debug1: sshconnect.c:function():1 (pid=2): text` and `text`.
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim_end_matches(['\r', '\n']);
        let mut text = line;
        let mut debug = false;
        for level in ["debug1: ", "debug2: ", "debug3: "] {
            if let Some(rest) = text.strip_prefix(level) {
                (text, debug) = (rest, true);
            }
        }
        let marked = text
            .strip_prefix("sshconnect.c:")
            .or_else(|| text.strip_prefix("sshconnect2.c:"))
            .and_then(|rest| rest.split_once("): "))
            .and_then(|(mark, text)| Some((mark.rsplit_once("(pid=")?.1.parse().ok()?, text)));
        match marked {
            Some((pid, text)) => Self {
                debug,
                pid: Some(pid),
                text: text.to_owned(),
            },
            None => Self {
                debug,
                pid: None,
                text: text.to_owned(),
            },
        }
    }
}

/// Everything that ssh said, bounded.
#[derive(Debug)]
pub(super) struct Said {
    pid: u32,
    phase: Phase,
    before: Vec<Line>,
    after: std::collections::VecDeque<String>,
}

impl Said {
    /// By the process with this pid.
    pub(super) fn of(pid: u32) -> Self {
        Self {
            pid,
            phase: Phase::Resolving,
            before: Vec::new(),
            after: std::collections::VecDeque::new(),
        }
    }

    /// How far the connection came.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes in a line.
    pub(super) fn line(&mut self, bytes: &[u8]) {
        let bytes = bytes.get(..LINE_MAX).unwrap_or(bytes);
        let line = Line::parse(&String::from_utf8_lossy(bytes));
        if self.phase >= Phase::Authenticated {
            if self.after.len() == LINES_MAX {
                self.after.pop_front();
            }
            if !line.debug && !line.text.trim().is_empty() {
                self.after.push_back(line.text);
            }
            return;
        }
        if line.pid == Some(self.pid) {
            self.phase = self.phase.max(phase_of(&line.text));
        }
        if self.before.len() < LINES_MAX {
            self.before.push(line);
        }
    }

    /// The control socket answers.
    pub(super) fn is_up(&mut self) {
        self.phase = Phase::Up;
    }

    /// What was said before authentication.
    pub(super) fn before(&self) -> &[Line] {
        &self.before
    }

    /// The last lines of that for a person.
    pub(super) fn complaint(&self) -> String {
        let lines = self.before.iter().filter(|line| !line.debug);
        joined(lines.map(|line| line.text.as_str()).collect())
    }

    /// The last lines of what was said after authentication, by ssh or the host.
    pub(super) fn last_words(&self) -> String {
        joined(self.after.iter().map(String::as_str).collect())
    }
}

fn phase_of(text: &str) -> Phase {
    let starts = |prefix: &str| text.starts_with(prefix);
    if starts("Authenticated to ") || starts("Authentication succeeded") {
        Phase::Authenticated
    } else if starts("Host '") || starts("SSH2_MSG_SERVICE_ACCEPT") {
        Phase::Authenticating
    } else if starts("Connection established") || starts("Server host key: ") {
        Phase::Connected
    } else if starts("Connecting to ") || starts("Executing proxy command: ") {
        Phase::Connecting
    } else {
        Phase::Resolving
    }
}

/// The last lines of an output for a person.
pub(super) fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    joined(text.lines().collect())
}

fn joined(lines: Vec<&str>) -> String {
    let lines: Vec<&str> = lines
        .into_iter()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("@@@"))
        .collect();
    let skipped = lines.len().saturating_sub(LINES_SHOWN);
    lines
        .into_iter()
        .skip(skipped)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_off_and_name_the_process() {
        let line = Line::parse(
            "debug1: sshconnect.c:ssh_connect_direct():522 (pid=11335): Connection established.\r",
        );
        assert_eq!(
            (line.debug, line.pid, line.text.as_str()),
            (true, Some(11335), "Connection established.")
        );
        let line = Line::parse("ssh: Could not resolve hostname h: Name or service not known");
        assert_eq!((line.debug, line.pid), (false, None));
        let line = Line::parse("sshconnect2.c:userauth():640 (pid=7): u@h: Permission denied (x).");
        assert_eq!(line.text, "u@h: Permission denied (x).");
    }

    #[test]
    fn a_jump_host_does_not_move_the_phase() {
        let mut said = Said::of(7);
        said.line(b"debug1: sshconnect.c:f():1 (pid=8): Connection established.");
        assert_eq!(said.phase(), Phase::Resolving);
        said.line(b"debug1: sshconnect.c:f():1 (pid=7): Connecting to h [::1] port 22.");
        assert_eq!(said.phase(), Phase::Connecting);
        said.line(b"sshconnect2.c:f():1 (pid=8): Authenticated to jump ([::1]:22) using \"x\".");
        assert_eq!(said.phase(), Phase::Connecting);
        said.line(b"sshconnect2.c:f():1 (pid=7): Authenticated to h ([::1]:22) using \"x\".");
        assert_eq!(said.phase(), Phase::Authenticated);
        said.line(b"Permission denied (publickey).");
        assert_eq!(said.last_words(), "Permission denied (publickey).");
        assert!(!said.complaint().contains("Permission denied"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut said = Said::of(7);
        for number in 0..2 * LINES_MAX {
            said.line(format!("{number}").as_bytes());
        }
        said.line(b"sshconnect2.c:f():1 (pid=7): Authenticated to h.");
        for _ in 0..2 * LINES_MAX {
            said.line(&[b'x'; 2 * LINE_MAX]);
        }
        assert_eq!(said.before().len(), LINES_MAX);
        assert_eq!(said.after.len(), LINES_MAX);
        assert!(said.after.iter().all(|line| line.len() == LINE_MAX));
    }
}
