//! Messages of `labproxy-remote rsync`: what is said before the host's rsync has the channel.

use serde::{Deserialize, Serialize};

use super::bytes::ByteString;

/// Most arguments of an rsync that serves: it gets its options over the channel, and has five.
pub const ARGUMENTS_MAX: usize = 32;

/// From the host, the first and only message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRsync {
    /// What `rsync --version` prints.
    Version(String),
    /// There is no rsync, or it does not run.
    Absent {
        /// Why, for a person.
        why: String,
    },
}

/// From the controller, the first and only message: what comes after it is rsync's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToRsync {
    /// Where it runs, absolute: its root, or where it puts files.
    pub directory: ByteString,
    /// Its arguments, without its name; the first one is `--server`.
    pub arguments: Vec<ByteString>,
}
