//! Processes killed at any moment: what was served is never forgotten.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use labproxy::id::SessionId;
use labproxy::ledger::Reader;
use labproxy::receipt::{Outcome, Receipt};

use crate::bench::{Numbers, open, paths, pico, problems, read, wait_until};
use crate::child::{Work, command, told};

/// Kills in CI; `make soak` asks for more.
const KILLS: u64 = 60;
/// Kills that one ledger lives through.
const KILLS_PER_LEDGER: u64 = 10;

/// L02, T12: a process under load is killed with SIGKILL at seeded moments. After recovery the chain
/// verifies, every served request is charged at least what it cost, and nothing is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l02_t12_killed_at_any_moment_nothing_served_is_forgotten() {
    let kills = std::env::var("LABPROXY_SOAK_KILLS")
        .map_or(KILLS, |count| count.parse().expect("a number of kills"));
    let mut directory = tempfile::tempdir().unwrap();
    let mut served_in_all = 0;
    for kill in 0..kills {
        if kill % KILLS_PER_LEDGER == 0 {
            directory = tempfile::tempdir().unwrap();
        }
        served_in_all += kill_once(directory.path(), kill).await;
    }
    // The load must have been a load: several requests were served in an average run.
    assert!(served_in_all > kills * 5, "{served_in_all} served");
}

async fn kill_once(directory: &Path, seed: u64) -> u64 {
    let mut child = command(directory, Work::Load, seed).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut output = Vec::new();
    // Every fourth child is killed before it is known to have opened the ledger.
    while !seed.is_multiple_of(4) && !output.windows(9).any(|window| window == b"@ served ") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        output.push(byte[0]);
    }
    std::thread::sleep(Duration::from_micros(Numbers(seed).below(40_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    stdout.read_to_end(&mut output).unwrap();
    let output = String::from_utf8_lossy(&output).into_owned();
    let complete = output.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let lines = told(complete);
    let session = lines.iter().find(|line| line[0] == "session");
    let Some(session) = session else { return 0 };
    let session: SessionId = session[1].parse().unwrap();
    recover(directory, &session).await;
    let receipt = Receipt::fold(&session, &read(directory, &session)).unwrap();
    let charged: HashMap<&str, _> = receipt
        .requests
        .iter()
        .map(|line| (line.id.as_str(), line))
        .collect();
    let mut served = 0;
    for line in lines.iter().filter(|line| line[0] == "served") {
        let [_, request, hold, cost] = line.as_slice() else {
            panic!("{line:?}")
        };
        let (hold, cost) = (hold.parse().unwrap(), cost.parse().unwrap());
        let entry = charged[request.as_str()];
        let exact = (Some(Outcome::Settled), pico(cost));
        let whole = (Some(Outcome::Kept), pico(hold));
        let found = (entry.outcome, entry.charged_pico_usd);
        assert!(found == exact || found == whole, "{request}: {found:?}");
        served += 1;
    }
    assert_eq!(receipt.held_pico_usd, pico(0));
    served
}

/// What the next start does for a session whose owner is gone.
async fn recover(directory: &Path, session: &SessionId) {
    let ledger = open(directory).unwrap();
    let reader = Reader::open(&paths(directory).0).unwrap();
    let open = reader.sessions_with_open_holds().unwrap();
    assert!(open.iter().all(|open| open == session), "{open:?}");
    ledger
        .keep_open_holds(session, "labproxy died")
        .await
        .unwrap();
    assert_eq!(reader.sessions_with_open_holds().unwrap(), Vec::new());
    assert_eq!(problems(directory), Vec::<String>::new());
}

/// K19: settlements that nobody waited for are in the file soon after, and a kill does not lose them.
#[test]
fn k19_settlements_are_in_the_file_before_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = paths(directory.path());
    let mut child = command(directory.path(), Work::Load, 19).spawn().unwrap();
    let settled = || {
        let Ok(reader) = Reader::open(&path) else {
            return 0;
        };
        let Ok(sessions) = reader.sessions() else {
            return 0;
        };
        sessions
            .iter()
            .flat_map(|row| reader.session(&row.session).unwrap())
            .filter(|recorded| matches!(recorded.entry, labproxy::ledger::Entry::Settled { .. }))
            .count()
    };
    wait_until("two settlements", || settled() >= 2);
    let before = settled();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(settled() >= before);
    assert_eq!(problems(directory.path()), Vec::<String>::new());
}
