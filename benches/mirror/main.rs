//! The mirror rows of the speed table: labproxy beside `rsync` over the same ssh server, on the same
//! trees, in a network namespace of its own whose loopback nobody else uses. `docs/benchmarks.md`
//! tells the method; `make bench-mirror` runs it, as root.
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
    clippy::exit,
    unreachable_pub,
    missing_docs,
    reason = "a measuring program: times are floats, and its output is its purpose"
)]

#[path = "../support/bars.rs"]
mod bars;
mod meter;
#[path = "../support/namespace.rs"]
mod namespace;
mod report;
mod rig;
mod scan;
#[allow(dead_code, reason = "the server has a port of its own here")]
#[path = "../../tests/support/sshd.rs"]
mod sshd;
mod tools;
mod trees;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;

use bars::Bars;
use report::{Key, Op, Results, Who};
use rig::Rig;
use trees::Tree;

/// Set in the process that runs in the namespace.
const INNER: &str = "BENCH_MIRROR_INNER";

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds on each file system; each does everything once with everybody.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// A tenth of everything, one round: only whether it runs, on a machine that is busy.
    #[arg(long)]
    quick: bool,
    /// Only on the memory file system.
    #[arg(long)]
    tmpfs_only: bool,
    /// Only these trees.
    #[arg(long)]
    tree: Vec<Tree>,
    /// The most files of the trees that grow; with 0 there are none.
    #[arg(long, default_value_t = 100_000)]
    growth: u64,
    /// A directory on a disk; default below `target/`.
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "__exec") {
        // The library starts ssh through its own program's hidden command.
        let error = Command::new(env!("CARGO_BIN_EXE_labproxy"))
            .args(std::env::args_os().skip(1))
            .exec();
        panic!("labproxy cannot be started: {error}");
    }
    let arguments = Arguments::parse();
    namespace::enter(INNER);
    meter::adopt();
    measure(&arguments);
}

fn measure(arguments: &Arguments) {
    println!("{}\n", rig::versions());
    if arguments.quick {
        println!("quick: a tenth of every tree, once; the floors are not meant for it\n");
    }
    let below = Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned();
    let disk = arguments.disk.clone().unwrap_or(below);
    let mut places = vec![("tmpfs", PathBuf::from("/dev/shm"))];
    if !arguments.tmpfs_only {
        places.push(("ext4", disk));
    }
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let mut trees = arguments.tree.clone();
    if trees.is_empty() {
        trees = Tree::ALL.to_vec();
    }
    let mut bars = Bars::default();
    for (name, place) in places {
        let mut results = Results::default();
        for round in 0..rounds {
            for tree in &trees {
                eprintln!("{name}, round {}: tree {tree:?}", round + 1);
                one(&mut results, &place, *tree, round, arguments.quick);
            }
        }
        println!("## {name}\n\n{}", results.table());
        results.bars(name, &mut bars);
    }
    let most = arguments.growth / if arguments.quick { 10 } else { 1 };
    if most > 0 {
        println!("## growth, tmpfs\n\n{}", growth(most));
    }
    println!("## bars\n\n{bars}");
}

/// Everything once, on one tree that is made anew.
fn one(results: &mut Results, place: &Path, tree: Tree, round: u32, quick: bool) {
    let rig = Rig::new(place);
    tree.make(&rig.source(), quick);
    let mut who = vec![Who::Rsync, Who::Command, Who::RsyncConnected, Who::Resident];
    let all = who.len();
    who.rotate_left(round as usize % all);
    let mut resident = rig.resident();
    for op in Op::ALL {
        tree.change(&rig.source(), op, round);
        for who in &who {
            let cost = match who {
                Who::Rsync | Who::RsyncConnected => meter::cost(|| rig.rsync(*who, op)),
                Who::Command => meter::cost(|| rig.command()),
                Who::Resident => meter::cost(|| resident.pull()),
                Who::Pass => continue,
            };
            results.add(Key(tree, op, *who), cost);
        }
        let both = [rig.source(), rig.copy(Who::Resident)];
        let cost = meter::cost(|| scan::passes(&both, rig::threads()));
        results.add(Key(tree, op, Who::Pass), cost);
    }
    if tree != Tree::C {
        let wanted = scan::hash_of(&rig.source());
        for who in who {
            let has = scan::hash_of(&rig.copy(who));
            assert_eq!(wanted, has, "{who:?} has another tree than its source");
        }
    }
}

/// A scan and a no-op of trees that become larger, by one resident end.
fn growth(most: u64) -> String {
    let mut rows = report::growth_head();
    for files in [most / 100, most / 10, most] {
        let rig = Rig::new(Path::new("/dev/shm"));
        trees::many(&rig.source(), files);
        let mut resident = rig.resident();
        let first = meter::cost(|| resident.pull());
        let both = [rig.source(), rig.copy(Who::Resident)];
        let mut best = [f64::INFINITY; 3];
        for _ in 0..3 {
            let pair = scan::pair(&both[0], rig::threads());
            let again = meter::cost(|| resident.pull());
            for (best, now) in best.iter_mut().zip([pair.pass, pair.scan, again.wall]) {
                *best = best.min(now);
            }
        }
        rows.push_str(&report::growth_row(files, first.wall, best));
    }
    rows
}
