//! What `labproxy host check` found: one line for each step, in the order in which they were done.

use std::time::Duration;

use serde::Serialize;

use crate::wire::service::{Docker, Gpus, Machine, SessionHere};

/// A step of the way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// ssh's configuration is checked and the name looked up.
    Resolve,
    /// A connection to the address.
    Connect,
    /// The host's key.
    HostKey,
    /// The user's login.
    Authentication,
    /// What the login prints by itself.
    Shell,
    /// `labproxy-remote`: found or sent, started, greeted.
    Helper,
    /// The directory for sessions, and the room there.
    Disk,
    /// `ssh -R` to a unix socket, and a request through it.
    Forward,
    /// The Docker engine.
    Docker,
    /// Control groups.
    Cgroup,
    /// GPUs.
    Gpus,
    /// Sessions that run there, and what ended ones left.
    Sessions,
}

impl Step {
    /// All, in order.
    pub const ALL: [Self; 12] = [
        Self::Resolve,
        Self::Connect,
        Self::HostKey,
        Self::Authentication,
        Self::Shell,
        Self::Helper,
        Self::Disk,
        Self::Forward,
        Self::Docker,
        Self::Cgroup,
        Self::Gpus,
        Self::Sessions,
    ];

    /// As a line names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::HostKey => "host key",
            Self::Authentication => "authentication",
            Self::Shell => "shell",
            Self::Helper => "helper",
            Self::Disk => "disk",
            Self::Forward => "forward",
            Self::Docker => "docker",
            Self::Cgroup => "cgroup",
            Self::Gpus => "gpus",
            Self::Sessions => "sessions",
        }
    }
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A session would start, but there is something to know.
    Warning,
    /// A session would not start.
    Failed,
    /// Not come to.
    Skipped,
}

impl Verdict {
    /// As a line says it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Which.
    pub step: Step,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took, where that is known.
    #[serde(rename = "micros", serialize_with = "micros")]
    pub took: Option<Duration>,
    /// What was found. It may hold foreign text.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

#[allow(clippy::ref_option, reason = "serde calls it so")]
fn micros<S: serde::Serializer>(took: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
        .serialize(out)
}

impl Line {
    /// A step that went well.
    pub fn ok(step: Step, took: Option<Duration>, detail: impl Into<String>) -> Self {
        Self {
            step,
            verdict: Verdict::Ok,
            took,
            detail: detail.into(),
            remedy: None,
        }
    }

    /// The same step with something to know about it.
    #[must_use]
    pub fn warns(mut self, remedy: impl Into<String>) -> Self {
        self.verdict = Verdict::Warning;
        self.remedy = Some(remedy.into());
        self
    }

    /// A step after which no session starts.
    pub fn failed(step: Step, took: Duration, detail: impl Into<String>, remedy: String) -> Self {
        Self {
            step,
            verdict: Verdict::Failed,
            took: Some(took),
            detail: detail.into(),
            remedy: Some(remedy),
        }
    }
}

/// Least free space that is not worth a word: what a session's output may fill while its link is
/// down, twice.
const ROOM: u64 = 512 * 1024 * 1024;

/// Where sessions are kept, and how much room there is.
pub fn disk(machine: &Machine, took: Duration) -> Line {
    let place = String::from_utf8_lossy(machine.workdir.as_bytes());
    let user = machine.user.as_deref().unwrap_or("an unknown user");
    let place = format!("{place} ({user}, {})", machine.architecture);
    let line = |detail| Line::ok(Step::Disk, Some(took), detail);
    match machine.free_bytes {
        Some(free) if free >= ROOM => line(format!("{} free in {place}", size(free))),
        Some(free) => line(format!("{} free in {place}", size(free)))
            .warns("what an agent writes while the link is down may need 256 MiB"),
        None => line(format!("unknown free space in {place}"))
            .warns("the file system does not tell its free space"),
    }
}

/// The control groups.
pub fn cgroup(machine: &Machine) -> Line {
    let line = |detail: String| Line::ok(Step::Cgroup, None, detail);
    let contained = "a bare agent's processes are found by their parents alone, and 'out of \
                     memory' is told for the agent itself only";
    let version = match machine.cgroup_version {
        Some(version) => format!("version {version}"),
        None => "unknown version".to_owned(),
    };
    if machine.cgroup_delegated {
        line(format!("{version}, with a group for each session"))
    } else {
        line(format!("{version}, without a group of our own")).warns(contained)
    }
}

/// The Docker engine. A bare session does without.
pub fn docker(docker: &Docker, took: Duration) -> Line {
    let line = |detail: String| Line::ok(Step::Docker, Some(took), detail);
    match docker {
        Docker::Here { version, platform } => line(format!("{version} on {platform}")),
        Docker::Absent => {
            line("not installed".to_owned()).warns("needed for workbenches, which come later")
        }
        Docker::Silent { why } => line(format!("does not answer: {why}"))
            .warns("needed for workbenches, which come later; may this user talk to the engine?"),
    }
}

/// The GPUs.
pub fn gpus(gpus: &Gpus, took: Duration) -> Line {
    let line = |detail: String| Line::ok(Step::Gpus, Some(took), detail);
    match gpus {
        Gpus::Here(list) => {
            let names: Vec<&str> = list.iter().map(|gpu| gpu.name.as_str()).collect();
            line(format!("{}: {}", list.len(), names.join(", ")))
        }
        Gpus::Absent => {
            line("no nvidia-smi".to_owned()).warns("without NVIDIA's driver none can be told")
        }
        Gpus::Unknown { why } => line(format!("unknown: {why}"))
            .warns("'nvidia-smi' on the host must work before an agent can"),
    }
}

/// The sessions there.
pub fn sessions(list: &[SessionHere], took: Duration) -> Line {
    let of = |wanted: fn(&SessionHere) -> bool| list.iter().filter(|one| wanted(one)).count();
    let running = of(|one| one.running == Some(true));
    let unknown = of(|one| one.running.is_none());
    let left = of(|one| one.running == Some(false) && one.pid.is_some());
    let ended = of(|one| one.running == Some(false) && one.pid.is_none() && one.workspace);
    let mut parts = Vec::new();
    for (count, what) in [
        (running, "running"),
        (ended, "ended, with its workspace"),
        (left, "dead, with what it left"),
        (unknown, "of which nothing can be told"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if parts.is_empty() {
        parts.push("none".to_owned());
    }
    let line = Line::ok(Step::Sessions, Some(took), parts.join(", "));
    match (left, unknown) {
        (0, 0) => line,
        (0, _) => line.warns("their processes cannot be seen from there, so nothing is removed"),
        (_, _) => line.warns("sockets and records go with the next session on this host"),
    }
}

/// A time for people: milliseconds with a tenth, or seconds.
pub fn time_of(micros: u64) -> String {
    match micros {
        0..10_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{} s", micros / 1_000_000),
    }
}

/// A size for people, with the unit that leaves two digits at least.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["MiB", "GiB", "TiB", "PiB"];
    let mut shown = bytes / (1024 * 1024);
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"MiB");
    while shown >= 10 * 1024
        && let Some(next) = units.next()
    {
        shown /= 1024;
        unit = next;
    }
    format!("{shown} {unit}")
}
