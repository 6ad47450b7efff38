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

/// All problems as one failure.
pub fn failure(problems: &[Problem]) -> Failure {
    let count = match problems.len() {
        1 => "a problem".to_owned(),
        count => format!("{count} problems"),
    };
    problems.iter().fold(
        Failure::usage(format!("the configuration has {count}")),
        |failure, problem| failure.problem(problem.to_string()),
    )
}
