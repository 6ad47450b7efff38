//! The control socket of a running session: HTTP and JSON over `control.sock`.
//!
//! Only this user may speak, and nobody who descends from the session: an agent may not raise its
//! own cap. labproxy is a child subreaper, so what an agent leaves behind still shows labproxy among
//! its ancestors. `docs/control-api.md` tells users what they may ask.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `GET /v1/session` | | the receipt as it stands |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/audits` | | the audits, as `audit list --json` has them |
//! | `GET /v1/audits/N` | | one of them, as `audit show N --json` has it |
//! | `GET /v1/events` | | Server-Sent Events: [`events`] |
//! | `POST /v1/topup` | `{"pico_usd": N}` | [`Status`] |
//! | `POST /v1/pull` | | what `mirror pull --json` says |
//! | `POST /v1/push` | | what `mirror push --json` says |
//! | `POST /v1/stop` | | 202, [`Status`]; the socket goes away when the session has ended |
//!
//! [`server`] answers, [`stream`] goes on answering, [`client`] asks.

mod client;
pub mod events;
mod server;
mod stream;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::client::{ControlError, ask};
use self::events::Feed;
pub use self::server::{ControlServer, bind_private};
use super::workspace::asked::Direction;
use super::workspace::record::{Pull, Push};
use crate::id::SessionId;
use crate::mirror::state::WrittenPath;
use crate::report::Failure;

/// How long a caller may take to say what it wants, and a session to answer: the probe time of
/// `design.md` 12. A pull and a push take as long as they take.
const PROBE: Duration = Duration::from_secs(10);

/// The state of a session that brings its agent's work here: an end that takes its time.
pub const PULLING: &str = "pulling";

/// A session's state in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The session.
    pub session: SessionId,
    /// The owner's pid.
    pub pid: i32,
    /// `running`, `stopping`, or [`PULLING`].
    pub state: String,
    /// The cap.
    pub cap_pico_usd: u64,
    /// Charged so far.
    pub spent_pico_usd: u64,
    /// Held by requests in flight.
    pub held_pico_usd: u64,
    /// Requests that wait for room.
    pub waiting: usize,
    /// The agent's pid, while it runs.
    pub agent_pid: Option<i32>,
    /// How the link to the agent's host is; `None`: it works here.
    #[serde(default)]
    pub link: Option<HostLink>,
    /// Its workspace, when one is mirrored.
    #[serde(default)]
    pub workspace: Option<WorkspaceStatus>,
}

/// The mirrored workspace of a session in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceStatus {
    /// The directory here.
    pub local: WrittenPath,
    /// What the session does with it now because it was asked to.
    pub doing: Option<Direction>,
    /// The last pull that made or found a generation, whoever asked for it.
    pub last_pull: Option<Pull>,
    /// The last push that ended well, whoever asked for it.
    pub last_push: Option<Push>,
}

/// How the link of a session to its host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLink {
    /// There was none yet.
    Connecting,
    /// It works.
    Up,
    /// It is lost, and tried again.
    Lost,
}

impl HostLink {
    /// The word for people, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Lost => "lost",
        }
    }
}

/// An answer of a handler: the status and a JSON value, or a sentence.
pub type Answer = Result<(StatusCode, Value), Refusal>;

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// What the caller is told.
    pub message: String,
    /// What it is told beside the sentence.
    more: Map<String, Value>,
}

impl Refusal {
    /// A refusal with a sentence.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            more: Map::new(),
        }
    }

    /// What could not be done as things are: 409, with what was found and what helps.
    pub fn conflict(failure: &Failure) -> Self {
        let found = [failure.problems(), failure.causes()].concat();
        Self::new(StatusCode::CONFLICT, failure.message())
            .with("problems", found.into())
            .with("hints", failure.hints().to_vec().into())
    }

    /// Tells something beside the sentence.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.more.insert(key.to_owned(), value);
        self
    }

    /// The body of the answer.
    fn into_value(self) -> Value {
        let mut value = self.more;
        value.insert("error".to_owned(), self.message.into());
        Value::Object(value)
    }
}

/// What a running session can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The receipt as it stands.
    Session,
    /// The state in short.
    Status,
    /// Every audit.
    Audits,
    /// One audit.
    Audit {
        /// Its number.
        number: u64,
    },
    /// Raise the cap.
    TopUp {
        /// By so many pico-dollars.
        pico_usd: u64,
    },
    /// Pull the workspace, or push it.
    Sync(Direction),
    /// End the session.
    Stop,
}

impl Call {
    /// Its method and path. The version of the protocol is in every path.
    fn place(&self) -> (Method, String) {
        let (method, path) = match self {
            Self::Session => (Method::GET, "/v1/session"),
            Self::Status => (Method::GET, "/v1/status"),
            Self::Audits => (Method::GET, "/v1/audits"),
            Self::Audit { number } => return (Method::GET, format!("/v1/audits/{number}")),
            Self::TopUp { .. } => (Method::POST, "/v1/topup"),
            Self::Sync(Direction::Pull) => (Method::POST, "/v1/pull"),
            Self::Sync(Direction::Push) => (Method::POST, "/v1/push"),
            Self::Stop => (Method::POST, "/v1/stop"),
        };
        (method, path.to_owned())
    }
}

/// The body of a top-up.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopUpBody {
    pico_usd: u64,
}

/// Who answers the calls.
pub trait Controlled: Send + Sync + 'static {
    /// Does what a permitted caller asks.
    fn call(self: Arc<Self>, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

    /// Lets a permitted caller watch.
    fn watch(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Feed> + Send>>;
}
