//! Where a value of the configuration came from.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The layer, and the place in it, that a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Built in.
    Default,
    /// A file, with the line (from 1).
    File {
        /// The file as the user would name it.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag, such as `--cap`.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// A value from `source`.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}
