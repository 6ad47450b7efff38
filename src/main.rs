//! `labproxy`, the controller's program: parse, run, exit status.

use std::process::ExitCode;

use clap::Parser as _;
use labproxy::cli::{self, Cli, Context};
use labproxy::report::{self, Exit, Job, Output};
use labproxy::table::Style;

fn main() -> ExitCode {
    let arguments = Cli::parse();
    let ctx = Context::of_process(arguments.global);
    let mut out = Output::stdout(Style::Plain);
    let done = cli::run(arguments.command, &ctx, &mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    let exit: Exit = done.unwrap_or_else(|failure| {
        report::tell(&failure.render(ctx.stderr_style()));
        failure.exit(Job::Own)
    });
    exit.into()
}
