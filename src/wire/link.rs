//! Messages between a controller and the supervisor of its session on the host.
//!
//! One *link* is one ssh connection: it dies with the network, the supervisor and what it runs do
//! not. Everything that must survive a link carries a position: bytes of a stream have offsets, a
//! signal has a number, a launch has an id. After a reconnection each side tells what it has, and
//! the other goes on from there; what comes twice is recognised and ignored.
//!
//! Each direction of each stream has a window: the sender stays within [`WINDOW`] bytes of what
//! the receiver has passed on, so that neither side holds more than that, and no stream waits for
//! another.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::bytes::ByteString;

/// Bytes of a stream that may be under way, unacknowledged: enough for 100 MiB/s at a round trip
/// of 80 ms.
pub const WINDOW: u64 = 8 * 1024 * 1024;
/// Longest encoded [`ExecSpec`]: above what any kernel takes of arguments and environment (6 MiB).
pub const SPEC_MAX: u64 = 8 * 1024 * 1024;
/// Programs that a session may know at once: as many as shims start, the agent itself and our own
/// short commands beside them. The host ends a link that asks for more.
pub const LAUNCHES_MAX: usize = 128;
/// Each side sends a [`ToHost::Ping`] or [`FromHost::Ping`] this often.
pub const HEARTBEAT_MS: u64 = 2_000;
/// A link that was silent this long is dead: seven heartbeats.
pub const SILENCE_MS: u64 = 15_000;

/// What `labproxy-remote supervise` reads first: a session's supervisor is started, unless one
/// lives, and the channel becomes its link. `attach` reads it too, and starts none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The session's name.
    pub session: String,
    /// The directory that holds `sessions/`; `~/` at its start is the user's home.
    pub workdir: ByteString,
    /// How long everything outlives its last link, milliseconds.
    pub lease_ms: u64,
    /// Which link this is, rising: a later one replaces an earlier one, never the other way round.
    pub link: u64,
    /// Whether the session must have a supervisor already: after a reconnection a new one would
    /// hide that the old one and its agents are gone.
    pub must_live: bool,
}

/// A launch of a program, chosen by the controller; never used twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExecId(pub u32);

/// An output of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OutputKind {
    /// Standard output; with a terminal, all output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A terminal's size, characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// What is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// A path, or a name that is looked up in the `PATH` of `environment`.
    pub program: ByteString,
    /// All arguments, `argv[0]` first.
    pub argv: Vec<ByteString>,
    /// The whole environment, but for what [`Self::inherit`] adds.
    pub environment: Vec<(ByteString, ByteString)>,
    /// Names that are taken from the login environment where `environment` does not have them:
    /// `HOME`, `PATH`, `USER` and the like.
    pub inherit: Vec<ByteString>,
    /// Where it runs: relative to the session's directory on the host, or absolute.
    pub directory: ByteString,
    /// Files that are made before it starts, 0600, in the session's private directory, whose path
    /// stands for `placeholder` in arguments and values.
    pub files: Vec<PrivateFile>,
    /// A terminal instead of three pipes.
    pub terminal: Option<WindowSize>,
    /// What in arguments, values and files stands for the forwarder's port and socket.
    pub endpoints: Endpoints,
}

/// A file that holds what must not stand in an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFile {
    /// One component, of letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// What is in it.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// The bytes that are replaced by its path wherever they stand in arguments and values.
    pub placeholder: ByteString,
}

/// Texts that are replaced in arguments, values and private files: the controller does not know
/// the host's port and paths when it writes them. Each is random enough to stand nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Becomes the forwarder's port on 127.0.0.1, decimal.
    pub port: ByteString,
    /// Becomes the path of the forwarder's unix socket.
    pub socket: ByteString,
    /// Becomes the session's directory on the host, absolute.
    pub session_directory: ByteString,
}

/// Signals that a controller passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecSignal {
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
    /// SIGTSTP.
    Stop,
    /// SIGCONT.
    Continue,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGKILL.
    Kill,
}

