//! Ending sessions, and bringing here what ended ones left on their hosts.

use super::{ResumeArgs, open_ledger};
use crate::cli::Context;
use crate::id::SessionId;
use crate::report::{self, Exit, Failure, Output};
use crate::session::workspace::home;
use crate::session::workspace::mirror::SessionMirror;
use crate::session::{changes, inside, listing, lookup};

/// The session of a `resume` that names nothing to run, when it has a workspace: then only its work is
/// wanted.
pub(super) fn only_work(args: &ResumeArgs, ctx: &Context) -> Result<Option<SessionId>, Failure> {
    if !args.run.agent.is_empty() || args.run.shim.is_some() {
        return Ok(None);
    }
    let paths = ctx.paths()?;
    let session = lookup::find(&args.id, &paths)?;
    Ok(SessionMirror::find(&session, &paths)?.map(|_| session))
}

/// Brings here the work of a session that runs no more.
pub(super) fn bring_home(
    session: &SessionId,
    ctx: &Context,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let around = ctx.around()?;
    inside::refuse_from_inside(&around.paths)?;
    let ledger = open_ledger(ctx, &around.paths)?;
    let line = home::bring(session, &around, &ledger)?;
    out.line(&crate::escape::escape_line(line))?;
    Ok(Exit::SUCCESS)
}

/// Ends one session, which may have been told already.
pub(super) fn stop(
    (session, was_told): (&SessionId, bool),
    ctx: &Context,
    ledger: &changes::OpenLedger<'_>,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let paths = ctx.paths()?;
    let stopped = changes::stop(session, &paths, ctx.environment(), ledger)?;
    let line = if stopped.was_running || was_told {
        format!("{session} has ended")
    } else {
        format!("{session} was not running")
    };
    out.line(&with_host(line, stopped.there))?;
    Ok(Exit::SUCCESS)
}

/// Ends every session that has not ended: all are told first, so that they end at the same time. One
/// that fails does not keep the others.
pub(super) fn stop_all(
    ctx: &Context,
    ledger: &changes::OpenLedger<'_>,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let paths = ctx.paths()?;
    let mut open = Vec::new();
    for one in listing::list(&paths)? {
        if one.state != "ended" {
            open.push(lookup::find(&one.session, &paths)?);
        }
    }
    let told: Vec<bool> = open
        .iter()
        .map(|session| changes::tell_to_stop(session, &paths))
        .collect();
    let mut exit = Exit::SUCCESS;
    for (session, was_told) in open.iter().zip(told) {
        if let Err(failure) = stop((session, was_told), ctx, ledger, out) {
            report::tell(&failure.within(session).render(ctx.stderr_style()));
            exit = Exit::FAILED;
        }
    }
    if open.is_empty() {
        out.line("no session runs")?;
    }
    Ok(exit)
}

/// A line about a session, with what its host says.
pub(super) fn with_host(line: String, there: Option<String>) -> String {
    match there {
        Some(there) => crate::escape::escape_line(format!("{line}; {there}")),
        None => line,
    }
}
