//! The tunnel rows of the speed table: the forwarder beside socat and beside nothing, on the same
//! `ssh -R` between two network namespaces. `docs/benchmarks.md` tells the method;
//! `make bench-tunnel` runs it, as root.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "a measuring program: times are floats, and its output is its purpose"
)]

#[allow(dead_code, reason = "every bar here is a least")]
#[path = "../support/bars.rs"]
mod bars;
mod chain;
mod load;
#[allow(dead_code, reason = "nothing is cut here")]
#[path = "../../tests/support/netpair.rs"]
mod netpair;
mod report;
mod sessions;
#[allow(dead_code, reason = "no login is looked for here")]
#[path = "../../tests/support/sshd.rs"]
mod sshd;
mod upstream;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use bars::{Bar, Bars};
use chain::{Chain, Peer};
use load::{What, Work};
use netpair::NetPair;
use report::Results;
use sessions::World;

/// One way takes half of the round trip that the design names.
const DELAY: Duration = Duration::from_millis(40);

/// The work of a round where nothing takes long. A connection's row is the median of so many that
/// it stands above the noise of a shared machine.
const NEAR: [Work; 5] = [
    work(What::Connections, 2_000, 1),
    work(What::Lone, 4, 1),
    work(What::Events, 1, 1_000),
    work(What::Download, 3, 96 << 20),
    work(What::Upload, 3, 96 << 20),
];
/// The same over the long way.
const DISTANT: [Work; 5] = [
    work(What::Connections, 25, 1),
    work(What::Lone, 2, 1),
    work(What::Events, 1, 200),
    work(What::Download, 1, 16 << 20),
    work(What::Upload, 1, 16 << 20),
];

const fn work(what: What, turns: u64, count: u64) -> Work {
    Work { what, turns, count }
}

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each measures everything on every peer once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Rounds of session starts.
    #[arg(long, default_value_t = 10)]
    starts: u32,
    /// Leave out the way with a delay.
    #[arg(long)]
    near_only: bool,
    #[command(subcommand)]
    role: Option<Role>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Internal: be another process of the benchmark.
#[derive(Debug, Subcommand)]
enum Role {
    Upstream {
        socket: Option<PathBuf>,
    },
    Forward {
        link: PathBuf,
        directory: PathBuf,
    },
    Load {
        what: What,
        turns: u64,
        count: u64,
        targets: Vec<String>,
    },
    Agent,
}

fn main() {
    let arguments = Arguments::parse();
    match &arguments.role {
        Some(Role::Upstream { socket }) => upstream::serve(socket.as_deref()),
        Some(Role::Forward { link, directory }) => chain::forward(link, directory),
        Some(Role::Load {
            what,
            turns,
            count,
            targets,
        }) => load::print(
            targets,
            Work {
                what: *what,
                turns: *turns,
                count: *count,
            },
        ),
        Some(Role::Agent) => sessions::agent(),
        None => measure(&arguments),
    }
}

fn measure(arguments: &Arguments) {
    assert!(
        rustix::process::geteuid().is_root(),
        "network namespaces need root"
    );
    let net = NetPair::joined();
    let rounds = arguments.rounds;
    let mut bars = Bars::default();
    let here = run("without ssh", &Chain::without_ssh(&net), &NEAR, rounds);
    let over_ssh = run("over ssh", &Chain::over_ssh(&net), &NEAR, rounds);
    for (name, results) in [("without", &here), ("over", &over_ssh)] {
        for (what, kind) in [(What::Connections, "a"), (What::Lone, "a lone")] {
            bars.row(
                &format!("added to {kind} connection, {name} ssh"),
                "socat adds, ×",
                Bar::AtLeast(5.0, 10.0),
                results.less_than_socat(what),
            );
        }
    }
    for what in [What::Download, What::Upload] {
        bars.row(
            &format!("throughput, {}", what.name()),
            "bare ssh -R, ×",
            Bar::AtLeast(0.9, 1.0),
            over_ssh.of_bare(what),
        );
    }
    if !arguments.near_only {
        let net = NetPair::delayed(DELAY);
        let chain = Chain::over_ssh(&net);
        run("over ssh, 80 ms", &chain, &DISTANT, rounds.min(3));
    }
    let world = World::new(&net);
    println!("## sessions\n\n{}", world.starts(arguments.starts));
    println!("{}\n## bars\n\n{bars}", world.memory());
}

fn run(name: &str, chain: &Chain<'_>, works: &[Work], rounds: u32) -> Results {
    let idle = chain.forwarder_memory();
    let mut results = Results::default();
    for round in 1..=rounds {
        for work in works {
            eprintln!("{name}, round {round}: {:?}", work.what);
            for (peer, values) in Peer::ALL.into_iter().zip(chain.load(*work)) {
                results.add(work.what, peer, values);
            }
        }
    }
    println!("## {name}\n\n{}", results.tables());
    let most = chain.forwarder_memory();
    println!(
        "forwarder: {} KiB resident before, {} KiB the most; with 256 idle connections: {} KiB\n",
        idle.0,
        most.1,
        chain.memory_of_many()
    );
    results
}
