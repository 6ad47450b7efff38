//! `labproxy session`: agents under a cap.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{Context, examples};
use crate::config::{Flag, Key, Paths};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::money::PicoUsd;
use crate::proxy::credential::CredentialSource;
use crate::report::{self, Exit, Failure, Job, Output};
use crate::session::changes::{self, Stopped};
use crate::session::detach::{self, Detached, Word};
use crate::session::launch::{self, Audience, Foreground};
use crate::session::slot::{Slot, prepare_directory};
use crate::session::start::{Order, Plan};
use crate::session::{books, inside, listing, lookup, receipt, resume};

/// What `labproxy session` can do.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Run an agent under a cap, or print what to export
    #[command(after_long_help = examples::SESSION_START)]
    Start(StartArgs),
    /// List the sessions of this user
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what a session has spent, request by request with --json
    Show {
        /// The session, or the beginning of its name.
        id: String,
        /// Print the receipt as JSON.
        #[arg(long)]
        json: bool,
    },
    /// End a session, and wait until it has ended
    Stop {
        /// The session, or the beginning of its name.
        id: String,
    },
    /// Raise a session's cap; requests that wait for room go on
    #[command(after_long_help = examples::SESSION_TOPUP)]
    Topup {
        /// The session, or the beginning of its name.
        id: String,
        /// By how many dollars, such as 2 or 0.50.
        #[arg(allow_negative_numbers = true)]
        usd: PicoUsd,
    },
    /// Go on with a session that has ended: same cap and account, everything else new
    #[command(after_long_help = examples::SESSION_RESUME)]
    Resume(ResumeArgs),
    /// Forget a session; what it spent stays in the ledger
    Discard {
        /// The session, or the beginning of its name.
        id: String,
    },
}

/// Options of a run.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Send requests to URL (a credential only when `--credential` names one for it).
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Take the real credential from there: `env:NAME` or `file:PATH`.
    #[arg(long, value_name = "SOURCE")]
    credential: Option<String>,
    /// Write the receipt to FILE as JSON when the session has ended.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// What happens to a request that does not fit: clamp, refuse or soft.
    #[arg(long, value_name = "MODE")]
    on_cap: Option<String>,
    /// Go on although the prices were checked long ago.
    #[arg(long)]
    allow_stale_prices: bool,
    /// Return when the session is ready, and let it run on without a terminal.
    #[arg(long)]
    detach: bool,
    /// The agent and its arguments; without one, what to export is printed.
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// Options of `session start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Most that the session may spend, in dollars.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    cap: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// Options of `session resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The session, or the beginning of its name.
    id: String,
    /// Go on although the session was closed for cause.
    #[arg(long)]
    reopen: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl SessionCommand {
    /// Whether there is a program to run, whose exit status is passed through.
    pub fn job(&self) -> Job {
        let run = match self {
            Self::Start(args) => &args.run,
            Self::Resume(args) => &args.run,
            Self::List { .. }
            | Self::Show { .. }
            | Self::Stop { .. }
            | Self::Topup { .. }
            | Self::Discard { .. } => return Job::Own,
        };
        if run.agent.is_empty() {
            Job::Own
        } else {
            Job::Program
        }
    }
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: SessionCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let job = command.job();
    let done = match command {
        SessionCommand::Start(args) => {
            in_front(&Begin::Fresh { cap: args.cap }, args.run, ctx, out)
        }
        SessionCommand::Resume(args) => {
            let begin = Begin::Resumed {
                id: args.id,
                reopen: args.reopen,
            };
            in_front(&begin, args.run, ctx, out)
        }
        other => return look_after(other, ctx, out),
    };
    // A failure of ours must not be taken for the program's own status.
    done.or_else(|failure| {
        report::tell(&failure.render(ctx.stderr_style()));
        Ok(failure.exit(job))
    })
}

fn look_after(command: SessionCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let paths = ctx.paths()?;
    let ledger = || open_ledger(ctx, &paths);
    match command {
        SessionCommand::List { json } => {
            let listed = listing::list(&paths)?;
            if json {
                out.json(&listed)?;
            } else {
                out.table(&listing::table(&listed))?;
            }
        }
        SessionCommand::Show { id, json } => {
            let value = listing::show(&lookup::find(&id, &paths)?, &paths)?;
            if json {
                out.json(&value)?;
            } else {
                let text = receipt::text(&value, out.style());
                out.raw(text.as_bytes())?;
            }
        }
        SessionCommand::Stop { id } => {
            inside::refuse_from_inside(&paths)?;
            let session = lookup::find(&id, &paths)?;
            let line = match changes::stop(&session, &paths, &ledger)? {
                Stopped::Ended => format!("{session} has ended"),
                Stopped::WasNotRunning => format!("{session} was not running"),
            };
            out.line(&line)?;
        }
        SessionCommand::Topup { id, usd } => {
            inside::refuse_from_inside(&paths)?;
            let session = lookup::find(&id, &paths)?;
            let cap = changes::top_up(&session, usd, &paths, &ledger)?;
            out.line(&format!("{session} has a cap of {cap}"))?;
        }
        SessionCommand::Discard { id } => {
            inside::refuse_from_inside(&paths)?;
            let session = lookup::find(&id, &paths)?;
            changes::discard(&session, &paths, &ledger)?;
            out.line(&format!(
                "{session} is forgotten; its entries stay in the ledger"
            ))?;
        }
        // `run` took them.
        SessionCommand::Start(_) | SessionCommand::Resume(_) => {}
    }
    Ok(Exit::SUCCESS)
}

