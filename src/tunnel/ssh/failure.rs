//! Why there is no link, or no link any more: closed classes, each with what to do about it.

mod remedy;
mod text;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How far a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The name is looked up, or a jump host is asked.
    Resolving,
    /// An address is connected to.
    Connecting,
    /// The server answers; keys are exchanged.
    Connected,
    /// The host's key is known; the user is checked.
    Authenticating,
    /// The user is taken.
    Authenticated,
    /// The control socket answers.
    Up,
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Resolving => "looking up the host",
            Self::Connecting => "connecting",
            Self::Connected => "exchanging keys",
            Self::Authenticating => "authenticating",
            Self::Authenticated => "opening a session",
            Self::Up => "connected",
        })
    }
}

/// What did not come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The user's ssh configuration, as ssh reads it.
    Configuration,
    /// The next phase of a connection.
    Connection(Phase),
    /// An answer of ssh itself.
    Ssh,
    /// The end of one of the connection's channels, for another to begin.
    FreeChannel,
    /// A channel of the host.
    Channel,
    /// A forward of the host.
    Forward,
    /// The helper.
    Helper,
    /// The helper's way to the host.
    HelperSent,
}

impl fmt::Display for Awaited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Configuration => "reading the ssh configuration",
            Self::Connection(phase) => return phase.fmt(out),
            Self::Ssh => "asking ssh",
            Self::FreeChannel => "waiting for one of the connection's channels",
            Self::Channel => "opening a session",
            Self::Forward => "asking for a forward",
            Self::Helper => "waiting for the helper",
            Self::HelperSent => "sending the helper",
        })
    }
}

/// A setting of the user's ssh configuration that a link does not work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSetting {
    /// The keyword, lower case, as `ssh -G` shows it.
    pub keyword: String,
    /// Its value; empty when a value is missing.
    pub value: String,
}

/// A directory of the host that cannot hold the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDirectory {
    /// Which.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// Why there is no link, or no link any more. Foreign text is escaped where it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFailure {
    /// No ssh program on this machine.
    NoSsh,
    /// Something on this machine.
    Here {
        /// What cannot be done.
        what: String,
        /// The reason.
        why: String,
    },
    /// The control socket's path would be too long for a socket.
    PathTooLong {
        /// The directory.
        directory: PathBuf,
        /// Most bytes that it may have.
        limit: usize,
    },
    /// ssh does not take the user's configuration.
    ConfigurationUnread {
        /// What ssh says.
        said: String,
    },
    /// The user's configuration asks for what would act beyond the link.
    ConfigurationRefused {
        /// Each such setting.
        settings: Vec<RefusedSetting>,
    },
    /// The name has no address.
    Unresolved {
        /// What ssh says.
        said: String,
    },
    /// No connection to the address, or none that speaks ssh.
    Unreachable {
        /// What ssh says.
        said: String,
    },
    /// The server turns connections away for now.
    Throttled {
        /// What ssh says.
        said: String,
    },
    /// The two sides have no algorithm in common.
    NoAgreement {
        /// What ssh says.
        said: String,
    },
    /// The host was never seen.
    HostKeyUnknown {
        /// The name in the list of known hosts.
        name: String,
        /// The fingerprint of the key that was offered, with its kind, where ssh tells it.
        offered: Option<String>,
        /// The command that asks the user and writes the key down.
        command: String,
    },
    /// The host has another key than it had.
    HostKeyChanged {
        /// The name in the list of known hosts.
        name: String,
        /// The fingerprint of the key that was offered, with its kind.
        offered: Option<String>,
        /// The fingerprint of the key that is known, with its kind.
        known: Option<String>,
        /// Where the known key stands: a file and a line.
        place: Option<String>,
        /// The command that forgets the known key.
        command: String,
    },
    /// The host's key was revoked, or its certificate is not good.
    HostKeyRefused {
        /// What ssh says.
        said: String,
    },
    /// The server does not take the user.
    AuthRefused {
        /// What ssh says.
        said: String,
        /// A key that would have been tried but is encrypted.
        encrypted: Option<PathBuf>,
        /// The server closed after too many keys.
        too_many: bool,
    },
    /// Nothing happened for too long.
    TimedOut {
        /// At what.
        what: Awaited,
        /// After how long.
        after: Duration,
    },
    /// The server takes no more sessions in this connection.
    ChannelRefused {
        /// What ssh says.
        said: String,
    },
    /// The server lets nothing listen there.
    ForwardRefused {
        /// Where.
        path: String,
        /// What ssh says.
        said: String,
    },
    /// The helper's greeting did not come.
    GreetingNotSeen {
        /// The first bytes that came instead, standard output before standard error.
        printed: String,
        /// The exit status of the remote command, when it ended.
        status: Option<i32>,
    },
    /// So much came before the greeting that it cannot be a banner.
    ShellNoise {
        /// The first bytes.
        printed: String,
    },
    /// The helper is of another version although its content is right: never by itself.
    OtherVersion {
        /// Its version.
        theirs: u16,
    },
    /// The host does not run Linux.
    OtherSystem {
        /// What it runs.
        system: String,
    },
    /// There is no helper for the host's architecture.
    NoHelper {
        /// The architecture, as `uname -m` says.
        architecture: String,
    },
    /// A helper beside the program is not the one it was built with.
    HelperAltered {
        /// Its path.
        path: PathBuf,
    },
    /// No directory of the host can hold the helper.
    NoDirectory {
        /// Each that was tried, and why not.
        tried: Vec<RefusedDirectory>,
    },
    /// The host's disk is full.
    DiskFull {
        /// The directory that was written to.
        directory: String,
        /// What the host says.
        said: String,
    },
    /// The helper is there and does not run.
    HelperCannotRun {
        /// What the host says.
        why: String,
    },
    /// The connection ended.
    LinkLost {
        /// What ssh says.
        said: String,
    },
    /// The connection was closed from this side.
    Closed,
}
