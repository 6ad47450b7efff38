//! `labproxy host`: remote machines.

use clap::Subcommand;

use super::{Context, examples};
use crate::child::Trampoline;
use crate::escape::escape_line;
use crate::report::{self, Exit, Failure, Output};
use crate::tunnel::host_check::lines::{Line, Step, Verdict, time_of};
use crate::tunnel::host_check::{self, Checked, json};
use crate::tunnel::resolve::{self, ChosenHost};
use crate::tunnel::ssh::local::Local;

/// What `labproxy host` can do.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Go the way to a host that a session would go, and tell each step
    #[command(after_long_help = examples::HOST_CHECK)]
    Check {
        /// A name of the configuration, or what ssh takes
        host: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: HostCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        HostCommand::Check { host, json } => check(&host, json, ctx, out),
    }
}

fn check(name: &str, as_json: bool, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let host = resolve::choose(name, &ctx.config()?)?;
    for note in &host.notes {
        report::tell(&format!("note: {}\n", escape_line(note)));
    }
    let paths = ctx.paths()?;
    paths.prepare_runtime()?;
    let sockets = paths.runtime();
    let environment = ctx.environment().all();
    let local = Local::new(environment, sockets, Trampoline::own())
        .map_err(|error| Failure::failed(error.to_string()).hint(error.remedy()))?;
    let scratch = tempfile::Builder::new()
        .prefix("check-")
        .tempdir_in(sockets)
        .map_err(|error| Failure::because("no directory for a socket can be made", &error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("no threads can be started", &error))?;
    let mut told = Ok(());
    let mut checked = runtime.block_on(host_check::run(
        &host.spec,
        &local,
        scratch.path(),
        &mut |line| {
            if !as_json && told.is_ok() {
                told = tell(line, out);
            }
        },
    ));
    told?;
    offer_names(&mut checked, &host);
    if as_json {
        out.json(&json::of(&host, &checked))?;
    } else {
        remedies(&checked, out)?;
    }
    Ok(if checked.works() {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

/// One line, at once: whoever waits sees at which step.
fn tell(line: &Line, out: &mut Output) -> Result<(), Failure> {
    let took = line.took.map_or_else(String::new, |took| {
        time_of(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
    });
    let (verdict, step) = (line.verdict.word(), line.step.name());
    let text = format!("{verdict:<8} {step:<15} {took:>10}  {}", line.detail);
    out.line(escape_line(text).trim_end())?;
    out.flush()
}

/// What to do, after everything that was found.
fn remedies(checked: &Checked, out: &mut Output) -> Result<(), Failure> {
    for line in &checked.steps {
        if let Some(remedy) = &line.remedy {
            let step = line.step.name();
            out.line(&escape_line(format!("{step}: {remedy}")))?;
        }
    }
    if checked.works() {
        out.line("a session would start")
    } else {
        out.line("a session would not start")
    }
}

/// A name that ssh does not know may be a slip in one that the configuration knows.
fn offer_names(checked: &mut Checked, host: &ChosenHost) {
    let failed = checked
        .steps
        .iter_mut()
        .find(|line| line.verdict == Verdict::Failed && line.step == Step::Resolve);
    if let Some(Line {
        remedy: Some(remedy),
        ..
    }) = failed
        && !host.like.is_empty()
    {
        let names = host.like.join("' or '");
        *remedy = format!("{remedy}; the configuration has '{names}'");
    }
}
