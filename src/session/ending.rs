//! The end of a session, in order: requests in flight, what the agent left, the last entry, the
//! sockets, the receipt.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent::{AgentEnd, Loss};
use super::control::ControlServer;
use super::control::events::{self, Event};
use super::live::Live;
use super::orphans::{self, LEFTOVER_GRACE};
use super::processes::ProcessStamp;
use super::remote::confirm;
use super::remote::open::Remote;
use super::remote::record::Remains;
use super::running::{Ending, GRACE};
use super::signals::{Asked, Signals};
use super::start::Plan;
use super::workspace::syncing::{Ended, Syncing};
use super::{books, receipt};
use crate::ledger::Entry;
use crate::proxy::Counters;
use crate::report::{self, Failure, counted};
use crate::table::Style;
use crate::usage::{CREDENTIAL_REFUSED, CloseReason};

/// So much of a failed agent's error output is shown: a screen, in which the reason is.
const LAST_WORDS_BYTES: u64 = 4 * 1024;
/// After this long the user is told what is waited for.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Why a session ended, as the receipt says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The agent ended by itself, or succeeded.
    AgentExit,
    /// Requests were refused for want of room, and the agent did not succeed.
    Cap,
    /// A signal or `session stop`.
    Stopped,
    /// A charge above its hold, or one that could not be bounded, closed the session.
    Overrun,
    /// The link to the agent's host was lost, and did not come back within the lease.
    LinkLost,
    /// The session's side on the agent's host was killed, or the host restarted.
    HostKilled,
    /// labproxy itself failed.
    Error,
}

impl EndReason {
    /// The word in receipts and in the ledger.
    pub fn word(self) -> &'static str {
        match self {
            Self::AgentExit => "agent_exit",
            Self::Cap => "cap",
            Self::Stopped => "stopped",
            Self::Overrun => "overrun",
            Self::LinkLost => "link_lost",
            Self::HostKilled => "host_killed",
            Self::Error => "error",
        }
    }

    /// The reason, from what is known at the end.
    fn of(live: &Live, ending: &Ending) -> Self {
        let balance = live.account.balance();
        match balance.closed {
            Some(
                CloseReason::Overrun(_)
                | CloseReason::UnpricedServedModel(_)
                | CloseReason::UnknownCounter(_)
                | CloseReason::ServedFast,
            ) => return Self::Overrun,
            Some(CloseReason::LedgerFailed(_)) => return Self::Error,
            Some(CloseReason::Ending) | None => {}
        }
        match ending {
            Ending::Stopped { .. } | Ending::Unreached { .. } => Self::Stopped,
            Ending::AgentExit(AgentEnd::Lost(Loss::Link)) => Self::LinkLost,
            Ending::AgentExit(AgentEnd::Lost(Loss::Host)) => Self::HostKilled,
            Ending::AgentExit(end) if balance.cap_reached && end.status() != 0 => Self::Cap,
            Ending::AgentExit(_) => Self::AgentExit,
        }
    }
}

/// What the end of a session works with.
pub struct End<'a> {
    /// Why the main loop ended.
    pub ending: &'a Ending,
    /// The session's plan.
    pub plan: &'a Plan,
    /// How text on stderr may look.
    pub style: Style,
    /// Where the agent's error output went, when nobody saw it.
    pub error_file: Option<&'a Path>,
    /// Whether labproxy itself failed, such as an agent that could not be started.
    pub failed: bool,
}

