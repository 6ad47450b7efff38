//! What the ledger is told of an audit.

use std::ffi::OsString;
use std::time::Duration;

use jiff::Timestamp;

use super::limits::{self, Limits};
use super::policy::Finding;
use super::tool::End;
use super::view::{Afterwards, text};
use crate::config::ToolName;
use crate::escape::escape_capped;
use crate::id::SessionId;
use crate::ledger::{
    Audit, AuditFinding, AuditedGeneration, Entry, Ledger, LedgerError, Reader, SandboxKind,
    Verdict,
};
use crate::mirror::store::GenerationHead;
use crate::report::Failure;
use crate::session::books;

/// Arguments that are recorded; more are counted.
pub const ARGUMENTS_MAX: usize = 100;
/// Characters of one argument, or of one reason, that are recorded.
pub const TEXT_MAX: usize = 2_000;
/// Findings that are recorded; all are told when they are found.
pub const FINDINGS_MAX: usize = 200;

/// What is known of an audit before its verdict.
#[derive(Debug)]
pub struct Begun<'a> {
    /// The name that it has in the configuration, when it is run by that.
    pub named: Option<&'a ToolName>,
    /// The tool's argv.
    pub argv: &'a [OsString],
    /// What keeps the tool in.
    pub sandbox: SandboxKind,
    /// Whether it has the network.
    pub network: bool,
    /// What it may use.
    pub limits: &'a Limits,
    /// When it began.
    pub began: Timestamp,
}

impl Begun<'_> {
    /// Appends the audit to the ledger; it is durable once this returns. The caller has the
    /// session's [`Desk`](super::desk::Desk), so that the number is nobody else's.
    ///
    /// # Errors
    /// When the ledger does not take it: then there is no verdict.
    pub fn record(
        &self,
        ledger: &Ledger,
        session: &SessionId,
        generation: Option<AuditedGeneration>,
        verdict: Verdict,
        passed: Duration,
    ) -> Result<Audit, Failure> {
        let shown = |argument: &OsString| escape_capped(argument.as_encoded_bytes(), TEXT_MAX);
        let more = self.argv.len().saturating_sub(ARGUMENTS_MAX);
        let audit = Audit {
            number: next_number(ledger, session)?,
            generation,
            named: self.named.map(ToString::to_string),
            tool: self.argv.iter().take(ARGUMENTS_MAX).map(shown).collect(),
            tool_more: u64::try_from(more).unwrap_or(u64::MAX),
            sandbox: self.sandbox,
            network: self.network,
            ended_by: limits::ended_by(&verdict, &self.limits.recorded).map(ToOwned::to_owned),
            limits: Some(self.limits.recorded.clone()),
            verdict,
            began: self.began,
            duration_ms: u64::try_from(passed.as_millis()).unwrap_or(u64::MAX),
        };
        let entry = Entry::Audited {
            audit: Box::new(audit.clone()),
        };
        books::append_now(ledger, session, entry)?;
        Ok(audit)
    }
}

fn next_number(ledger: &Ledger, session: &SessionId) -> Result<u64, Failure> {
    let entries = Reader::open(ledger.path()).and_then(|reader| reader.session(session));
    let entries = match entries {
        Err(LedgerError::NoSuchSession { .. }) => Vec::new(),
        entries => {
            entries.map_err(|error| Failure::because("the ledger cannot be read", &error))?
        }
    };
    let numbers = entries.iter().filter_map(|recorded| match &recorded.entry {
        Entry::Audited { audit } => Some(audit.number),
        _ => None,
    });
    Ok(numbers.max().unwrap_or(0).saturating_add(1))
}

/// A generation as the ledger names it.
pub fn generation(head: &GenerationHead) -> AuditedGeneration {
    AuditedGeneration {
        mirror: head.mirror.to_string(),
        generation: head.number.0,
        tree: head.tree.to_string(),
        manifest: blake3::Hash::from_bytes(head.manifest).to_hex().to_string(),
        published: head.time,
        entries: head.totals.entries,
        files: head.totals.files,
        bytes: head.totals.bytes,
    }
}

/// What findings are to the ledger.
pub fn findings(found: &[Finding]) -> Verdict {
    let (findings, count) = listed(found);
    Verdict::Findings { findings, count }
}

/// The first findings, and how many there are.
pub fn listed(found: &[Finding]) -> (Vec<AuditFinding>, u64) {
    let first = found.iter().take(FINDINGS_MAX);
    let findings = first.map(|finding| AuditFinding {
        path: text(&finding.path),
        what: escape_capped(finding.what.as_bytes(), TEXT_MAX),
    });
    let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
    (findings.collect(), count)
}

/// Why there is nothing to look at, or nobody looked.
pub fn reason(failure: &Failure) -> String {
    let mut why = failure.message().to_owned();
    for more in failure.problems().iter().chain(failure.causes()) {
        why.push_str("; ");
        why.push_str(more);
    }
    escape_capped(why.as_bytes(), TEXT_MAX)
}

/// The verdict on a tool that ran.
pub fn verdict(end: End, limit: Duration, view: Option<Afterwards>) -> Verdict {
    let status = match end {
        End::Exited(status) => status,
        End::TimedOut => {
            return Verdict::TimedOut {
                limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            };
        }
        End::Interrupted(signal) => return Verdict::Interrupted { signal },
    };
    match (view, status) {
        (Some(Afterwards::Same), 0) => Verdict::Passed,
        (Some(Afterwards::Same), status) => Verdict::Failed { status },
        (Some(Afterwards::Altered { tree, paths, count }), status) => Verdict::AlteredInput {
            status,
            tree: tree.map(|tree| tree.hash().to_string()),
            paths: paths.iter().map(text).collect(),
            count,
        },
        (None, _) => Verdict::NotRun {
            why: "its copy could not be read again".to_owned(),
        },
    }
}

/// The exit status of a verdict: the tool's own; 123 for what the policy or the copy says, 124 when
/// its time was over, 125 when nobody looked.
pub const fn exit_status(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Passed | Verdict::Restored { .. } => 0,
        // What passes on an altered input proves nothing.
        Verdict::AlteredInput { status: 0, .. }
        | Verdict::Findings { .. }
        | Verdict::ChangeRefused { .. } => 123,
        Verdict::Failed { status } | Verdict::AlteredInput { status, .. } => *status,
        Verdict::TimedOut { .. } => 124,
        Verdict::Interrupted { signal } => interrupted(*signal),
        Verdict::NotPulled { .. } | Verdict::NotRun { .. } | Verdict::NotRestored { .. } => 125,
    }
}

const fn interrupted(signal: i32) -> u8 {
    match signal {
        1 => 129,
        2 => 130,
        15 => 143,
        _ => 125,
    }
}
