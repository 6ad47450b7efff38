//! `labproxy session`: agents under a cap.

mod endings;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use self::endings::{bring_home, only_work, stop, stop_all, with_host};
use super::{Context, examples};
use crate::config::{Flag, Key, Paths};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::money::PicoUsd;
use crate::proxy::credential::CredentialSource;
use crate::report::{self, Exit, Failure, Job, Output};
use crate::session::changes;
use crate::session::detach::{self, Detached, Word};
use crate::session::launch::{self, Audience, Foreground};
use crate::session::remote::plan::There;
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
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// End every session of this user that runs, or that its host may still have.
        #[arg(long)]
        all: bool,
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
        /// Forget it although its host cannot be asked to end what is left there.
        #[arg(long)]
        leave_remains: bool,
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
    /// Run the agent on HOST: a name of the configuration, or what ssh takes.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Make FILE a CLI for an SDK: it runs on HOST, the agent (or your own SDK) here.
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Give the agent on HOST this directory: it is pushed before, and its work is pulled after.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Leave out of the workspace what matches, as in a .gitignore (repeatable; fixed at the start).
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Push PATH of the workspace although its name says that it holds a secret (repeatable).
    #[arg(long, value_name = "PATH")]
    allow_secret: Vec<OsString>,
    /// Let a variable go to HOST that is not on the list (repeatable; never a credential).
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
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
    if let SessionCommand::Resume(args) = &command
        && let Some(session) = only_work(args, ctx)?
    {
        return bring_home(&session, ctx, out);
    }
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
            let session = lookup::find(&id, &paths)?;
            let value = listing::show(&session, &paths)?;
            if json {
                out.json(&value)?;
            } else {
                let text = receipt::text(&value, out.style());
                out.raw(text.as_bytes())?;
                let host = listing::host_line(&session, &paths)?;
                for line in host
                    .into_iter()
                    .chain(listing::workspace_line(&session, &paths))
                {
                    out.line(&crate::escape::escape_line(line))?;
                }
            }
        }
        SessionCommand::Stop { id, all: _ } => {
            inside::refuse_from_inside(&paths)?;
            return match id {
                Some(id) => stop((&lookup::find(&id, &paths)?, false), ctx, &ledger, out),
                None => stop_all(ctx, &ledger, out),
            };
        }
        SessionCommand::Topup { id, usd } => {
            inside::refuse_from_inside(&paths)?;
            let session = lookup::find(&id, &paths)?;
            let cap = changes::top_up(&session, usd, &paths, &ledger)?;
            out.line(&format!("{session} has a cap of {cap}"))?;
        }
        SessionCommand::Discard { id, leave_remains } => {
            inside::refuse_from_inside(&paths)?;
            let session = lookup::find(&id, &paths)?;
            let there =
                changes::discard(&session, leave_remains, &paths, ctx.environment(), &ledger)?;
            let line = format!("{session} is forgotten; its entries stay in the ledger");
            out.line(&with_host(line, there.host))?;
            if let Some(workspace) = there.workspace {
                out.line(&crate::escape::escape_line(workspace))?;
            }
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
    let (host, workspace) = match begin {
        Begin::Fresh { .. } => (args.host, args.workspace),
        Begin::Resumed { id, .. } => {
            let paths = ctx.paths()?;
            let session = lookup::find(id, &paths)?;
            let given = (args.workspace, args.exclude.as_slice());
            (
                resume::host(&session, args.host, &paths)?,
                resume::workspace(&session, given, &ctx.directory(), &paths)?,
            )
        }
    };
    let flags: Vec<_> = flags
        .into_iter()
        .map(|(key, name, value)| Flag { key, name, value })
        .collect();
    Plan::check(Order {
        agent: args.agent,
        there: There {
            host,
            shim: args.shim,
            workspace,
            env: args.env,
            excludes: args.exclude,
            secrets: args.allow_secret,
        },
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
            let session = lookup::find(id, &paths)?;
            resume::take_over(session, *reopen, &paths, ctx.environment(), &ledger)?
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
