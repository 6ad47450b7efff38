//! Runs the stand-in for the Messages API on loopback, so that labproxy can be tried without a key.
//!
//! ```text
//! cargo run --example upstream -- --listen 127.0.0.1:8080
//! labproxy session start --cap 2 --upstream http://127.0.0.1:8080 -- claude -p "Say hello"
//! ```

#[path = "standin.rs"]
mod standin;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use standin::{Options, Scenario, Standin};

/// A stand-in for the Messages API on loopback. No model is asked; all answers are made up.
#[derive(Debug, Parser)]
struct Flags {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A file that gets the URL once it listens.
    #[arg(long)]
    ready_file: Option<PathBuf>,
    /// A file with the credential that must arrive; without it any will do.
    #[arg(long)]
    expect_key_file: Option<PathBuf>,
    /// What to play when a prompt has no `[[scenario: …]]`.
    #[arg(long)]
    scenario: Option<Scenario>,
    /// Milliseconds between two pieces of a streamed text.
    #[arg(long, default_value_t = 0)]
    pace: u64,
    /// A directory that gets each request's body.
    #[arg(long)]
    bodies: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _written = writeln!(io::stderr(), "upstream: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> io::Result<()> {
    let expect_key = flags
        .expect_key_file
        .map(std::fs::read_to_string)
        .transpose()?
        .map(|text| text.trim().to_owned());
    let options = Options {
        expect_key,
        scenario: flags.scenario,
        pace: Duration::from_millis(flags.pace),
        bodies: flags.bodies,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let standin = Standin::start(flags.listen, options).await?;
        let url = standin.url();
        if let Some(path) = flags.ready_file {
            // Renamed into place, so that a reader never sees half of it.
            let partial = path.with_extension("partial");
            std::fs::write(&partial, &url)?;
            std::fs::rename(partial, path)?;
        }
        writeln!(io::stdout(), "{url}")?;
        let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = end.recv() => Ok(()),
            interrupted = tokio::signal::ctrl_c() => interrupted,
        }
    })
}