/// From the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost<'a> {
    /// The first message of a link: what the controller has of each launch it knows. Answered by
    /// [`FromHost::Attached`]. A launch that is not named is forgotten by the host.
    Attach {
        /// Every launch whose end the controller has not seen whole.
        execs: Vec<ExecProgress>,
    },
    /// I am here; answered by [`FromHost::Pong`] with the same number.
    Ping(u64),
    /// Answers a [`FromHost::Ping`].
    Pong(u64),
    /// The proxy is behind this from now on: the link's forward. Answered by
    /// [`FromHost::Forwarding`] when a request has gone through the whole chain.
    Forward(ForwardEnd),
    /// A part of an encoded [`ExecSpec`].
    Spec {
        /// Of which launch.
        exec: ExecId,
        /// Where it begins.
        offset: u64,
        /// The bytes.
        #[serde(with = "serde_bytes", borrow)]
        part: Cow<'a, [u8]>,
    },
    /// The spec is whole: start it. Answered by [`FromHost::Started`] or [`FromHost::NotStarted`],
    /// the second time as the first.
    Start {
        /// Which.
        exec: ExecId,
        /// Bytes of the encoded spec.
        length: u64,
    },
    /// Bytes for its standard input.
    Stdin {
        /// Of which launch.
        exec: ExecId,
        /// Where they stand in the stream.
        offset: u64,
        /// The bytes.
        #[serde(with = "serde_bytes", borrow)]
        bytes: Cow<'a, [u8]>,
    },
    /// Its standard input ends here.
    StdinEnd {
        /// Of which launch.
        exec: ExecId,
        /// The stream's length.
        length: u64,
    },
    /// The controller has passed on so much of an output.
    Received {
        /// Of which launch.
        exec: ExecId,
        /// Which output.
        output: OutputKind,
        /// All bytes before this one.
        offset: u64,
    },
    /// Send a signal to its process group (with a terminal: to the foreground group).
    Signal {
        /// To which launch.
        exec: ExecId,
        /// Counts a launch's signals from 1; a number that is not above the last is ignored.
        number: u64,
        /// Which.
        signal: ExecSignal,
    },
    /// The controller's terminal has this size now.
    Resize {
        /// Of which launch.
        exec: ExecId,
        /// The new size.
        size: WindowSize,
    },
    /// Its end is known: the host may forget it.
    Forget {
        /// Which.
        exec: ExecId,
    },
    /// End everything: TERM, `grace_ms`, KILL; answered by [`FromHost::Ended`], then the
    /// supervisor is gone.
    End {
        /// Between TERM and KILL.
        grace_ms: u64,
    },
    /// Nobody reads this output here any more: the program is told when it writes on, by SIGPIPE
    /// as from any pipe. Without a meaning for a terminal.
    CloseOutput {
        /// Of which launch.
        exec: ExecId,
        /// Which output.
        output: OutputKind,
    },
}

/// Where a link's ssh listens on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardEnd {
    /// On a unix socket, in the directory that [`FromHost::Attached`] gave.
    Socket(ByteString),
    /// On a port of 127.0.0.1: every user of the host can connect to it.
    Port(u16),
}

/// What the controller has of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecProgress {
    /// Which.
    pub exec: ExecId,
    /// Bytes of standard output that were passed on.
    pub stdout: u64,
    /// Bytes of standard error that were passed on.
    pub stderr: u64,
}

/// From the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost<'a> {
    /// The link is taken.
    Attached {
        /// A fresh directory of this link, 0700, for the forward's socket.
        forward_directory: ByteString,
        /// The forwarder's port on 127.0.0.1: the same for the session's whole life.
        port: u16,
        /// The session's directory on the host, absolute.
        session_directory: ByteString,
        /// Whose account everything runs in.
        user: User,
        /// Every launch that the controller named and the host knows.
        execs: Vec<ExecState>,
    },
    /// I am here; answered by [`ToHost::Pong`].
    Ping(u64),
    /// Answers a [`ToHost::Ping`].
    Pong(u64),
    /// A request went through the forward and was answered.
    Forwarding {
        /// How long it took, microseconds.
        micros: u64,
    },
    /// The forward does not work.
    NotForwarding {
        /// What failed, for a person.
        why: String,
    },
    /// It runs.
    Started {
        /// Which.
        exec: ExecId,
        /// Its pid on the host.
        pid: u32,
    },
    /// It cannot run.
    NotStarted {
        /// Which.
        exec: ExecId,
        /// Why.
        why: StartError,
    },
    /// Its standard input up to here was taken.
    StdinTaken {
        /// Of which launch.
        exec: ExecId,
        /// All bytes before this one.
        offset: u64,
    },
    /// It reads its standard input no more.
    StdinClosed {
        /// Of which launch.
        exec: ExecId,
    },
    /// What it wrote.
    Output {
        /// Which launch.
        exec: ExecId,
        /// Which output.
        output: OutputKind,
        /// Where the bytes stand in the stream.
        offset: u64,
        /// The bytes.
        #[serde(with = "serde_bytes", borrow)]
        bytes: Cow<'a, [u8]>,
    },
    /// It ended. What it had written until then stands before the given lengths; a descendant may
    /// write on after them.
    Exited {
        /// Which.
        exec: ExecId,
        /// How.
        end: ExecEnd,
        /// Bytes of standard output when it ended.
        stdout: u64,
        /// Bytes of standard error when it ended.
        stderr: u64,
    },
    /// Everything was ended; the last message.
    Ended(EndReport),
    /// The link is not taken, or no more; the last message.
    Refused(Refusal),
}

