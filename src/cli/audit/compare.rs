//! `audit diff`: what two audits looked at, side by side.

use serde_json::json;

use super::{LookArgs, audits_of};
use crate::audit::changes::changes;
use crate::audit::diff::{self, kind};
use crate::audit::history::{self, Unavailable};
use crate::audit::view::text;
use crate::cli::Context;
use crate::mirror::store::Store;
use crate::report::{Exit, Failure, Output};
use crate::session::workspace::mirror::SessionMirror;
use crate::tree::directory::Directory;

/// Compares two audits of a session.
pub(super) fn diff(
    (old, new): (u64, u64),
    args: &LookArgs,
    ctx: &Context,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let session = args.session.find(ctx)?;
    let mirror = SessionMirror::of(&session, &ctx.paths()?)?;
    let pair = mirror.pair(&mirror.local()?, &ctx.around()?)?;
    let store = pair.store();
    let audits = audits_of(&session, ctx)?;
    let tree = |number| -> Result<Directory, Failure> {
        tree_of(&history::find(audits.clone(), number)?, store)
    };
    let (before, after) = (tree(old)?, tree(new)?);
    let count = if args.json {
        let mut paths = Vec::new();
        changes(&before, &after, &mut |path, sides| {
            paths.push(json!({
                "path": text(path),
                "old": kind(sides.old),
                "new": kind(sides.new),
            }));
        });
        out.json(&json!({ "session": session, "old": old, "new": new, "paths": paths }))?;
        u64::try_from(paths.len()).unwrap_or(u64::MAX)
    } else {
        diff::diff(&before, &after, store, &mut |line| {
            out.line(line)?;
            Ok(!out.is_closed())
        })?
    };
    Ok(if count == 0 {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

/// The tree of an audit, or why it is not to be had and what to do.
pub(super) fn tree_of(audit: &crate::ledger::Audit, store: &Store) -> Result<Directory, Failure> {
    history::tree_of(audit, store).map_err(|error| {
        let failure = Failure::because("the audit's tree cannot be had", &error);
        match error {
            Unavailable::Evicted { .. } => failure
                .hint("its record stays; raise audit.keep_age and audit.keep_bytes for the next"),
            Unavailable::NothingPulled(_)
            | Unavailable::Another { .. }
            | Unavailable::Store { .. } => failure,
        }
    })
}
