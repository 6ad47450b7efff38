//! What a command tells its caller: data on stdout, failures on stderr, and the exit status.

use std::error::Error;
use std::io::{self, Write};
use std::panic::Location;
use std::process::ExitCode;

use serde::Serialize;

use crate::escape::{escape_line, json_safe};
use crate::table::{Style, Table};

/// Exit status of every failure of labproxy itself when there was a program to run, so that it
/// cannot be taken for the program's own.
const LABPROXY_FAILED: u8 = 125;

/// A number with its noun, as in `1 request`, `2 requests`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// What sort of failure it is; decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The command line or the configuration is wrong: nothing was tried.
    Usage,
    /// Something that was tried did not work.
    Failed,
    /// The program to run is not executable.
    NotExecutable,
    /// The program to run was not found.
    NotFound,
}

/// Whether a command line names a program to run, such as `session start -- claude`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// labproxy does something itself.
    Own,
    /// labproxy runs a program, whose exit status is passed through.
    Program,
}

/// The exit status of a command that went through, usually 0 or that of the program it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// The command did its work and the answer is no, such as a ledger that does not verify.
    pub const FAILED: Self = Self(1);
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// Why a command ends early: a sentence, what caused it, what to do about it.
///
/// The texts may hold foreign strings; they are escaped when the failure is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    message: String,
    problems: Vec<String>,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            problems: Vec::new(),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// A wrong command line or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    /// Something that did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, message)
    }

    /// Something that did not work, with an error and all that it names as its source.
    pub fn because(message: impl Into<String>, error: &dyn Error) -> Self {
        Self::failed(message).caused_by(error)
    }

    /// The same failure as a part of something: its sentence comes after this one.
    #[must_use]
    pub fn within(mut self, of: impl std::fmt::Display) -> Self {
        self.message = format!("{of}: {}", self.message);
        self
    }

    /// Adds one of several things that are wrong, such as `labproxy.toml:3: …`.
    #[must_use]
    pub fn problem(mut self, problem: impl Into<String>) -> Self {
        self.problems.push(problem.into());
        self
    }

    /// Adds an error and all that it names as its source.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            self.causes.push(cause.to_string());
            next = cause.source();
        }
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether there was no program to run.
    pub fn is_no_program(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::NotFound | FailureKind::NotExecutable
        )
    }

    /// The sentence, as given.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The things that are wrong, as given.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The chain of causes, as given.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// What the user can do, as given.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// The exit status: 126 and 127 as a shell has them; 125 for the rest when there was a program
    /// to run; else 2 for usage and configuration, 1 for what failed.
    pub fn exit(&self, job: Job) -> Exit {
        match (self.kind, job) {
            (FailureKind::NotExecutable, _) => Exit(126),
            (FailureKind::NotFound, _) => Exit(127),
            (FailureKind::Usage | FailureKind::Failed, Job::Program) => Exit(LABPROXY_FAILED),
            (FailureKind::Usage, Job::Own) => Exit(2),
            (FailureKind::Failed, Job::Own) => Exit(1),
        }
    }

    /// The failure as lines of text, escaped: `error: …`, the problems, `caused by: …`, `hint: …`.
    pub fn render(&self, style: Style) -> String {
        use std::fmt::Write as _;

        let mut text = format!("{} {}\n", style.alarm("error:"), escape_line(&self.message));
        // Writing to a string cannot fail.
        for problem in &self.problems {
            let _written = writeln!(text, "  {}", escape_line(problem));
        }
        for cause in &self.causes {
            let _written = writeln!(text, "  caused by: {}", escape_line(cause));
        }
        for hint in &self.hints {
            let _written = writeln!(text, "{} {}", style.bold("hint:"), escape_line(hint));
        }
        text
    }
}

/// Where a command's data goes. A reader that left, as in `labproxy … | head`, is not a failure:
/// what is written after that is dropped.
pub struct Output {
    sink: Box<dyn Write + Send>,
    style: Style,
    closed: bool,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("style", &self.style)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// Data goes to `sink`, tables in `style`.
    pub fn new(sink: Box<dyn Write + Send>, style: Style) -> Self {
        Self {
            sink,
            style,
            closed: false,
        }
    }

