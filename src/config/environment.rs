//! The only place that reads the process's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

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

    /// The home directory that the user's account names, for when `HOME` does not.
    pub fn account_home(&self) -> Option<PathBuf> {
        match self {
            Self::Process => {
                directories::BaseDirs::new().map(|directories| directories.home_dir().to_owned())
            }
            Self::Fixed(_) => None,
        }
    }

    /// The name of every variable, in no particular order; no value is kept.
    pub fn names(&self) -> Vec<OsString> {
        match self {
            Self::Process => std::env::vars_os().map(|(name, _)| name).collect(),
            Self::Fixed(variables) => variables.keys().map(OsString::from).collect(),
        }
    }

    /// Every variable, in no particular order: for building a child's environment.
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
