//! Something wrong with the configuration, and where it stands.

use std::fmt;

use super::source::Source;
use crate::report::Failure;

/// One thing that is wrong, and where: `file:line`, a variable, a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    at: Source,
    what: String,
}

impl Problem {
    /// Something wrong at a place.
    pub fn new(at: Source, what: impl Into<String>) -> Self {
        Self {
            at,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// Most problems that are shown: a file of nonsense must not push everything else off the screen.
const MAX_SHOWN: usize = 50;

/// The problems as lines of text, at most [`MAX_SHOWN`] of them and a count of the rest.
pub fn lines(problems: &[Problem]) -> Vec<String> {
    let mut lines: Vec<String> = problems
        .iter()
        .take(MAX_SHOWN)
        .map(Problem::to_string)
        .collect();
    let rest = problems.len() - lines.len();
    if rest > 0 {
        lines.push(format!("… and {rest} more"));
    }
    lines
}

/// All problems as one failure.
pub fn failure(problems: &[Problem]) -> Failure {
    let count = match problems.len() {
        1 => "a problem".to_owned(),
        count => format!("{count} problems"),
    };
    let failure = Failure::usage(format!("the configuration has {count}"));
    lines(problems).into_iter().fold(failure, Failure::problem)
}
