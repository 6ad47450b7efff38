//! The only place that reads the process's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The environment: the process's own, or a fixed one for tests.
#[derive(Clone, Debug)]
pub enum Environment {
    /// The process's own.
    Process,
    /// Exactly these variables.
    Fixed(BTreeMap<String, OsString>),
}

impl Environment {
    /// The value of a variable, where it is set.
    pub fn get(&self, name: &str) -> Option<OsString> {
        match self {
            Self::Process => std::env::var_os(name),
            Self::Fixed(variables) => variables.get(name).cloned(),
        }
    }

    /// Whether a variable is set to something.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_empty())
    }

    /// Every variable, in no particular order.
    pub fn all(&self) -> Vec<(OsString, OsString)> {
        match self {
            Self::Process => std::env::vars_os().collect(),
            Self::Fixed(variables) => variables
                .iter()
                .map(|(name, value)| (name.into(), value.clone()))
                .collect(),
        }
    }
}
