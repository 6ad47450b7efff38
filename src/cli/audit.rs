//! `labproxy audit`: a tool looks at what the agent made, and what came of it is kept.

mod bring;
mod compare;
mod look;
mod order;
mod restore;
mod run;

use clap::{Args, Subcommand};

use super::{Context, examples};
use crate::config::Paths;
use crate::id::SessionId;
use crate::ledger::{Audit, Reader};
use crate::report::{Exit, Failure, Output};
use crate::session::inside::session_directories;
use crate::session::lookup;
use crate::session::workspace::mirror::SessionMirror;

/// What `labproxy audit` can do.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Pull, judge what came, and let a sandboxed tool look at a copy of exactly that
    #[command(after_long_help = examples::AUDIT_RUN)]
    Run(run::RunArgs),
    /// List the tools that the configuration names
    #[command(after_long_help = examples::AUDIT_TOOLS)]
    Tools {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the audits of a session
    #[command(after_long_help = examples::AUDIT_LIST)]
    List(LookArgs),
    /// Show one audit: what was looked at, by which tool, and all that was found
    #[command(after_long_help = examples::AUDIT_SHOW)]
    Show {
        /// Which audit, as 'audit list' numbers them
        #[arg(value_name = "N")]
        number: u64,
        /// Of which session, and how it is shown.
        #[command(flatten)]
        look: LookArgs,
    },
    /// Compare what two audits looked at, line by line
    #[command(after_long_help = examples::AUDIT_DIFF)]
    Diff {
        /// The older one
        #[arg(value_name = "N")]
        old: u64,
        /// The newer one
        #[arg(value_name = "M")]
        new: u64,
        /// Of which session, and how it is shown.
        #[command(flatten)]
        look: LookArgs,
    },
    /// Bring back what an audit looked at, here and on the host
    #[command(after_long_help = examples::AUDIT_RESTORE)]
    Restore(restore::RestoreArgs),
    /// Check that no record was edited and that what was looked at is still here, byte for byte
    #[command(after_long_help = examples::AUDIT_VERIFY)]
    Verify(LookArgs),
}

/// Which session, and how it is shown.
#[derive(Debug, Args)]
pub struct LookArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which session.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The session, or the beginning of its name; can be left out in its workspace, or when only one
    /// has one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: AuditCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        AuditCommand::Run(args) => run::run(&args, ctx),
        AuditCommand::Tools { json } => order::tools(json, ctx, out),
        AuditCommand::List(args) => look::list(&args, ctx, out),
        AuditCommand::Show { number, look } => look::show(number, &look, ctx, out),
        AuditCommand::Diff { old, new, look } => compare::diff((old, new), &look, ctx, out),
        AuditCommand::Restore(args) => restore::run(&args, ctx, out),
        AuditCommand::Verify(args) => look::verify(&args, ctx, out),
    }
}

impl SessionArgs {
    /// The session that is meant, among those that are here.
    fn find(&self, ctx: &Context) -> Result<SessionId, Failure> {
        let paths = ctx.paths()?;
        match &self.session {
            Some(text) => lookup::find(text, &paths),
            None => the_only_one(ctx, &paths),
        }
    }

    /// The same for a look at what was recorded, also of a session that was discarded.
    fn find_recorded(&self, ctx: &Context) -> Result<SessionId, Failure> {
        let paths = ctx.paths()?;
        let Some(text) = &self.session else {
            return the_only_one(ctx, &paths);
        };
        let rows = Reader::open(&paths.ledger()).and_then(|reader| reader.sessions());
        let rows = rows.map_err(|error| Failure::because("the ledger cannot be read", &error))?;
        let known = rows.into_iter().map(|row| row.session).collect();
        lookup::choose(text, &known, "labproxy ledger list")
    }
}

/// The session whose workspace the working directory is in, or the only one that has a workspace.
fn the_only_one(ctx: &Context, paths: &Paths) -> Result<SessionId, Failure> {
    let here = ctx.directory();
    let mut all = Vec::new();
    for directory in session_directories(paths) {
        let name = directory.file_name().and_then(|name| name.to_str());
        let Some(session) = name.and_then(|name| name.parse::<SessionId>().ok()) else {
            continue;
        };
        if let Some(mirror) = SessionMirror::find(&session, paths)? {
            let is_here = here.starts_with(mirror.ends().local());
            all.push((session, is_here));
        }
    }
    let here: Vec<_> = all.iter().filter(|(_, is_here)| *is_here).collect();
    let choice = if here.is_empty() {
        all.iter().collect()
    } else {
        here
    };
    match choice.as_slice() {
        [(session, _)] => Ok(session.clone()),
        [] => Err(Failure::usage("there is no session with a workspace")
            .hint("only a session that began with --host HOST --workspace DIR can be audited")),
        several => {
            let failure =
                Failure::usage("several sessions have a workspace; name one: --session ID");
            Err(several.iter().fold(failure, |failure, (session, _)| {
                failure.problem(session.to_string())
            }))
        }
    }
}

/// A mirror's store, and the audits that looked at what is in it.
fn audits_of(session: &SessionId, ctx: &Context) -> Result<Vec<Audit>, Failure> {
    let ledger = ctx.paths()?.ledger();
    if !ledger.exists() {
        return Ok(Vec::new());
    }
    crate::audit::history::of_session(&ledger, session)
}
