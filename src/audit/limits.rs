//! What a tool may use of this machine besides time.
//!
//! The kernel counts for each process: its memory, its processor time, the files that it writes. The
//! number of processes is counted for the sandbox, which is a user namespace of its own; without one it
//! would be the user's own. Nothing is passed over in silence: what cannot be enforced here is named.

use crate::child::ProcessLimits;
use crate::config::AuditConfig;
use crate::ledger::{ToolLimits, Verdict};

/// What a shell says of a process that a signal ended.
const SIGNALLED: u8 = 128;

/// The limits of one tool.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// As the ledger has them.
    pub recorded: ToolLimits,
}

impl Limits {
    /// The limits that are configured, of which some have no effect without a sandbox, or for root.
    pub fn of(config: &AuditConfig, is_sandboxed: bool) -> Self {
        let mut recorded = ToolLimits {
            memory_bytes: config.max_memory_bytes.as_ref().map(|bytes| bytes.value),
            cpu_seconds: config
                .max_cpu
                .as_ref()
                .map(|time| time.value.as_secs().max(1)),
            write_bytes: Some(config.max_write_bytes.value),
            processes: Some(config.max_processes.value),
            tmp_bytes: config.max_tmp_bytes.as_ref().map(|bytes| bytes.value),
            not_enforced: Vec::new(),
        };
        if !is_sandboxed || rustix::process::geteuid().is_root() {
            // The kernel does not count root's processes, and those of a user are not the tool's alone.
            recorded.processes = None;
            recorded.not_enforced.push("audit.max_processes".to_owned());
        }
        if !is_sandboxed && recorded.tmp_bytes.take().is_some() {
            recorded.not_enforced.push("audit.max_tmp_bytes".to_owned());
        }
        Self { recorded }
    }

    /// Those of each process.
    pub const fn of_process(&self) -> ProcessLimits {
        ProcessLimits {
            memory_bytes: self.recorded.memory_bytes,
            cpu_seconds: self.recorded.cpu_seconds,
            write_bytes: self.recorded.write_bytes,
        }
    }
}

/// Which limit ended a tool, where its status says so: memory and processes are refused to a tool, which
/// then ends as it likes.
pub fn ended_by(verdict: &Verdict, limits: &ToolLimits) -> Option<&'static str> {
    use rustix::process::Signal;
    let Verdict::Failed { status } = verdict else {
        return None;
    };
    let signal = i32::from(status.checked_sub(SIGNALLED)?);
    if signal == Signal::XCPU.as_raw() && limits.cpu_seconds.is_some() {
        Some("audit.max_cpu")
    } else if signal == Signal::XFSZ.as_raw() && limits.write_bytes.is_some() {
        Some("audit.max_write_bytes")
    } else {
        None
    }
}
