//! `[audit]`: what an audited tree may hold, and what its tool may see.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::source::Sourced;
use super::tool::{AuditTool, ToolName};
use super::value::{Fault, Place, Read, Written, resolve_path, strings};

/// Which symlinks an audited tree may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkRule {
    /// None.
    Refuse,
    /// Those that stay inside the tree.
    Inside,
    /// All. Nothing of labproxy's follows them; the tool may.
    Allow,
}

/// What happens to an audited tree with something that is refused by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OddRule {
    /// It is a finding.
    Refuse,
    /// It is not: the tool's view has the tree without it.
    Omit,
}

/// `[audit]`: what an audited tree may hold, and what its tool may see.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Which symlinks it may hold.
    pub symlinks: Sourced<LinkRule>,
    /// Whether pipes, sockets and devices are findings.
    pub special: Sourced<OddRule>,
    /// Whether setuid and setgid files are findings; their bits never reach the view.
    pub setuid: Sourced<OddRule>,
    /// Most entries.
    pub max_entries: Sourced<u64>,
    /// Longest file, bytes.
    pub max_file_bytes: Sourced<u64>,
    /// All files together, bytes.
    pub max_bytes: Sourced<u64>,
    /// Patterns of paths that it must not hold, as in a `.gitignore`.
    pub deny: Sourced<Vec<String>>,
    /// How long a tool may run.
    pub timeout: Sourced<Duration>,
    /// Directories and files of this machine that a sandboxed tool may read too.
    pub read: Sourced<Vec<PathBuf>>,
    /// Memory that each process of a tool may write to, bytes. None by default: sanitizers map
    /// terabytes that they do not use.
    pub max_memory_bytes: Option<Sourced<u64>>,
    /// Processor time of each process of a tool, in whole seconds.
    pub max_cpu: Option<Sourced<Duration>>,
    /// Longest file that a tool may write, bytes.
    pub max_write_bytes: Sourced<u64>,
    /// Processes and threads of a tool at once.
    pub max_processes: Sourced<u64>,
    /// What a tool may keep in each of its own directories, bytes. Without it half of the machine's
    /// memory, which is the kernel's own limit.
    pub max_tmp_bytes: Option<Sourced<u64>>,
    /// How long older generations are kept.
    pub keep_age: Sourced<Duration>,
    /// Up to how many bytes of contents they are kept.
    pub keep_bytes: Sourced<u64>,
    /// `[audit.tool.NAME]`: tools that have a name.
    pub tools: BTreeMap<ToolName, Sourced<AuditTool>>,
}

impl Written<'_> {
    /// `audit.symlinks`.
    pub(super) fn link_rule(self) -> Read<LinkRule> {
        self.word(&[
            ("refuse", LinkRule::Refuse),
            ("inside", LinkRule::Inside),
            ("allow", LinkRule::Allow),
        ])
    }

    /// `audit.special` and `audit.setuid`.
    pub(super) fn odd_rule(self) -> Read<OddRule> {
        self.word(&[("refuse", OddRule::Refuse), ("omit", OddRule::Omit)])
    }

    /// A number of bytes or entries.
    pub(super) fn size(self) -> Read<u64> {
        self.count(u64::MAX)
    }

    /// Paths; relative ones start from the file's directory, `~/` is the home directory.
    pub(super) fn paths(self, place: Place<'_>) -> Read<Vec<PathBuf>> {
        let texts = match self {
            Self::Text(text) => text.split(',').map(str::to_owned).collect(),
            Self::Toml(value) => strings(value, "[\"/opt/tools\"]")?,
        };
        let resolved = texts.iter().map(|text| resolve_path(text, place));
        resolved
            .collect::<Result<_, _>>()
            .map_err(|what| vec![Fault::new(what)])
    }
}