    /// Data goes to the process's stdout.
    pub fn stdout(style: Style) -> Self {
        Self::new(Box::new(io::BufWriter::new(io::stdout())), style)
    }

    /// How text for people may look.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Whether the reader left, so that a long listing may end early.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When stdout takes them neither now nor has been left by its reader.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let written = self.sink.write_all(bytes);
        self.check(written)
    }

    /// Writes one line of ours; foreign strings in it have to be escaped already.
    ///
    /// # Errors
    /// As for [`Output::raw`].
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.raw(line.as_bytes())?;
        self.raw(b"\n")
    }

    /// Writes a table.
    ///
    /// # Errors
    /// As for [`Output::raw`].
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        self.raw(table.render(self.style).as_bytes())
    }

    /// Writes a value as indented JSON.
    ///
    /// # Errors
    /// As for [`Output::raw`], and when the value has no JSON form.
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::because("the data has no JSON form", &error))?;
        self.line(&json_safe(&text))
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// As for [`Output::json`].
    pub fn json_line<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::because("the data has no JSON form", &error))?;
        self.line(&json_safe(&text))
    }

    /// Hands everything to the reader.
    ///
    /// # Errors
    /// As for [`Output::raw`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.sink.flush();
        self.check(flushed)
    }

    fn check(&mut self, done: io::Result<()>) -> Result<(), Failure> {
        match done {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(Failure::because(
                "standard output does not take the data",
                &error,
            )),
        }
    }
}

/// What is told of a panic, which is an error in labproxy: where, and the message, escaped.
pub fn panic_text(place: Option<&Location<'_>>, message: &str) -> String {
    let place = place.map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!(
        "error: labproxy has an error at {}: {}\n",
        escape_line(place),
        escape_line(message)
    )
}

/// Writes text to stderr. When that fails there is nobody left to tell.
pub fn tell(text: &str) {
    let mut stderr = io::stderr().lock();
    let _told = stderr.write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit statuses are those of the contract, with and without a program to run.
    #[test]
    fn exit_statuses_tell_whose_failure_it_was() {
        let exits = |kind| {
            let failure = Failure::new(kind, "x");
            (failure.exit(Job::Own).0, failure.exit(Job::Program).0)
        };
        assert_eq!(exits(FailureKind::Usage), (2, 125));
        assert_eq!(exits(FailureKind::Failed), (1, 125));
        assert_eq!(exits(FailureKind::NotExecutable), (126, 126));
        assert_eq!(exits(FailureKind::NotFound), (127, 127));
    }

    /// A failure is shown with everything it carries, and foreign text in it cannot draw.
    #[test]
    fn t37_a_failure_is_shown_escaped() {
        let io = io::Error::other("disk\x1b[2J full");
        let failure = Failure::because("cannot write 'a\nb'", &io)
            .problem("f.toml:3: bad \u{202e}")
            .hint("make room");
        assert_eq!(
            failure.render(Style::Plain),
            "error: cannot write 'a\\nb'\n  f.toml:3: bad \\u{202e}\n  \
             caused by: disk\\x1b[2J full\nhint: make room\n"
        );
    }

    /// A panic is told in one line, escaped, with its place.
    #[test]
    fn t37_a_panic_is_told_escaped() {
        let text = panic_text(Some(Location::caller()), "bad \x1b[2J\nname");
        assert!(text.starts_with("error: labproxy has an error at src/report.rs:"));
        assert!(text.ends_with(": bad \\x1b[2J\\nname\n"), "{text}");
    }

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    /// A reader that left ends the output quietly; a full disk does not.
    #[test]
    fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
        let mut left = Output::new(Box::new(Broken(io::ErrorKind::BrokenPipe)), Style::Plain);
        assert_eq!(left.line("x"), Ok(()));
        assert!(left.is_closed());
        assert_eq!(left.flush(), Ok(()));
        let mut full = Output::new(Box::new(Broken(io::ErrorKind::StorageFull)), Style::Plain);
        assert_eq!(full.line("x").unwrap_err().kind(), FailureKind::Failed);
    }
}
