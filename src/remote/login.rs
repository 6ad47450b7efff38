//! What the login gave us: its environment, of which an agent may inherit what its launch names,
//! and its umask. Our own processes run without either.

use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::wire::bytes::ByteString;
use crate::wire::link::User;

/// A login's environment and umask.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    environment: Vec<(ByteString, ByteString)>,
    umask: u32,
}

impl Login {
    /// Takes them, and makes everything that this process creates private from here on.
    pub fn take() -> Self {
        let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let environment = std::env::vars_os()
            .map(|(name, value)| (ByteString::from(&name), ByteString::from(&value)))
            .collect();
        Self {
            environment,
            umask: umask.bits(),
        }
    }

    /// This process's environment, where it serves itself; its umask stays.
    pub fn of_process() -> Self {
        let environment = std::env::vars_os()
            .map(|(name, value)| (ByteString::from(&name), ByteString::from(&value)))
            .collect();
        Self {
            environment,
            umask: 0,
        }
    }

    /// A variable's value.
    pub fn variable(&self, name: &[u8]) -> Option<&ByteString> {
        let found = self.environment.iter().find(|(n, _)| n.as_bytes() == name);
        found.map(|(_, value)| value)
    }

    /// All variables.
    pub fn environment(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let all = self.environment.iter();
        all.map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The user's home, when the login has an absolute one.
    pub fn home(&self) -> Option<PathBuf> {
        self.directory(b"HOME")
    }

    /// The home of whoever logged in: another one where sudo made the login root.
    pub fn home_of_login(&self) -> Option<PathBuf> {
        self.directory(b"LABPROXY_LOGIN_HOME")
            .or_else(|| self.home())
    }

    /// The absolute directory that a variable names.
    pub fn directory(&self, name: &[u8]) -> Option<PathBuf> {
        let path = self.variable(name)?.to_path_buf();
        path.is_absolute().then_some(path)
    }

    /// Whose account this is. The name is the one that the user logged in by: an account of many
    /// names, or one that no local file knows, is called as its user calls it.
    pub fn user(&self) -> User {
        let named = self.variable(b"LOGNAME").or(self.variable(b"USER"));
        User {
            name: named.filter(|name| !name.as_bytes().is_empty()).cloned(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// The login's umask.
    pub fn umask(&self) -> u32 {
        self.umask
    }
}
