//! `audit restore`: what an audit looked at, back in the workspace and on the host.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;

use super::compare::tree_of;
use super::{SessionArgs, audits_of};
use crate::audit::desk::Desk;
use crate::audit::history;
use crate::audit::view::text;
use crate::cli::Context;
use crate::mirror::brakes::Allowed;
use crate::mirror::failure::failure;
use crate::mirror::guard;
use crate::mirror::line::Line;
use crate::mirror::push::PushOptions;
use crate::mirror::stop::Stop;
use crate::report::{Exit, Failure, Output};
use crate::session::inside;
use crate::session::workspace::mirror::SessionMirror;
use crate::session::workspace::plan::secret_paths;

/// Options of `audit restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Which audit, as 'audit list' numbers them
    #[arg(value_name = "N")]
    number: u64,
    #[command(flatten)]
    session: SessionArgs,
    /// Push PATH although its name says that it holds a secret (repeatable)
    #[arg(long, value_name = "PATH")]
    allow_secret: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restores it here, then pushes.
pub(super) fn run(args: &RestoreArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let (paths, around) = (ctx.paths()?, ctx.around()?);
    inside::refuse_from_inside(&paths)?;
    let config = ctx.config()?;
    let session = args.session.find(ctx)?;
    let mut mirror = SessionMirror::of(&session, &paths)?;
    let audit = history::find(audits_of(&session, ctx)?, args.number)?;
    // What is asked for by name may delete, and what it overwrites there is kept.
    let options = PushOptions {
        allowed: Allowed {
            empty: true,
            deletes: true,
        },
        force: true,
        secrets: secret_paths(&args.allow_secret)?,
        canary: guard::canary(&around, &config)?,
        ..PushOptions::default()
    };
    let _desk = Desk::take(&paths, &session)?;
    let mut local = mirror.local()?;
    let mut opened = mirror.open(&local, &around, Stop::default())?;
    let tree = match tree_of(&audit, opened.pair().store()) {
        Ok(tree) => tree,
        Err(failure) => {
            opened.close();
            return Err(failure);
        }
    };
    let line = Line::new(ctx.environment(), ctx.clock(), mirror.ends().far_text());
    let done = opened.with(&mut local, &line, |pair, ends| {
        let restored = pair.restore(ends.local, &tree, ends.progress)?;
        let pushed = pair.push(ends, &options)?;
        Ok((restored, pushed))
    });
    drop(line);
    let (restored, pushed) = match done {
        Ok(done) => done,
        Err(error) => {
            opened.close();
            return Err(failure(&error));
        }
    };
    let written = mirror.pushed(&pushed, opened.pair(), &around);
    opened.close();
    let saved = pushed.saved.map(|number| number.0);
    let held = restored.held_back.iter().map(|held| text(&held.path));
    if args.json {
        out.json(&json!({
            "session": session,
            "audit": args.number,
            "tree": pushed.tree.to_string(),
            "changed_here": restored.summary.files(),
            "sent_bytes": pushed.sent,
            "saved_generation": saved,
            "held_back": held.collect::<Vec<_>>(),
        }))?;
    } else {
        for path in held {
            out.line(&format!("held     {path}"))?;
        }
        let saved = saved.map(|number| format!("; what was there is generation {number}"));
        out.line(&format!(
            "audit {} is restored here and on the host, tree {}{}",
            args.number,
            pushed.tree,
            saved.unwrap_or_default()
        ))?;
    }
    written.map(|()| Exit::SUCCESS)
}