fn open_ledger(ctx: &Context, paths: &Paths) -> Result<Ledger, Failure> {
    paths.prepare_state()?;
    books::open(paths, &ctx.config()?, ctx.clock())
}

/// How a run begins.
#[derive(Debug)]
enum Begin {
    /// As a new session.
    Fresh { cap: Option<String> },
    /// As one that goes on.
    Resumed { id: String, reopen: bool },
}

/// A run from the command line: here, or in a detached process that is started here.
fn in_front(
    begin: &Begin,
    args: RunArgs,
    ctx: &Context,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if args.detach {
        return detached_from_here(begin, args, ctx, out);
    }
    let plan = plan(begin, args, ctx)?;
    let session = SessionId::random()
        .map_err(|error| Failure::because("there are no random bytes", &error))?;
    run_here(begin, plan, session, ctx, &mut Foreground { out })
}

/// Checks everything that a run needs.
fn plan(begin: &Begin, args: RunArgs, ctx: &Context) -> Result<Plan, Failure> {
    let mut flags = Vec::new();
    if let Begin::Fresh { cap: Some(cap) } = begin {
        flags.push((Key::SessionCapUsd, "--cap", cap.as_str()));
    }
    for (key, name, value) in [
        (Key::UpstreamBaseUrl, "--upstream", &args.upstream),
        (Key::UpstreamCredential, "--credential", &args.credential),
        (Key::SessionOnCap, "--on-cap", &args.on_cap),
    ] {
        if let Some(value) = value {
            flags.push((key, name, value));
        }
    }
    if args.allow_stale_prices {
        flags.push((Key::PricingAllowStale, "--allow-stale-prices", "true"));
    }
    let flags: Vec<_> = flags
        .into_iter()
        .map(|(key, name, value)| Flag { key, name, value })
        .collect();
    Plan::check(Order {
        agent: args.agent,
        receipt: args.receipt,
        has_cap: matches!(begin, Begin::Resumed { .. }),
        config: ctx.config_with(&flags),
        given: ctx.given().map(Path::to_path_buf),
        paths: ctx.paths(),
        environment: ctx.environment().clone(),
        now: ctx.clock().now(),
        core: ctx.before().core.current,
    })
}

/// Runs the session in this process.
fn run_here(
    begin: &Begin,
    plan: Plan,
    session: SessionId,
    ctx: &Context,
    audience: &mut dyn Audience,
) -> Result<Exit, Failure> {
    let paths = plan.paths.clone();
    let ledger = books::open(&paths, &plan.config, ctx.clock())?;
    for (session, amount) in books::recover(&ledger, &paths)? {
        report::tell(&format!(
            "labproxy: session {session} had ended without settling {amount} in flight; that is \
             charged to it now\n"
        ));
    }
    let slot = match begin {
        Begin::Fresh { .. } => Slot::fresh(session, &paths)?,
        Begin::Resumed { id, reopen } => {
            resume::take_over(lookup::find(id, &paths)?, *reopen, &paths, &ledger)?
        }
    };
    let _attached_once = ctx.session_log().attach(slot.open_log()?);
    launch::run(
        plan,
        ledger,
        slot,
        ctx.clock(),
        ctx.stderr_style(),
        audience,
    )
}

/// Starts the detached process and returns when it is ready.
fn detached_from_here(
    begin: &Begin,
    args: RunArgs,
    ctx: &Context,
    out: &mut Output,
) -> Result<Exit, Failure> {
    // Checked here, so that problems are told where the user is.
    let plan = plan(begin, args, ctx)?;
    let session = match begin {
        Begin::Fresh { .. } => SessionId::random()
            .map_err(|error| Failure::because("there are no random bytes", &error))?,
        Begin::Resumed { id, .. } => lookup::find(id, &plan.paths)?,
    };
    let directory = prepare_directory(&session, &plan.paths)?;
    let credential = match &plan.credential {
        CredentialSource::Given(credential) => Some(credential),
        CredentialSource::File { .. }
        | CredentialSource::Command { .. }
        | CredentialSource::Dummy => None,
    };
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let word = detach::start(
        &session,
        &directory,
        &arguments,
        ctx.environment(),
        ctx.before().core.current,
        credential,
    )?;
    match &word {
        Word::Ready { exports } => {
            if let Some(exports) = exports {
                out.raw(exports.as_bytes())?;
                report::tell(&format!("labproxy: session {session} is running\n"));
            } else {
                out.line(session.as_str())?;
            }
        }
        Word::Failed { text, .. } => report::tell(text),
    }
    Ok(detach::exit_of(&word))
}

/// The detached process: runs the session that its handover names, and says when it is ready.
pub(super) fn run_detached(
    session: SessionId,
    command: SessionCommand,
    ctx: &Context,
) -> Result<Exit, Failure> {
    let job = command.job();
    let (begin, args) = match command {
        SessionCommand::Start(args) => (Begin::Fresh { cap: args.cap }, args.run),
        SessionCommand::Resume(args) => {
            let begin = Begin::Resumed {
                id: args.id,
                reopen: args.reopen,
            };
            (begin, args.run)
        }
        _ => return Err(Failure::usage("only a session can be detached")),
    };
    let mut audience = Detached::default();
    let done = plan(&begin, args, ctx)
        .and_then(|plan| run_here(&begin, plan, session, ctx, &mut audience));
    done.or_else(|failure| {
        let text = failure.render(ctx.stderr_style());
        let exit = failure.exit(job);
        if audience.said {
            report::tell(&text);
        } else {
            detach::say(&Word::Failed { exit: exit.0, text })?;
        }
        Ok(exit)
    })
}
