//! The proxy rows of the speed table: labproxy beside a minimal hyper proxy, nginx and LiteLLM, in
//! one run on one machine. `docs/benchmarks.md` tells the method; `make bench` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a measuring program: times are floats, and its output is its purpose"
)]

#[path = "../support/bars.rs"]
mod bars;
mod load;
mod minimal;
mod peers;
mod process;
mod report;
mod upstream;
mod wire;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

use bars::{Bar, Spread};
use load::{Address, Budget, closed_loop, open_streams};
use peers::Peer;
use process::Memory;
use report::Results;

/// Streams that are open at once in the memory rows.
const OPEN_STREAMS: u64 = 1_000;
/// Events of one measured stream: a middling answer of an agent.
const EVENTS: u64 = 300;
/// Descriptors for 1,000 streams on both sides of a proxy, with room; what this kind of machine
/// lets a user have.
const DESCRIPTORS: u64 = 20_000;
/// Requests of one run at most, so that the ledger of a whole benchmark stays below 1 GiB.
const RUN_REQUESTS: u64 = 150_000;

/// Measures labproxy's proxy beside its peers and prints the tables.
#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each measures every workload on every peer once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of one run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Workloads to run; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Peers to leave out: minimal, nginx, litellm, labproxy.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Where ledgers and configurations go: on the file system that the figures are for.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench/scratch"))]
    scratch: PathBuf,
    /// The labproxy to measure.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_labproxy"))]
    labproxy: PathBuf,
    /// The nginx to measure.
    #[arg(long, default_value = "/usr/sbin/nginx")]
    nginx: PathBuf,
    /// The LiteLLM to measure.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/clients/venv-litellm/bin/litellm"))]
    litellm: PathBuf,
    /// Internal: be another process of the benchmark.
    #[arg(long, hide = true, value_enum)]
    role: Option<Role>,
    /// Internal: where the role sends requests.
    #[arg(long, hide = true, default_value = "")]
    upstream: String,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// 1 KiB JSON requests on 32 connections.
    Json32,
    /// 1 KiB JSON requests on one connection.
    Json1,
    /// Streams whose events come one by one.
    Events,
    /// Streams whose events come many at once.
    Burst,
    /// Time to first byte of 16 streams at once.
    FirstByte,
    /// Memory, idle and at 1,000 open streams.
    Memory,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    Upstream,
    Minimal,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match arguments.role {
        Some(role) => runtime.block_on(play(role, arguments.upstream)),
        None => runtime.block_on(measure(&arguments)),
    }
}

async fn play(role: Role, upstream: String) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    match role {
        Role::Upstream => upstream::serve(listener).await,
        Role::Minimal => minimal::serve(listener, upstream).await,
    }
}

/// Lets this process and its children have the descriptors that the streams need.
fn raise_descriptors() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        },
    )?;
    Ok(())
}