/// An account on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The login's name, when the login says one.
    pub name: Option<ByteString>,
    /// The number that the kernel goes by.
    pub uid: u32,
}

/// What the host has of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecState {
    /// Which.
    pub exec: ExecId,
    /// Bytes of its spec; [`ToHost::Spec`] goes on there.
    pub spec: u64,
    /// Whether [`ToHost::Start`] was seen.
    pub started: bool,
    /// Bytes of standard input that were taken; [`ToHost::Stdin`] goes on there.
    pub stdin: u64,
    /// The number of the last signal that was passed on.
    pub signals: u64,
}

/// How a launch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecEnd {
    /// It exited with this status.
    Exited(u8),
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: u8,
        /// The kernel ended it, or a process of its control group, for want of memory.
        out_of_memory: bool,
    },
}

/// Why a launch did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartError {
    /// No such program: 127.
    NotFound,
    /// It is there and cannot be run: 126.
    NotExecutable {
        /// The system's reason.
        errno: i32,
    },
    /// The kernel takes no such long argument, or not so many: 126.
    TooLong,
    /// The directory cannot be entered.
    Directory {
        /// The system's reason.
        errno: i32,
    },
    /// The host has no room for one more process, file or terminal.
    Exhausted {
        /// What was tried.
        what: String,
        /// The system's reason.
        errno: i32,
    },
    /// The spec is no spec.
    Malformed,
}

/// What the end of a session left, as the host sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReport {
    /// Processes that ended at TERM or by themselves.
    pub ended: u32,
    /// Processes that had to be killed.
    pub killed: u32,
    /// Processes that are still there.
    pub left: Vec<LeftProcess>,
    /// What outlives a session and was not there when it began: timers, jobs, keys, containers.
    pub escapes: Vec<String>,
    /// What could not be looked at, so that nothing can be said of it.
    pub unseen: Vec<String>,
}

/// A process that did not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftProcess {
    /// Its pid on the host.
    pub pid: u32,
    /// Its state, as in `ps`: `D` waits for a device and cannot be killed.
    pub state: char,
    /// Its name.
    pub name: ByteString,
}

/// Why a link is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No supervisor of this session lives.
    NoSupervisor,
    /// A later link has taken its place.
    Replaced,
    /// The lease is over and everything was ended.
    LeaseOver,
    /// Another process supervises a session of this name.
    Busy {
        /// Its pid.
        pid: u32,
    },
    /// A directory that is needed cannot be made or used.
    Directory {
        /// Which.
        path: ByteString,
        /// What is wrong with it, for a person.
        why: String,
    },
    /// A message that makes no sense here.
    Protocol {
        /// Which, for a person.
        what: String,
    },
    /// The host's side was killed, and everything of the session was ended. The last of a link
    /// that worked; what its programs ended with is not told, since it was not theirs.
    Killed {
        /// Which part of it.
        part: HostPart,
        /// Processes that could not be ended.
        left: u32,
    },
    /// Something else failed.
    Failed {
        /// What, for a person.
        what: String,
    },
}

/// A process of the host's side, of which each ends everything when the other is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPart {
    /// It holds the session's lock and ports.
    Guard,
    /// It runs the session's programs.
    Supervisor,
}
