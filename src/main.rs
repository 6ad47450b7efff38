//! `labproxy`, the controller's program: parse, run, exit status.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::Parser as _;
use labproxy::cli::{self, Cli, Context, hardening, logging};
use labproxy::config::Environment;
use labproxy::escape::escape_line;
use labproxy::report::{self, Exit, Failure, Job, Output};
use labproxy::table::Style;

/// A request makes and drops some hundred small values on three threads; the system's allocator
/// took a tenth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let before = hardening::harden();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let job = cli::job_of(&arguments);
    let environment = Environment::Process;
    let style = cli::style_of(&environment, std::io::stderr().is_terminal());
    let mut out = Output::stdout(cli::style_of(&environment, std::io::stdout().is_terminal()));
    // A panic would exit with 101, which could be the agent's own status.
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        report::tell(&report::panic_text(panic.location(), message));
    }));
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let done = match Cli::try_parse_from(arguments) {
            Ok(Cli { global, command }) => {
                logging::start(&global, &environment).and_then(|session_log| {
                    let ctx = Context::of_process(global, before, session_log);
                    cli::run(command, &ctx, &mut out)
                })
            }
            Err(error) => answer(&error, job, &mut out),
        };
        done.and_then(|exit| out.flush().map(|()| exit))
    }));
    let exit = match done {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => fail(&failure, job, style),
        // The hook has told it.
        Err(_) => Failure::failed("").exit(job),
    };
    exit.into()
}

fn fail(failure: &Failure, job: Job, style: Style) -> Exit {
    report::tell(&failure.render(style));
    failure.exit(job)
}

/// Shows what clap answers instead of a command: help and version on stdout, the rest on stderr.
fn answer(error: &clap::Error, job: Job, out: &mut Output) -> Result<Exit, Failure> {
    let text = error.render();
    if !error.use_stderr() {
        let text = match out.style() {
            Style::Plain => text.to_string(),
            Style::Colored => text.ansi().to_string(),
        };
        out.raw(text.as_bytes())?;
        return Ok(Exit::SUCCESS);
    }
    let text = text.to_string();
    let lines = text.lines().map(|line| format!("{}\n", escape_line(line)));
    report::tell(&lines.collect::<String>());
    if let Some(tip) = cli::tip(error) {
        report::tell(&format!("\n  tip: {tip}\n"));
    }
    Ok(Failure::usage("").exit(job))
}
