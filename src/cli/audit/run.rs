//! `audit run`: one tool, one generation, one verdict.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use clap::Args;

use super::order::Order;
use super::{SessionArgs, bring};
use crate::audit::desk::Desk;
use crate::audit::limits::Limits;
use crate::audit::policy::{Finding, Policy};
use crate::audit::record::{self, Begun};
use crate::audit::run::{Confinement, Judged, Looked, Run, Ways, collect, program_of};
use crate::audit::sandbox::Sandbox;
use crate::audit::view::text;
use crate::child::Trampoline;
use crate::cli::Context;
use crate::config::{Config, Flag, Key};
use crate::escape::escape_line;
use crate::ledger::{Audit, SandboxKind, Verdict};
use crate::mirror::brakes::Allowed;
use crate::mirror::failure::failure;
use crate::mirror::line::Line;
use crate::mirror::pull::PullOptions;
use crate::mirror::stop::Stop;
use crate::mirror::store::{GenerationNumber, Store};
use crate::report::{self, Exit, Failure, counted};
use crate::session::workspace::mirror::SessionMirror;
use crate::session::workspace::plan::secret_paths;
use crate::session::{books, inside};

/// Options of `audit run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A tool of the configuration, [audit.tool.NAME], in place of one after '--'
    #[arg(value_name = "NAME")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
    /// End the tool after TIME, such as 90s or 10m; 1h when nothing else is configured
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<String>,
    /// Let the tool use the network
    #[arg(long)]
    pub(super) network: bool,
    /// Run the tool with your own power over everything; the verdict says so
    #[arg(long, conflicts_with = "network")]
    pub(super) no_sandbox: bool,
    /// Let the tool change its copy; when it passes, what it made becomes the workspace's content,
    /// here and on the host
    #[arg(long)]
    pub(super) restore: bool,
    /// Push PATH although its name says that it holds a secret (repeatable)
    #[arg(long, value_name = "PATH")]
    allow_secret: Vec<OsString>,
    /// The tool and its arguments
    #[arg(
        last = true,
        required_unless_present = "name",
        conflicts_with = "name",
        value_name = "TOOL"
    )]
    pub(super) tool: Vec<OsString>,
}

/// Audits, and passes the tool's status on.
pub(super) fn run(args: &RunArgs, ctx: &Context) -> Result<Exit, Failure> {
    let (paths, clock) = (ctx.paths()?, ctx.clock());
    inside::refuse_from_inside(&paths)?;
    let timeout = args.timeout.as_deref().map(|value| Flag {
        key: Key::AuditTimeout,
        name: "--timeout",
        value,
    });
    let config = ctx.config_with(timeout.as_slice())?;
    let order = Order::of(args, &config)?;
    let policy = Policy::of(&config.audit)?;
    let secrets = secret_paths(&args.allow_secret)?;
    let session = args.session.find(ctx)?;
    let mut mirror = SessionMirror::of(&session, &paths)?;
    let limits = Limits::of(&config.audit, !args.no_sandbox);
    let confinement = confinement(args, (&order, &limits), ctx, &config)?;
    for name in &limits.recorded.not_enforced {
        report::tell(&format!(
            "labproxy: {name} cannot be enforced here: {}\n",
            why_not(args)
        ));
    }
    let desk = Desk::take(&paths, &session)?;
    let run = Run {
        ledger: books::open(&paths, &config, ctx.clock())?,
        desk,
        session,
        begun: Begun {
            named: order.named.as_ref(),
            argv: &order.argv,
            sandbox: match confinement {
                Confinement::Sandbox(_) => SandboxKind::Bubblewrap,
                Confinement::None(_) => SandboxKind::None,
            },
            network: order.network,
            limits: &limits,
            began: clock.now(),
        },
        confinement,
        since: clock.since_boot(),
        clock,
    };
    let judged = if order.pull {
        judge(&run, &mut mirror, &policy, ctx, &config)?
    } else {
        judge_newest(&run, &mirror, &policy, ctx)?
    };
    let audit = match judged {
        Judged::Refused { findings, audit } => {
            tell_findings(&findings);
            *audit
        }
        Judged::Copied(copied) => {
            let ways = Ways {
                trampoline: Trampoline::own(),
                inherited: ctx.environment().all(),
                limit: order.limit,
                core: ctx.before().core.current,
                restore: order.restore,
            };
            match run.look(*copied, ways)? {
                Looked::Done(audit) => *audit,
                Looked::Changed(change) => {
                    let with = (ctx, &config, &policy);
                    bring::bring(&run, *change, &mut mirror, with, secrets)?
                }
            }
        }
    };
    report::tell(&format!("labproxy: {}\n", summary(&audit)));
    Ok(Exit(record::exit_status(&audit.verdict)))
}

