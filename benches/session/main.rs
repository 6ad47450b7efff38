//! How long the steps of a session on a host take with a workspace of 20,000 files, with `rsync`'s times
//! for the same bytes beside them, over the same ssh server. `docs/benchmarks.md` tells the method;
//! `make bench-session` runs it, as root.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::float_arithmetic,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "a measuring program: times are floats, and its output is its purpose"
)]

#[allow(dead_code, reason = "these rows have no bars, only spreads")]
#[path = "../support/bars.rs"]
mod bars;
#[allow(dead_code, reason = "bytes on the wire are the mirror's rows")]
#[path = "../mirror/meter.rs"]
mod meter;
#[path = "../support/namespace.rs"]
mod namespace;
mod report;
mod rig;
#[allow(dead_code, reason = "the server has a port of its own here")]
#[path = "../../tests/support/sshd.rs"]
mod sshd;

use std::path::{Path, PathBuf};

use clap::Parser;

use report::{Results, Step, Who};
use rig::Rig;

/// Set in the process that runs in the namespace.
const INNER: &str = "BENCH_SESSION_INNER";

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each is a session from its start to its end.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Files of the workspace.
    #[arg(long, default_value_t = 20_000)]
    files: u32,
    /// A tenth of the files, one round: only whether it runs, on a machine that is busy.
    #[arg(long)]
    quick: bool,
    /// Where everything is; default in memory.
    #[arg(long, default_value = "/dev/shm")]
    place: PathBuf,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    namespace::enter(INNER);
    meter::adopt();
    let (mut files, mut rounds) = (arguments.files, arguments.rounds);
    println!("{}\n", rig::versions());
    if arguments.quick {
        (files, rounds) = (files / 10, 1);
        println!("quick: a tenth of the files, once\n");
    }
    let mut results = Results::default();
    for round in 0..rounds {
        eprintln!("round {}", round + 1);
        one(&mut results, &arguments.place, files, round);
    }
    println!(
        "## a session of {files} files\n\n{}\n{}",
        results.table(),
        results.ratios()
    );
}

/// A session from its start to its end. Whoever copies has a copy of his own, and each has the same to do.
fn one(results: &mut Results, place: &Path, files: u32, round: u32) {
    let rig = Rig::new(place);
    rig.make(files);
    results.add(Step::Start, Who::Rsync, meter::cost(|| rig.rsync_there()));
    let mut session = None;
    let cost = meter::cost(|| session = Some(rig.start()));
    results.add(Step::Start, Who::Session, cost);
    let session = session.unwrap();

    let mut who = vec![Who::Audit, Who::Pull, Who::RsyncChecksum, Who::Rsync];
    who.rotate_left(round as usize % 4);
    for step in [Step::First, Step::Unchanged, Step::Edited] {
        for who in &who {
            if step == Step::First && *who == Who::Pull {
                // What an audit brought is there for every later pull.
                continue;
            }
            // The same hundred files each time, whoever has the others' edits by then.
            if step == Step::Edited {
                session.edit();
            }
            let cost = meter::cost(|| session.copy(&rig, *who));
            results.add(step, *who, cost);
        }
    }
    for who in [Who::RsyncChecksum, Who::Rsync] {
        session.copy(&rig, who);
        rig::assert_same(&session.there, &rig.copy(who));
    }
    let there = session.there.clone();
    results.add(Step::End, Who::Session, meter::cost(|| session.end()));
    rig::assert_same(&there, &rig.path("work"));
}
