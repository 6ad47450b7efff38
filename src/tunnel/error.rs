//! Why a session's tunnel ended before its session did.

use std::time::Duration;

use super::phase::Phase;
use super::transport::LinkError;
use crate::escape::escape;
use crate::report::Failure;
use crate::wire::link::{HostPart, Refusal};

/// Why there is no tunnel, or no more.
#[derive(Clone, Debug)]
pub enum TunnelError {
    /// The connection could not be made.
    Link(LinkError),
    /// A phase took longer than it may.
    Slow {
        /// Which.
        phase: Phase,
        /// How long it may take.
        limit: Duration,
    },
    /// The link was lost, and did not come back while the host kept the session.
    LeaseOver {
        /// How long that is.
        lease: Duration,
        /// What stood in the way at last.
        obstacle: Option<LinkError>,
    },
    /// The host's supervisor is gone: it was killed, or the host was restarted.
    SupervisorGone,
    /// The host does not take the link.
    Refused(Refusal),
    /// Requests do not get through.
    NotForwarding {
        /// Why, as the host says.
        why: String,
    },
    /// What came makes no sense.
    Protocol {
        /// Which part.
        what: String,
    },
    /// The session was told to end.
    Ending,
}

impl TunnelError {
    /// Whether nothing of the session can be left on the host.
    pub fn is_over_there(&self) -> bool {
        matches!(
            self,
            Self::SupervisorGone
                | Self::Refused(
                    Refusal::LeaseOver | Refusal::NoSupervisor | Refusal::Killed { left: 0, .. }
                )
        )
    }

    /// Whether the host's side of the session was killed, and not the link.
    pub fn is_host_killed(&self) -> bool {
        matches!(
            self,
            Self::SupervisorGone | Self::Refused(Refusal::Killed { .. })
        )
    }

    /// Whether it came before the session's supervisor was asked for. Of a first link this says that
    /// nothing of the session was begun on the host.
    pub fn is_before_supervisor(&self) -> bool {
        match self {
            Self::Link(LinkError { phase, .. }) | Self::Slow { phase, .. } => {
                *phase < Phase::Attach
            }
            // The helper looks at the directories first.
            Self::Refused(refusal) => matches!(refusal, Refusal::Directory { .. }),
            _ => false,
        }
    }

    /// As a user reads it.
    pub fn failure(&self, host: &str) -> Failure {
        match self {
            Self::Link(error) => error.failure.clone(),
            Self::Slow { phase, limit } => Failure::failed(format!(
                "{host} is too slow: {phase} took longer than {} s",
                limit.as_secs()
            ))
            .hint(format!("'labproxy host check {host}' times each step")),
            Self::LeaseOver { lease, obstacle } => {
                let failure = Failure::failed(format!(
                    "the link to {host} was lost, and the lease of {} s is over",
                    lease.as_secs()
                ))
                .hint("what the agent had written is in its workspace on the host")
                .hint("[session] lease sets how long a remote agent outlives a lost link");
                match obstacle {
                    Some(error) => {
                        failure.problem(format!("last try: {}", error.failure.message()))
                    }
                    None => failure,
                }
            }
            Self::SupervisorGone => Failure::failed(format!(
                "the session's supervisor on {host} is gone, and its agent with it"
            ))
            .hint(format!(
                "it was killed, or {host} was restarted; its log is in the session's directory there"
            )),
            Self::Refused(refusal) => refused(host, refusal),
            Self::NotForwarding { why } => Failure::failed(format!(
                "no request gets from {host} to the proxy here"
            ))
            .problem(why.clone())
            .hint(format!("'labproxy host check {host}' tries a forward")),
            Self::Protocol { what } => Failure::failed(format!(
                "what {host} sent makes no sense: {what}"
            ))
            .hint("this is an error in labproxy; the session's log has more"),
            Self::Ending => Failure::failed("the session is ending"),
        }
    }
}

fn refused(host: &str, refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::NoSupervisor => Failure::failed(format!("nothing of the session runs on {host}")),
        Refusal::Replaced => Failure::failed(format!(
            "another labproxy process has taken over the session on {host}"
        )),
        Refusal::LeaseOver => Failure::failed(format!(
            "the lease is over, and everything of the session on {host} was ended"
        )),
        Refusal::Busy { pid } => Failure::failed(format!(
            "process {pid} on {host} supervises a session of this name"
        )),
        Refusal::Directory { path, why } => Failure::failed(format!(
            "the directory {} on {host} cannot be used: {why}",
            escape(path.as_bytes())
        ))
        .hint("[host.NAME] workdir names another one"),
        Refusal::Protocol { what } => {
            Failure::failed(format!("{host} does not understand labproxy: {what}"))
        }
        Refusal::Killed { part, left } => {
            let part = match part {
                HostPart::Guard => "guard",
                HostPart::Supervisor => "supervisor",
            };
            let failure = Failure::failed(format!(
                "the session's {part} on {host} was killed, and its agent ended with it"
            ))
            .hint("its log is in the session's directory there");
            match left {
                0 => failure,
                left => failure.problem(format!("{left} processes could not be ended there")),
            }
        }
        Refusal::Failed { what } => {
            Failure::failed(format!("{host} does not take the session: {what}"))
        }
    }
}