/// Why a limit has no effect.
const fn why_not(args: &RunArgs) -> &'static str {
    if args.no_sandbox {
        "there is no sandbox"
    } else {
        "the kernel does not count the processes of root"
    }
}

/// Lists what the policy refuses.
pub(super) fn tell_findings(findings: &[Finding]) {
    for finding in findings {
        let line = format!("finding: {}: {}", text(&finding.path), finding.what);
        report::tell(&format!("labproxy: {}\n", escape_line(line)));
    }
}

/// What keeps the tool in, with the tool found in it.
fn confinement(
    args: &RunArgs,
    (order, limits): (&Order, &Limits),
    ctx: &Context,
    config: &Config,
) -> Result<Confinement, Failure> {
    let path = ctx.environment().get("PATH");
    let name = order
        .argv
        .first()
        .map(OsString::as_os_str)
        .unwrap_or_default();
    if args.no_sandbox {
        let path = path.unwrap_or_default();
        program_of(name, &path)?;
        report::tell("labproxy: no sandbox: the tool has your own power over this machine\n");
        return Ok(Confinement::None(path));
    }
    let (trampoline, paths) = (Trampoline::own(), ctx.paths()?);
    let path: Option<&OsStr> = path.as_deref();
    let sandbox = Sandbox::prepare(
        &trampoline,
        path,
        order.network,
        &limits.recorded,
        &paths,
        config,
    )?;
    sandbox.find(name)?;
    Ok(Confinement::Sandbox(sandbox))
}

/// Pulls a generation and judges it. The directory here is left as it is, so no brake is needed:
/// what an agent emptied is what there is to look at.
fn judge(
    run: &Run<'_>,
    mirror: &mut SessionMirror,
    policy: &Policy,
    ctx: &Context,
    config: &Config,
) -> Result<Judged, Failure> {
    let around = ctx.around()?;
    let options = PullOptions {
        allowed: Allowed {
            empty: true,
            deletes: true,
        },
        generation_only: true,
    };
    let pulled = mirror.local().and_then(|mut local| {
        let mut opened = mirror.open(&local, &around, Stop::default())?;
        let line = Line::new(ctx.environment(), ctx.clock(), mirror.ends().far_text());
        let pulled = opened.with(&mut local, &line, |pair, ends| pair.pull(ends, options));
        drop(line);
        opened.unlink();
        Ok((opened, pulled.map_err(|error| failure(&error))?))
    });
    let (opened, pulled) = match pulled {
        Ok(pulled) => pulled,
        Err(failure) => {
            run.not_pulled(&failure)?;
            return Err(failure);
        }
    };
    mirror.pulled(&pulled, &around)?;
    let store = opened.pair().store();
    let judged = run.judge(store, pulled.generation.number, policy)?;
    let (age, bytes) = (config.audit.keep_age.value, config.audit.keep_bytes.value);
    collect(store, age, bytes, &ctx.clock())?;
    Ok(judged)
}

