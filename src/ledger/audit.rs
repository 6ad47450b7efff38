//! What the ledger records of an audit.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One audit: what was looked at, by which tool, and what came of it.
///
/// Names and arguments are text in which bytes that are none are escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Which audit of its session: 1 is the first.
    pub number: u64,
    /// What was audited; nothing when nothing could be pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<AuditedGeneration>,
    /// The name that it has in the configuration, when it was run by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The tool's argv.
    pub tool: Vec<String>,
    /// Arguments beyond those that are recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_more: u64,
    /// What kept the tool in.
    pub sandbox: SandboxKind,
    /// Whether it had the network.
    pub network: bool,
    /// What it could use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ToolLimits>,
    /// The setting of the limit that ended it, where its status says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// When the pull began.
    pub began: Timestamp,
    /// Milliseconds from there to the verdict.
    pub duration_ms: u64,
}

/// The generation that was audited, as the mirror's store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedGeneration {
    /// The mirror's name.
    pub mirror: String,
    /// Its number there.
    pub generation: u64,
    /// The hash of its tree, 64 hexadecimal digits.
    pub tree: String,
    /// The hash of its manifest, which also covers what was only seen.
    pub manifest: String,
    /// When it was published.
    pub published: Timestamp,
    /// Entries of its tree.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a tool could use of the machine; nothing is without limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLimits {
    /// Memory of each process, bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time of each process.
    pub cpu_seconds: Option<u64>,
    /// Longest file that it could write, bytes.
    pub write_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Each of its own directories in memory, bytes.
    pub tmp_bytes: Option<u64>,
    /// Settings of limits that could not be enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
}

/// What kept a tool in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    /// bubblewrap: namespaces of its own.
    Bubblewrap,
    /// Nothing, by the user's explicit word: the tool had the user's own power.
    None,
}

/// One thing that the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFinding {
    /// Which path of the tree; empty for the whole tree.
    pub path: String,
    /// What is wrong with it.
    pub what: String,
}

/// What came of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The tool exited with 0, and its input is what it was.
    Passed,
    /// It exited with another status; 128 + n when signal n ended it.
    Failed {
        /// The status.
        status: u8,
    },
    /// What it was to look at is not what it was: it proves nothing.
    AlteredInput {
        /// The tool's status.
        status: u8,
        /// The hash of the tree afterwards; nothing when it could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<String>,
        /// Some of the paths that differ.
        paths: Vec<String>,
        /// How many differ.
        count: u64,
    },
    /// It ran longer than it may.
    TimedOut {
        /// How long it may, milliseconds.
        limit_ms: u64,
    },
    /// Somebody ended it by a signal to labproxy.
    Interrupted {
        /// Which.
        signal: i32,
    },
    /// The policy refuses the tree; the tool did not run.
    Findings {
        /// The first of them.
        findings: Vec<AuditFinding>,
        /// How many there are.
        count: u64,
    },
    /// The tool exited with 0, and what it made of its copy is the workspace's content now, here and
    /// on the host.
    Restored {
        /// The generation that has what it made.
        kept: u64,
        /// The hash of that tree; the one before is the audited generation's.
        tree: String,
        /// The hash of the tree that was pushed: without what is excluded or held back.
        pushed: String,
        /// Some of the paths that the tool changed.
        paths: Vec<String>,
        /// How many it changed.
        count: u64,
    },
    /// The tool exited with 0, and the policy refuses what it made of its copy: nothing was pushed.
    ChangeRefused {
        /// The hash of what it made.
        tree: String,
        /// The first findings.
        findings: Vec<AuditFinding>,
        /// How many there are.
        count: u64,
    },
    /// The tool exited with 0, and what it made of its copy could not become the workspace's content.
    NotRestored {
        /// The generation that has what it made, when there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<u64>,
        /// The hash of what it made.
        tree: String,
        /// Why.
        why: String,
    },
    /// There is nothing to look at; the tool did not run.
    NotPulled {
        /// Why.
        why: String,
    },
    /// The tool could not be started, or not be watched to its end.
    NotRun {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// One word for a listing.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::AlteredInput { .. } => "altered input",
            Self::TimedOut { .. } => "timed out",
            Self::Interrupted { .. } => "interrupted",
            Self::Findings { .. } => "findings",
            Self::Restored { .. } => "restored",
            Self::ChangeRefused { .. } => "change refused",
            Self::NotRestored { .. } => "not restored",
            Self::NotPulled { .. } => "not pulled",
            Self::NotRun { .. } => "not run",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