/// Ends a session. Failures on the way do not stop the rest.
///
/// # Errors
/// When the last entry or the receipt could not be written.
pub async fn end(
    live: &Arc<Live>,
    control: ControlServer,
    end: &End<'_>,
    (remote, workspace): (Option<Remote>, Option<Arc<Syncing>>),
    signals: &mut Signals,
) -> Result<(), Failure> {
    let End {
        ending,
        plan,
        style,
        error_file,
        failed,
    } = *end;
    live.request_stop();
    let own = ProcessStamp::current();
    let host = plan.host.as_ref().map(|host| host.name.as_str());
    let hurry = CancellationToken::new();
    let clear = async {
        // Before what is left here: ssh is ours, and is needed to hear from the host.
        let remains = match remote {
            Some(remote) => Some(remote.end(LEFTOVER_GRACE, hurry.cancelled()).await),
            None => None,
        };
        // The tree is quiet only now.
        let is_quiet = remains.as_ref().is_some_and(Result::is_ok);
        let home = bring_home(live, workspace, is_quiet, &hurry).await;
        (remains, home, orphans::end_leftovers(own).await)
    };
    let all = async { tokio::join!(clear, settle_in_flight(live, ending, &hurry)) };
    let ((remains, home, leftovers), ()) = hurried(all, &hurry, signals).await;
    let reason = if failed {
        EndReason::Error
    } else {
        EndReason::of(live, ending)
    };
    let counters = live.proxy.counters();
    let agent = ending.agent();
    let ended = live
        .ledger
        .append(
            &live.session,
            vec![Entry::Ended {
                end_reason: reason.word().to_owned(),
                exit_code: agent.and_then(AgentEnd::exit_code),
                signal: agent.and_then(AgentEnd::signal_name),
                free_requests: counters.free,
                workspace: home.as_ref().map(|home| home.sums.clone()),
            }],
        )
        .await;
    tell_end(live, reason, agent);
    let refused_callers = control.refused_callers();
    control.close().await;
    clear_files(live);
    let written = receipt_at_end(live, plan, style);
    tell_notes(&Notes {
        had_agent: plan.agent.is_some() && !failed,
        early: early_end(host, agent, counters),
        last_words: error_file.and_then(last_words),
        counters,
        leftovers,
        refused_callers,
        changed: plan.watched.changed(),
        ledger_failed: match live.account.balance().closed {
            Some(CloseReason::LedgerFailed(what)) => Some(what),
            _ => None,
        },
    });
    let confirmed = tell_remains(host, remains);
    if let Some(home) = home {
        report::tell(&home.text);
    }
    ended.map_err(|error| Failure::because("the session's last entry was not written", &*error))?;
    written.and(confirmed)
}

/// Tells who watches the session that it has ended.
fn tell_end(live: &Live, reason: EndReason, agent: Option<AgentEnd>) {
    live.events.tell(|| {
        Event::End(events::End {
            reason: reason.word(),
            exit_code: agent.and_then(AgentEnd::exit_code),
            signal: agent.and_then(AgentEnd::signal_name),
            spent: live.account.balance().settled,
        })
    });
}

/// Brings the agent's work here, when there is a workspace.
async fn bring_home(
    live: &Live,
    workspace: Option<Arc<Syncing>>,
    is_quiet: bool,
    hurry: &CancellationToken,
) -> Option<Ended> {
    let workspace = workspace?;
    live.bringing_home(true);
    let ended = workspace.end(is_quiet, hurry).await;
    live.bringing_home(false);
    Some(ended)
}

/// Tells what the host says is left; that it could not say is a failure.
fn tell_remains(
    host: Option<&str>,
    remains: Option<Result<Remains, Failure>>,
) -> Result<(), Failure> {
    if let (Some(host), Some(remains)) = (host, remains) {
        tell(&confirm::line(host, &remains?));
    }
    Ok(())
}

/// Does something to its end; a further signal hurries it.
async fn hurried<T>(
    doing: impl Future<Output = T>,
    hurry: &CancellationToken,
    signals: &mut Signals,
) -> T {
    tokio::pin!(doing);
    loop {
        tokio::select! {
            done = &mut doing => return done,
            asked = signals.next() => {
                if !matches!(asked, Asked::Child | Asked::Continue) {
                    hurry.cancel();
                }
            }
        }
    }
}

/// Lets requests in flight end within the grace, or at once when that is wanted.
async fn settle_in_flight(live: &Live, ending: &Ending, hurry: &CancellationToken) {
    let grace = match ending {
        Ending::AgentExit(_) => GRACE,
        Ending::Stopped { until, .. } | Ending::Unreached { until, .. } => {
            until.saturating_duration_since(Instant::now())
        }
    };
    let shutdown = live.proxy.shutdown(grace);
    tokio::pin!(shutdown);
    let mut told = false;
    let tell_at = Instant::now() + TELL_AFTER;
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            () = hurry.cancelled() => {
                live.proxy.shutdown(Duration::ZERO).await;
                return;
            }
            () = tokio::time::sleep_until(tell_at), if !told => {
                told = true;
                report::tell(&format!(
                    "labproxy: waiting up to {} s for requests in flight (Ctrl-C ends now and keeps \
                     their holds)\n",
                    grace.as_secs()
                ));
            }
        }
    }
}

