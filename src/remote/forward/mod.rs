//! The forwarder: the agent's side of the way to the proxy.
//!
//! A process of its own that relays 127.0.0.1:PORT and a unix socket of this host to the socket
//! that the link's ssh listens on. It outlives links: the agent's port and path never change, a
//! connection that comes while no link works waits for one, and what a dying link leaves
//! unanswered gets an answer that clients take for "try again". The supervisor holds the listening
//! sockets and gives them to each forwarder it starts ([`Forwarder`]), so that no end of a forwarder
//! frees the port for somebody else.

mod bulk;
mod connection;
mod end;
mod framing;
mod handle;
mod listeners;
mod order;
mod peer;
pub mod probe;
mod refusal;
mod relay;
mod way;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use handle::{Forwarder, OWN_PROGRAM, ROLE};
pub use listeners::{Listeners, SOCKET_NAME};
pub use probe::{ProbeError, Prober};
pub use relay::CONNECTIONS_MAX;

/// Descriptors that the forwarder needs: two a connection, as many again while it sends much, and a few
/// of its own.
const DESCRIPTORS: u64 = 1280;

/// The role: relays until the supervisor at the other end of standard input is gone. The exit
/// status is 0 then, else 1 with the reason on standard error.
pub fn run() -> u8 {
    allow_descriptors();
    match relay::run(io::stdin().as_fd()) {
        Ok(()) => 0,
        Err(error) => {
            // Nowhere else to say that this failed.
            drop(writeln!(
                io::stderr(),
                "labproxy-remote: forwarder: {error}"
            ));
            1
        }
    }
}

/// Raises a low soft limit. Where it stays low, connections wait to be accepted sooner.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