async fn measure(arguments: &Arguments) -> io::Result<()> {
    raise_descriptors()?;
    std::fs::create_dir_all(&arguments.scratch)?;
    let scratch = arguments.scratch.canonicalize()?;

    let upstream = peers::own("upstream", None)?;
    let direct = upstream.address.clone();
    let mut peers = start_peers(arguments, &direct.authority, &scratch)?;
    let idle: Vec<(&'static str, Memory)> = peers
        .iter()
        .map(|peer| (peer.name, peer.program.memory()))
        .collect();

    let mut results = Results::default();
    let wanted = |workload| arguments.only.is_empty() || arguments.only.contains(&workload);
    for round in 1..=arguments.rounds {
        for workload in [
            Workload::Json32,
            Workload::Json1,
            Workload::Events,
            Workload::Burst,
            Workload::FirstByte,
        ] {
            if !wanted(workload) {
                continue;
            }
            everyone(arguments, round, workload, &direct, &peers, &mut results).await?;
        }
    }
    let memory = if wanted(Workload::Memory) {
        memory(arguments, &direct.authority, &scratch).await?
    } else {
        Vec::new()
    };
    tables(&mut results, &idle, &memory);
    let after: Vec<_> = peers
        .iter()
        .map(|peer| (peer.name, peer.program.memory()))
        .collect();
    for (name, memory) in after {
        println!(
            "{name}: {} MB resident after the rounds",
            mega(memory.resident)
        );
    }
    for peer in &mut peers {
        peer.program.end();
    }
    Ok(())
}

/// One workload on each peer, and without any.
async fn everyone(
    arguments: &Arguments,
    round: u32,
    workload: Workload,
    direct: &Address,
    peers: &[Peer],
    results: &mut Results,
) -> io::Result<()> {
    let plan = plan(workload);
    let budget = Budget {
        time: Duration::from_secs_f64(arguments.seconds),
        requests: RUN_REQUESTS,
    };
    let request = direct.request(plan.stream, plan.wish, 1024);
    let run = closed_loop(None, direct, &request, plan.connections, budget).await?;
    results.add(plan.name, "direct", run);
    for peer in peers {
        // It answers some hundred requests a second: the streams would show nothing more.
        if peer.name == "litellm" && plan.stream {
            continue;
        }
        let request = peer.address.request(plan.stream, plan.wish, 1024);
        let run = closed_loop(
            Some(&peer.program),
            &peer.address,
            &request,
            plan.connections,
            budget,
        )
        .await
        .map_err(|error| io::Error::other(format!("{}: {error}", peer.name)))?;
        eprintln!(
            "round {round} {} {}: {:.0}/s, {:.1} µs CPU",
            plan.name,
            peer.name,
            run.rate(),
            run.cpu_us()
        );
        results.add(plan.name, peer.name, run);
    }
    Ok(())
}

fn start_peers(arguments: &Arguments, upstream: &str, scratch: &Path) -> io::Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let with = |name: &str| !arguments.without.iter().any(|without| without == name);
    if with("minimal") {
        peers.push(peers::own("minimal", Some(upstream))?);
    }
    if with("nginx") {
        if arguments.nginx.exists() {
            peers.push(peers::nginx(&arguments.nginx, upstream, scratch)?);
        } else {
            eprintln!("no {}: nginx is left out", arguments.nginx.display());
        }
    }
    if with("labproxy") {
        peers.push(peers::labproxy(&arguments.labproxy, upstream, scratch)?);
    }
    if with("litellm") {
        if arguments.litellm.exists() {
            peers.push(peers::litellm(&arguments.litellm, upstream, scratch)?);
        } else {
            eprintln!("no {}: LiteLLM is left out", arguments.litellm.display());
        }
    }
    Ok(peers)
}

struct Plan {
    name: &'static str,
    connections: usize,
    stream: bool,
    wish: &'static str,
}

fn plan(workload: Workload) -> Plan {
    let (name, connections, stream, wish) = match workload {
        Workload::Json32 => ("JSON, 32 connections", 32, false, ""),
        Workload::Json1 => ("JSON, 1 connection", 1, false, ""),
        Workload::Events => ("events one by one", 16, true, "events=300 pace_us=1000 "),
        Workload::Burst => ("events in bursts", 16, true, "events=300 pace_us=0 "),
        Workload::FirstByte => ("first byte, 16 streams", 16, true, "events=8 pace_us=1000 "),
        Workload::Memory => ("memory", 1_000, true, "events=8 pace_us=1000000 "),
    };
    Plan {
        name,
        connections,
        stream,
        wish,
    }
}

/// Memory of fresh processes: idle, and with 1,000 streams open.
async fn memory(
    arguments: &Arguments,
    upstream: &str,
    scratch: &Path,
) -> io::Result<Vec<(&'static str, Memory, Memory)>> {
    let mut seen = Vec::new();
    let plan = plan(Workload::Memory);
    let names: Vec<String> = ["litellm".to_owned()].into();
    let without = [arguments.without.clone(), names].concat();
    let fresh = Arguments {
        without,
        ..copied(arguments)
    };
    let scratch = scratch.join("memory");
    std::fs::create_dir_all(&scratch)?;
    for mut peer in start_peers(&fresh, upstream, &scratch)? {
        // One request first, so that what is made once is not counted a thousand times.
        let one = peer.address.request(true, "events=1 pace_us=1000 ", 1024);
        open_streams(&peer.address, &one, 1, || ()).await?;
        let before = peer.program.memory();
        let mut at_most = Memory::default();
        let request = peer.address.request(true, plan.wish, 1024);
        open_streams(&peer.address, &request, OPEN_STREAMS, || {
            at_most = peer.program.memory();
        })
        .await
        .map_err(|error| io::Error::other(format!("{}: {error}", peer.name)))?;
        eprintln!("memory {}: {before:?} {at_most:?}", peer.name);
        seen.push((peer.name, before, at_most));
        peer.program.end();
    }
    Ok(seen)
}