fn clear_files(live: &Live) {
    for path in [live.settings_path(), live.sockets.join("proxy.sock")] {
        let _absent = std::fs::remove_file(path);
    }
    let _not_empty = std::fs::remove_dir(&live.sockets);
}

/// Prints the receipt, and writes it where `--receipt` says.
fn receipt_at_end(live: &Live, plan: &Plan, style: Style) -> Result<(), Failure> {
    let value = books::receipt(&live.ledger_path, &live.session)?;
    report::tell(&receipt::text(&value, style));
    if let Some(file) = &plan.receipt {
        let mut text = serde_json::to_vec_pretty(&value)
            .map_err(|error| Failure::because("the receipt has no JSON form", &error))?;
        text.push(b'\n');
        file.write(&text)?;
    }
    Ok(())
}

/// Whether an agent on a host failed before it made a request, and whether it ever came as far as the
/// proxy: the first thing to know of a start that failed.
fn early_end(host: Option<&str>, agent: Option<AgentEnd>, counters: Counters) -> Option<String> {
    let host = host?;
    let failed = agent.filter(|end| end.status() != 0 && !matches!(end, AgentEnd::Lost(_)))?;
    if counters.messages > 0 {
        return None;
    }
    let calls = counters.free.saturating_add(counters.unauthenticated);
    let contact = if calls == 0 {
        "the proxy was never contacted".to_owned()
    } else {
        let calls = counted(calls, "other call", "other calls");
        format!("the proxy was contacted: {calls}")
    };
    Some(format!(
        "the agent on {host} ended with status {} before it made a request; {contact}",
        failed.status()
    ))
}

/// The end of what an agent wrote to its error file, each line as a terminal may show it.
fn last_words(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(LAST_WORDS_BYTES);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut bytes).ok()?;
    if bytes.is_empty() {
        return None;
    }
    let mut text = format!("labproxy: the end of {}:\n", path.display());
    for line in bytes.trim_ascii_end().split(|byte| *byte == b'\n') {
        text.push_str(&crate::escape::escape_line(line));
        text.push('\n');
    }
    Some(text)
}

/// What a user should know beside the receipt.
struct Notes {
    had_agent: bool,
    /// A remote agent that failed before it made a request.
    early: Option<String>,
    /// What the agent wrote at last, when nobody saw it.
    last_words: Option<String>,
    counters: Counters,
    leftovers: usize,
    refused_callers: u64,
    changed: Vec<std::path::PathBuf>,
    ledger_failed: Option<String>,
}

fn tell_notes(notes: &Notes) {
    if let Some(what) = &notes.ledger_failed {
        tell(&format!(
            "the ledger could not be written ({what}): no request was forwarded from then on. What \
             was in flight is charged at its whole hold when labproxy is started again"
        ));
    }
    if let Some(early) = &notes.early {
        tell(early);
        if let Some(words) = &notes.last_words {
            report::tell(words);
        }
    }
    for path in &notes.changed {
        tell(&format!(
            "{} changed during the session, which went on with what it started with",
            path.display()
        ));
    }
    if notes.leftovers > 0 {
        let count = u64::try_from(notes.leftovers).unwrap_or(u64::MAX);
        let ended = counted(count, "process", "processes");
        tell(&format!("ended {ended} that the agent left running"));
    }
    if notes.refused_callers > 0 {
        let refused = counted(notes.refused_callers, "control call", "control calls");
        tell(&format!("refused {refused} from inside the session"));
    }
    if notes.counters.credential_refused > 0 {
        let times = counted(notes.counters.credential_refused, "time", "times");
        tell(&format!(
            "{CREDENTIAL_REFUSED} {times}: check it, and that it belongs to this upstream"
        ));
    }
    if notes.counters.unauthenticated > 0 {
        let refused = counted(notes.counters.unauthenticated, "call", "calls");
        tell(&format!(
            "refused {refused} without this session's placeholder"
        ));
    }
    if notes.had_agent && notes.counters.messages == 0 {
        tell(
            "WARNING: not one request of the agent came through the proxy. If it did call a \
             provider, that was neither metered nor capped: look for a base URL, an API key or a \
             provider switch in its own settings.",
        );
    }
}

fn tell(text: &str) {
    report::tell(&format!("labproxy: {}\n", crate::escape::escape_line(text)));
}
