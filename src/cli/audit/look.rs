//! `audit list`, `show` and `verify`.

use serde_json::json;

use super::{LookArgs, audits_of};
use crate::audit::history;
use crate::cli::Context;
use crate::escape::escape_line;
use crate::ledger::{Audit, AuditFinding, SandboxKind, ToolLimits, Verdict};
use crate::mirror::pair::Pair;
use crate::report::{Exit, Failure, Output, counted};
use crate::session::workspace::mirror::SessionMirror;
use crate::table::{Column, Table};

/// Lists a session's audits.
pub(super) fn list(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let session = args.session.find_recorded(ctx)?;
    let audits = audits_of(&session, ctx)?;
    if args.json {
        out.json(&json!({ "session": session, "audits": audits }))?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new([
        Column::number("N"),
        Column::text("TIME"),
        Column::text("VERDICT"),
        Column::text("SANDBOX"),
        Column::number("GENERATION"),
        Column::text("TREE"),
        Column::text("TOOL"),
    ]);
    for audit in &audits {
        let generation = audit.generation.as_ref();
        let tree = generation.map_or("-", |it| it.tree.get(..12).unwrap_or(&it.tree));
        table.row([
            audit.number.to_string().as_str(),
            &format!("{:.0}", audit.began),
            &verdict_text(&audit.verdict),
            sandbox_text(audit),
            &generation.map_or("-".to_owned(), |it| it.generation.to_string()),
            tree,
            &audit.tool.join(" "),
        ]);
    }
    if table.is_empty() {
        out.line(&format!("{session} has no audits"))?;
    } else {
        out.table(&table)?;
    }
    Ok(Exit::SUCCESS)
}

/// Shows one audit.
pub(super) fn show(
    number: u64,
    args: &LookArgs,
    ctx: &Context,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let session = args.session.find_recorded(ctx)?;
    let audit = history::find(audits_of(&session, ctx)?, number)?;
    if args.json {
        out.json(&json!({ "session": session, "audit": audit }))?;
        return Ok(Exit::SUCCESS);
    }
    let mut line = |name: &str, text: &str| out.line(&escape_line(format!("{name:<11} {text}")));
    line("session", session.as_str())?;
    line("audit", &audit.number.to_string())?;
    line("verdict", &verdict_text(&audit.verdict))?;
    line("began", &audit.began.to_string())?;
    line("took", &format!("{} ms", audit.duration_ms))?;
    if let Some(named) = &audit.named {
        line("named", named)?;
    }
    line("tool", &audit.tool.join(" "))?;
    if audit.tool_more > 0 {
        line("", &format!("and {} more arguments", audit.tool_more))?;
    }
    line("sandbox", sandbox_text(&audit))?;
    line("network", if audit.network { "yes" } else { "no" })?;
    if let Some(limits) = &audit.limits {
        line("limits", &limits_text(limits))?;
    }
    if let Some(limit) = &audit.ended_by {
        line("ended by", limit)?;
    }
    if let Some(generation) = &audit.generation {
        line("generation", &generation.generation.to_string())?;
        line("tree", &generation.tree)?;
        line("manifest", &generation.manifest)?;
        line("published", &generation.published.to_string())?;
        let files = counted(generation.files, "file", "files");
        line("holds", &format!("{files}, {} bytes", generation.bytes))?;
    }
    show_verdict(&audit.verdict, &mut line)?;
    Ok(Exit::SUCCESS)
}

/// Writes one line: what it is, and what it says.
type Line<'a> = dyn FnMut(&str, &str) -> Result<(), Failure> + 'a;

fn show_verdict(verdict: &Verdict, line: &mut Line<'_>) -> Result<(), Failure> {
    match verdict {
        Verdict::Findings { findings, count } => tell_findings(findings, *count, line)?,
        Verdict::Restored {
            kept,
            tree,
            pushed,
            paths,
            count,
        } => {
            line("tree after", tree)?;
            line("kept as", &format!("generation {kept}"))?;
            line("pushed", pushed)?;
            for path in paths {
                line("changed", path)?;
            }
            tell_more(*count, paths.len(), line)?;
        }
        Verdict::ChangeRefused {
            tree,
            findings,
            count,
        } => {
            line("tree after", tree)?;
            line("pushed", "nothing")?;
            tell_findings(findings, *count, line)?;
        }
        Verdict::NotRestored { kept, tree, why } => {
            line("tree after", tree)?;
            if let Some(kept) = kept {
                line("kept as", &format!("generation {kept}"))?;
            }
            line("because", why)?;
        }
        Verdict::AlteredInput { tree, paths, .. } => {
            line("tree after", tree.as_deref().unwrap_or("unknown"))?;
            for path in paths {
                line("altered", path)?;
            }
        }
        Verdict::NotPulled { why } | Verdict::NotRun { why } => line("because", why)?,
        Verdict::Passed
        | Verdict::Failed { .. }
        | Verdict::TimedOut { .. }
        | Verdict::Interrupted { .. } => {}
    }
    Ok(())
}

fn tell_findings(
    findings: &[AuditFinding],
    count: u64,
    line: &mut Line<'_>,
) -> Result<(), Failure> {
    for finding in findings {
        line("finding", &format!("{}: {}", finding.path, finding.what))?;
    }
    tell_more(count, findings.len(), line)
}

/// Says how many there are beyond those that are listed.
fn tell_more(count: u64, listed: usize, line: &mut Line<'_>) -> Result<(), Failure> {
    let more = count.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
    if more == 0 {
        return Ok(());
    }
    line("", &format!("and {more} more"))
}

/// Checks the ledger, and what the audits looked at.
pub(super) fn verify(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let session = args.session.find_recorded(ctx)?;
    let paths = ctx.paths()?;
    let audits = audits_of(&session, ctx)?;
    let mirror = SessionMirror::find(&session, &paths)?;
    let pair = match &mirror {
        Some(mirror) => Some(mirror.pair(&mirror.local()?, &ctx.around()?)?),
        None => None,
    };
    let store = pair.as_ref().map(Pair::store);
    let looked = history::verify(&paths.ledger(), &paths.anchor(), &audits, store)?;
    let is_sound = looked.problems.is_empty();
    if args.json {
        out.json(&json!({
            "session": session,
            "sound": is_sound,
            "ledger_entries": looked.entries,
            "audits": looked.audits,
            "proven": looked.proven,
            "without_generation": looked.without,
            "problems": looked.problems,
        }))?;
    } else {
        for problem in &looked.problems {
            out.line(&escape_line(problem))?;
        }
        let without = looked.without.len();
        let kept = match u64::try_from(without).unwrap_or(u64::MAX) {
            0 => String::new(),
            count => format!("; of {count} nothing is kept any more"),
        };
        out.line(&format!(
            "{}: {}, {} proven byte for byte{kept}; {} of the ledger",
            if is_sound { "sound" } else { "NOT SOUND" },
            counted(looked.audits, "audit", "audits"),
            looked.proven,
            counted(looked.entries, "entry", "entries"),
        ))?;
    }
    Ok(if is_sound {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

fn verdict_text(verdict: &Verdict) -> String {
    let word = verdict.word();
    match verdict {
        Verdict::Failed { status } => format!("{word} ({status})"),
        Verdict::AlteredInput { count, .. }
        | Verdict::Findings { count, .. }
        | Verdict::ChangeRefused { count, .. }
        | Verdict::Restored { count, .. } => {
            format!("{word} ({count})")
        }
        Verdict::TimedOut { limit_ms } => format!("{word} ({limit_ms} ms)"),
        Verdict::Interrupted { signal } => format!("{word} (signal {signal})"),
        Verdict::Passed
        | Verdict::NotPulled { .. }
        | Verdict::NotRestored { .. }
        | Verdict::NotRun { .. } => word.to_owned(),
    }
}

fn limits_text(limits: &ToolLimits) -> String {
    let parts = [
        (limits.memory_bytes, "bytes of memory"),
        (limits.cpu_seconds, "s of processor"),
        (limits.write_bytes, "bytes a file"),
        (limits.processes, "processes"),
        (limits.tmp_bytes, "bytes a directory"),
    ];
    let set = parts
        .iter()
        .filter_map(|(limit, of)| limit.map(|it| format!("{it} {of}")));
    let mut all: Vec<String> = set.collect();
    let not = limits.not_enforced.iter();
    all.extend(not.map(|name| format!("{name} NOT ENFORCED")));
    all.join(", ")
}

const fn sandbox_text(audit: &Audit) -> &'static str {
    match audit.sandbox {
        SandboxKind::Bubblewrap => "bubblewrap",
        SandboxKind::None => "NONE",
    }
}
