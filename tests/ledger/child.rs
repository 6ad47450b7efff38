//! A process of its own that works with a ledger: the test binary, started again for one test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use labproxy::cap::{Account, Denied};
use labproxy::ledger::RequestEnd;

use crate::bench::{Numbers, account, ask, charge, open, paths, pico, wait_until};

const DIRECTORY: &str = "LABPROXY_TEST_LEDGER";
const WORK: &str = "LABPROXY_TEST_WORK";
const SEED: &str = "LABPROXY_TEST_SEED";

/// What the child does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Eight clients send requests for as long as the child lives.
    Load,
    /// One client sends this many requests, one after the other; then the ledger is closed.
    Requests(u32),
}

/// The command that starts the child.
pub(crate) fn command(directory: &Path, work: Work, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child::run", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .env(
            WORK,
            match work {
                Work::Load => "load".to_owned(),
                Work::Requests(count) => count.to_string(),
            },
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Tells the parent one line, by one write: what it says has happened. The harness writes on the
/// same stream, so the line begins with a line end of its own.
fn tell(line: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(format!("\n@ {line}\n").as_bytes())
        .unwrap();
    stdout.flush().unwrap();
}

/// The lines that a child told.
pub(crate) fn told(output: &str) -> Vec<Vec<String>> {
    output
        .lines()
        // The kill may have cut the last line.
        .filter_map(|line| line.strip_prefix("@ "))
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect()
}

/// Not a test: what a child process runs.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn run() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = PathBuf::from(directory);
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let work = std::env::var(WORK).unwrap();
    runtime.block_on(async {
        let ledger = match open(&directory) {
            Ok(ledger) => ledger,
            Err(error) => return tell(&format!("not-opened {error}")),
        };
        let (session, account) = account(&ledger, pico(1_000_000_000)).await;
        tell(&format!("session {session}"));
        if work == "load" {
            let clients = (0..8).map(|client| {
                let account = Arc::clone(&account);
                tokio::spawn(async move { send(&account, seed ^ client, u32::MAX).await })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
        } else {
            send(&account, seed, work.parse().unwrap()).await;
            account.idle().await;
        }
        tell(&format!("poisoned {}", ledger.is_poisoned()));
    });
    let log = paths(&directory).0.with_extension("sqlite-wal");
    if std::env::var_os("DISK_LOG").is_some() {
        wait_until("the writer closes the ledger", || !log.exists());
    }
}

/// Sends requests: what the "upstream" serves is told before it is settled.
async fn send(account: &Arc<Account>, seed: u64, count: u32) {
    let mut numbers = Numbers(seed);
    for _ in 0..count {
        let hold = 100 + numbers.below(900);
        let ask = ask(hold);
        let request = ask.request.clone();
        let outcome = account
            .reserve(ask, || async { None }, std::future::pending())
            .await;
        match outcome {
            Ok(grant) => {
                let in_flight = grant.reserved.sent();
                let served = numbers.below(hold + 1);
                tell(&format!("served {request} {hold} {served}"));
                match numbers.below(10) {
                    0 => drop(in_flight),
                    _ => in_flight.settle(charge(served), RequestEnd::default()),
                }
            }
            Err(Denied::Ledger(error)) => tell(&format!("refused {error}")),
            Err(other) => {
                tell(&format!("denied {other}"));
                return;
            }
        }
    }
}
