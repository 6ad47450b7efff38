//! Messages of `labproxy-remote serve`: a controller asks, the host answers, one for one.

use serde::{Deserialize, Serialize};

use super::bytes::ByteString;
use super::link::ForwardEnd;

/// What the host is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// What kind of machine it is.
    Machine {
        /// The directory that holds `sessions/`; `~/` at its start is the user's home.
        workdir: ByteString,
    },
    /// Whether a Docker engine answers.
    Docker,
    /// Which GPUs there are.
    Gpus {
        /// As above: a lock stands there.
        workdir: ByteString,
    },
    /// Sessions that were here, and whether they still run.
    Sessions {
        /// As above.
        workdir: ByteString,
    },
    /// Makes a directory for a forward's socket, to try one.
    ForwardDirectory,
    /// Asks through a forward, as the probe of a session does.
    TryForward(ForwardEnd),
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Machine`].
    Machine(Machine),
    /// To [`Question::Docker`].
    Docker(Docker),
    /// To [`Question::Gpus`].
    Gpus(Gpus),
    /// To [`Question::Sessions`].
    Sessions(Vec<SessionHere>),
    /// To [`Question::ForwardDirectory`].
    ForwardDirectory(ByteString),
    /// To [`Question::TryForward`]: the HTTP status, and how long it took in microseconds.
    Forwarded {
        /// The status.
        status: u16,
        /// Microseconds.
        micros: u64,
    },
    /// It cannot be answered.
    Failed {
        /// Why, for a person.
        why: String,
    },
}

/// What kind of machine a host is. What could not be learned is `None`, never a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The login user's name.
    pub user: Option<String>,
    /// Its number.
    pub uid: u32,
    /// As `uname -m` says.
    pub architecture: String,
    /// Where sessions are, absolute.
    pub workdir: ByteString,
    /// Free bytes there, for this user.
    pub free_bytes: Option<u64>,
    /// 1 or 2.
    pub cgroup_version: Option<u8>,
    /// Whether a control group of our own can be made.
    pub cgroup_delegated: bool,
}

/// The Docker engine of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Docker {
    /// No `docker` program.
    Absent,
    /// The program is there, the engine does not answer.
    Silent {
        /// What the program said.
        why: String,
    },
    /// It answers.
    Here {
        /// Its version.
        version: String,
        /// `linux/amd64`, for example.
        platform: String,
    },
}

/// The GPUs of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gpus {
    /// No `nvidia-smi` program.
    Absent,
    /// The program is there and gave no list.
    Unknown {
        /// What it said.
        why: String,
    },
    /// The list.
    Here(Vec<Gpu>),
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// As `GPU-…`.
    pub uuid: String,
    /// As the driver calls it.
    pub name: String,
}

/// A session that was or is on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHere {
    /// Its name.
    pub session: String,
    /// Whether its supervisor lives; `None` when that cannot be told.
    pub running: Option<bool>,
    /// The supervisor's pid, when one was written down.
    pub pid: Option<u32>,
    /// Whether its workspace is there.
    pub workspace: bool,
}
