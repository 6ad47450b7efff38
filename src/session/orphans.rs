//! What an agent leaves behind: processes whose parents ended come to labproxy, a child subreaper.
//!
//! A session really ends: what still runs then is told to end, and killed when it does not.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::time::Instant;

use super::processes::{ProcessStamp, own_zombies};

/// A zombie this old is an orphan: whoever in this program starts a child waits for it at once.
const ORPHAN_AFTER: Duration = Duration::from_secs(2);
/// How long a leftover may take to end after SIGTERM.
pub(super) const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How often leftovers are looked at; nobody is told when a grandchild ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Rounds of killing: each round may find children that were made during the last one.
const KILL_ROUNDS: u32 = 50;

/// Ended orphans that wait to be reaped.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    seen: BTreeMap<ProcessStamp, Instant>,
}

impl Orphans {
    /// Takes in that this process gets the orphans of its descendants.
    pub(super) fn adopt() {
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::warn!(%error, "orphans of the agent will not be seen");
        }
    }

    /// Reaps the zombies that nobody in this program waits for; never `agent`.
    pub(super) fn reap(&mut self, agent: Option<ProcessStamp>) {
        let now = Instant::now();
        let zombies = own_zombies();
        self.seen.retain(|stamp, _| zombies.contains(stamp));
        for stamp in zombies {
            let since = *self.seen.entry(stamp).or_insert(now);
            if Some(stamp) != agent && now.duration_since(since) >= ORPHAN_AFTER {
                reap(stamp);
                self.seen.remove(&stamp);
            }
        }
    }
}

fn reap(stamp: ProcessStamp) {
    if let Some(pid) = Pid::from_raw(stamp.pid) {
        // Already reaped is as good.
        let _reaped = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Ends every living descendant: SIGTERM, a short grace, SIGKILL. Gives how many there were.
pub(super) async fn end_leftovers(of: ProcessStamp) -> usize {
    let left = of.descendants();
    if left.is_empty() {
        return 0;
    }
    signal_all(&left, Signal::TERM);
    // A stopped one acts on SIGTERM only when it goes on.
    signal_all(&left, Signal::CONT);
    let patience = Instant::now() + LEFTOVER_GRACE;
    while Instant::now() < patience && !of.descendants().is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    for _ in 0..KILL_ROUNDS {
        let still = of.descendants();
        if still.is_empty() {
            break;
        }
        signal_all(&still, Signal::KILL);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    left.len()
}

fn signal_all(processes: &[ProcessStamp], signal: Signal) {
    for process in processes.iter().filter(|process| process.is_alive()) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _gone_meanwhile = rustix::process::kill_process(pid, signal);
        }
    }
}
