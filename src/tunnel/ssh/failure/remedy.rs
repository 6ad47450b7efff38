//! What to do about a link that there is not: when to try again, and what the user can change.

use std::time::Duration;

use super::LinkFailure;
use crate::escape::escape;
use crate::quote::shown;

/// A server that turns connections away is left alone for so long: its penalties begin at 15 s
/// (sshd 9.8 and later) and grow with every further attempt.
const REST_WHEN_THROTTLED: Duration = Duration::from_secs(20);
/// What failed for a moment is tried again after this; the caller makes it longer each time.
const REST_AFTER_LOSS: Duration = Duration::from_millis(500);

impl LinkFailure {
    /// How long to wait at least before trying again; `None` when trying again changes nothing,
    /// or makes it worse: a refused user is counted by the server.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { .. } | Self::ChannelRefused { .. } => Some(REST_WHEN_THROTTLED),
            Self::Unreachable { .. }
            | Self::Unresolved { .. }
            | Self::TimedOut { .. }
            | Self::LinkLost { .. } => Some(REST_AFTER_LOSS),
            Self::NoSsh
            | Self::Here { .. }
            | Self::PathTooLong { .. }
            | Self::ConfigurationUnread { .. }
            | Self::ConfigurationRefused { .. }
            | Self::NoAgreement { .. }
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyChanged { .. }
            | Self::HostKeyRefused { .. }
            | Self::AuthRefused { .. }
            | Self::ForwardRefused { .. }
            | Self::GreetingNotSeen { .. }
            | Self::ShellNoise { .. }
            | Self::OtherVersion { .. }
            | Self::OtherSystem { .. }
            | Self::NoHelper { .. }
            | Self::HelperAltered { .. }
            | Self::NoDirectory { .. }
            | Self::DiskFull { .. }
            | Self::HelperCannotRun { .. }
            | Self::Closed => None,
        }
    }

    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::HostKeyUnknown { command, .. } => {
                format!("compare the fingerprint with one that you trust, then run: {command}")
            }
            Self::HostKeyChanged { command, .. } => format!(
                "ask who runs the host why its key changed; only when that is explained, run: \
                 {command}"
            ),
            Self::AuthRefused {
                encrypted: Some(path),
                ..
            } => format!(
                "that key is encrypted, and nothing can ask for its passphrase here; \
                 run this first: ssh-add {}",
                escape(shown(&path.to_string_lossy()))
            ),
            Self::NoHelper { architecture } => format!(
                "build 'labproxy-remote' for {} and put it beside 'labproxy'",
                escape(architecture)
            ),
            other => other.advice().to_owned(),
        }
    }

    /// The same where it does not depend on what was seen.
    fn advice(&self) -> &'static str {
        match self {
            Self::NoSsh => "install the OpenSSH client",
            Self::PathTooLong { .. } => "set XDG_RUNTIME_DIR to a shorter directory",
            Self::ConfigurationUnread { .. } => {
                "correct it, or name another file as ssh_config of the host"
            }
            Self::ConfigurationRefused { .. } => {
                "take these lines out for this host, or name another file as ssh_config of the host"
            }
            Self::Unresolved { .. } => "check the name: 'ssh -G NAME' shows what it stands for",
            Self::Unreachable { .. } => {
                "check the address, the port and the way there: 'ssh -v' shows each step"
            }
            Self::Throttled { .. } => {
                "wait a minute: the server limits connections (MaxStartups, PerSourcePenalties)"
            }
            Self::NoAgreement { .. } => {
                "name an algorithm that the server offers in your ssh configuration"
            }
            Self::AuthRefused { too_many: true, .. } => {
                "name the right key as key_path of the host: the agent holds more keys than the \
                 server tries"
            }
            Self::AuthRefused { .. } => {
                "'ssh' to the host must work without a question; put the public key into \
                 ~/.ssh/authorized_keys there, or name the right user and key_path"
            }
            Self::TimedOut { .. } => "check that the host is up and not overloaded",
            Self::ChannelRefused { .. } => {
                "the server's MaxSessions must be 10, as it is by default"
            }
            Self::ForwardRefused { .. } => {
                "the server must have 'AllowStreamLocalForwarding yes' (its default) and no \
                 'DisableForwarding'; or set tcp_fallback = true for the host, which costs this: any \
                 local user there can connect to the forwarded port (of no use without the session's \
                 placeholder)"
            }
            Self::GreetingNotSeen { .. } => {
                "the start-up files of the login shell must not end it, and the account must have \
                 a shell that runs commands"
            }
            Self::ShellNoise { .. } => "the start-up files of the login shell print without end",
            Self::OtherVersion { .. } => "end what replaces files on the host",
            Self::OtherSystem { .. } => "hosts run Linux",
            Self::HelperAltered { .. } => "take the file that came with this version of labproxy",
            Self::NoDirectory { .. } => {
                "set workdir of the host to a directory where programs can be written and run"
            }
            Self::DiskFull { .. } => "free space there, or set workdir of the host",
            Self::HelperCannotRun { .. } => "see what the host says",
            Self::LinkLost { .. } => "check the network",
            Self::Closed => "start again",
            Self::Here { .. }
            | Self::HostKeyRefused { .. }
            // With what was seen: `remedy` has these.
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyChanged { .. }
            | Self::NoHelper { .. } => "see the reason",
        }
    }
}
