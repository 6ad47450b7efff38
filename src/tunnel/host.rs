//! Hosts: everything that is known of one before connecting.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::destination::{Destination, DestinationError, Workdir, WorkdirError};

/// Everything that is known of a host before connecting.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostSpec {
    /// Where ssh connects to.
    pub destination: Destination,
    /// The user, where the destination names none.
    pub user: Option<String>,
    /// The port, where the destination names none.
    pub port: Option<u16>,
    /// The only key that is offered.
    pub key_path: Option<PathBuf>,
    /// A configuration of ssh that is read in place of the user's own and the system's.
    pub ssh_config: Option<PathBuf>,
    /// Where sessions are kept on the host.
    pub workdir: Workdir,
    /// Whether a forward may listen on the host's loopback when the server allows none on a socket.
    pub tcp_fallback: bool,
    /// Whether a host that was never seen is taken as it is.
    pub accept_new: bool,
    /// Whether the host's end of a mirror runs as root, by `sudo -n`.
    #[serde(default)]
    pub sudo: bool,
}

impl HostSpec {
    /// A host of which only the destination is known.
    pub fn new(destination: Destination) -> Self {
        Self {
            destination,
            user: None,
            port: None,
            key_path: None,
            ssh_config: None,
            workdir: Workdir::default(),
            tcp_fallback: false,
            accept_new: false,
            sudo: false,
        }
    }

    /// The user that is asked for; what the destination says goes first.
    pub fn user(&self) -> Option<&str> {
        self.destination.user().or(self.user.as_deref())
    }

    /// The port that is asked for; what the destination says goes first.
    pub fn port(&self) -> Option<u16> {
        self.destination.port().or(self.port)
    }
}