fn copied(arguments: &Arguments) -> Arguments {
    Arguments {
        only: arguments.only.clone(),
        without: arguments.without.clone(),
        scratch: arguments.scratch.clone(),
        labproxy: arguments.labproxy.clone(),
        nginx: arguments.nginx.clone(),
        litellm: arguments.litellm.clone(),
        upstream: String::new(),
        ..*arguments
    }
}

fn tables(
    results: &mut Results,
    idle: &[(&'static str, Memory)],
    memory: &[(&'static str, Memory, Memory)],
) {
    let json = plan(Workload::Json32).name;
    let rate = results.paired(json, ("labproxy", "nginx"), |one, other| {
        one.rate() / other.rate()
    });
    let litellm = results.paired(json, ("labproxy", "litellm"), |one, other| {
        one.rate() / other.rate()
    });
    let cpu = |workload| {
        results.paired(
            plan(workload).name,
            ("labproxy", "minimal"),
            |one, other| one.cpu_us() / other.cpu_us(),
        )
    };
    let (per_request, per_event, in_bursts) = (
        cpu(Workload::Json32),
        cpu(Workload::Events),
        cpu(Workload::Burst),
    );
    let first = plan(Workload::FirstByte).name;
    let added = results.paired(first, ("labproxy", "direct"), |one, other| {
        (load::quantile_us(&one.first_byte, 0.99) - load::quantile_us(&other.first_byte, 0.99))
            / 1e3
    });
    results.bars.row(
        "CPU per 1 KiB request, durable hold, 32 connections",
        "minimal proxy, ×",
        Bar::AtMost(1.8, 1.3),
        per_request,
    );
    results.bars.row(
        "requests/s, the same",
        "nginx, ×",
        Bar::AtLeast(0.5, 0.7),
        rate,
    );
    results.bars.row(
        "requests/s, the same",
        "LiteLLM, ×",
        Bar::AtLeast(200.0, 500.0),
        litellm,
    );
    results.bars.row(
        "CPU per SSE event, one by one",
        "minimal proxy, ×",
        Bar::AtMost(1.25, 1.1),
        per_event,
    );
    results.bars.row(
        "CPU per SSE event, 24 in one write",
        "minimal proxy, ×",
        Bar::AtMost(1.25, 1.1),
        in_bursts,
    );
    results.bars.row(
        "added time to first byte, p99, 16 streams",
        "direct, ms",
        Bar::AtMost(3.0, 1.0),
        added,
    );
    memory_rows(results, idle, memory);
    println!("{}", results.bars);
    details(results);
    memory_table(idle, memory);
}

fn memory_rows(
    results: &mut Results,
    idle: &[(&'static str, Memory)],
    memory: &[(&'static str, Memory, Memory)],
) {
    let own = memory.iter().find(|(name, ..)| *name == "labproxy");
    let at_rest = idle.iter().find(|(name, _)| *name == "labproxy");
    let resident = Spread::of(at_rest.map(|(_, memory)| memory.resident as f64 / 1e6));
    let stream = Spread::of(own.map(|(_, before, most)| a_stream(*before, *most)));
    results
        .bars
        .row("memory, idle", "MB", Bar::AtMost(20.0, 12.0), resident);
    results.bars.row(
        "memory per open stream, 1,000 open",
        "KiB",
        Bar::AtMost(64.0, 24.0),
        stream,
    );
}

fn details(results: &mut Results) {
    for workload in [Workload::Json32, Workload::Json1, Workload::FirstByte] {
        println!("{}", results.detail(plan(workload).name, 1.0, "request"));
    }
    for workload in [Workload::Events, Workload::Burst] {
        println!(
            "{}",
            results.detail(plan(workload).name, EVENTS as f64, "event")
        );
    }
}

fn memory_table(idle: &[(&'static str, Memory)], memory: &[(&'static str, Memory, Memory)]) {
    println!(
        "| memory | idle, MB | of that its own | after one stream | 1,000 streams | KiB a stream |\n|---|---|---|---|---|---|"
    );
    for (name, before, most) in memory {
        let idle = idle
            .iter()
            .find(|(other, _)| other == name)
            .map_or(*before, |(_, idle)| *idle);
        println!(
            "| {name} | {} | {} | {} | {} | {:.1} |",
            mega(idle.resident),
            mega(idle.own),
            mega(before.resident),
            mega(most.resident),
            a_stream(*before, *most)
        );
    }
}

fn a_stream(before: Memory, most: Memory) -> f64 {
    most.resident.saturating_sub(before.resident) as f64 / 1024.0 / OPEN_STREAMS as f64
}

fn mega(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