/// Judges the newest generation; nobody asks the host.
fn judge_newest(
    run: &Run<'_>,
    mirror: &SessionMirror,
    policy: &Policy,
    ctx: &Context,
) -> Result<Judged, Failure> {
    let pair = mirror.pair(&mirror.local()?, &ctx.around()?)?;
    let newest = newest(pair.store(), mirror, &super::audits_of(&run.session, ctx)?)?;
    let Some(number) = newest else {
        let failure = Failure::failed("nothing was pulled yet that the tool could look at")
            .hint("labproxy mirror pull --session ID, or a tool with pull = true, comes first");
        run.not_pulled(&failure)?;
        return Err(failure);
    };
    run.judge(pair.store(), number, policy)
}

/// The newest generation that was the work of somebody: not what a tool made and nobody took.
fn newest(
    store: &Store,
    mirror: &SessionMirror,
    audits: &[Audit],
) -> Result<Option<GenerationNumber>, Failure> {
    let pulled = mirror.file().record.last_pull.as_ref();
    let mut taken: BTreeSet<u64> = pulled.map(|pull| pull.generation).into_iter().collect();
    taken.extend(audits.iter().filter_map(|audit| {
        let generation = audit.generation.as_ref();
        generation.map(|generation| generation.generation)
    }));
    let mut left = BTreeSet::new();
    for audit in audits {
        if let Verdict::NotRestored {
            kept: Some(kept), ..
        } = audit.verdict
            && !taken.contains(&kept)
        {
            left.insert(kept);
        }
    }
    let numbers = store.numbers();
    let numbers =
        numbers.map_err(|error| Failure::because("what was pulled last cannot be read", &error))?;
    let mut numbers = numbers.into_iter().rev();
    Ok(numbers.find(|number| !left.contains(&number.0)))
}

/// One line about an audit.
fn summary(audit: &Audit) -> String {
    let mut line = format!("audit {}: {}", audit.number, audit.verdict.word());
    let more = details(audit);
    line.push_str(&more);
    if let Some(generation) = &audit.generation {
        let tree: String = generation.tree.chars().take(12).collect();
        // Writing to a string cannot fail.
        let _written = write!(
            line,
            "; generation {}, tree {tree}, {}",
            generation.generation,
            counted(generation.files, "file", "files"),
        );
    }
    if audit.sandbox == SandboxKind::None {
        line.push_str("; NO SANDBOX");
    }
    escape_line(line)
}

/// What a verdict says beside its word.
fn details(audit: &Audit) -> String {
    match &audit.verdict {
        Verdict::Failed { status } => match &audit.ended_by {
            Some(limit) => format!(" (ended by {limit})"),
            None => format!(" (exit status {status})"),
        },
        Verdict::AlteredInput {
            status,
            count,
            paths,
            ..
        } => {
            let first = paths.first().map(|path| format!(", first {path}"));
            format!(
                " (exit status {status}, {}{})",
                counted(*count, "path", "paths"),
                first.unwrap_or_default()
            )
        }
        Verdict::Findings { count, .. } => {
            format!(
                " ({}; the tool did not run)",
                counted(*count, "finding", "findings")
            )
        }
        Verdict::Restored {
            kept, tree, count, ..
        } => {
            let tree: String = tree.chars().take(12).collect();
            let changed = counted(*count, "path", "paths");
            format!(" ({changed} changed, here and on the host: generation {kept}, tree {tree})")
        }
        Verdict::ChangeRefused { count, .. } => {
            let found = counted(*count, "finding", "findings");
            format!(" ({found} in what the tool made; nothing is changed)")
        }
        Verdict::TimedOut { limit_ms } => format!(" (after {limit_ms} ms)"),
        Verdict::Interrupted { signal } => format!(" (signal {signal})"),
        Verdict::NotPulled { why } | Verdict::NotRun { why } | Verdict::NotRestored { why, .. } => {
            format!(" ({why})")
        }
        Verdict::Passed => String::new(),
    }
}
