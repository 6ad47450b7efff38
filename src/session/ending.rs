//! The end of a session, in order: requests in flight, what the agent left, the last entry, the
//! sockets, the receipt.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::agent::AgentEnd;
use super::control::ControlServer;
use super::live::Live;
use super::orphans;
use super::processes::ProcessStamp;
use super::running::{Ending, GRACE};
use super::signals::{Asked, Signals};
use super::start::Plan;
use super::{books, receipt};
use crate::ledger::Entry;
use crate::proxy::Counters;
use crate::report::{self, Failure, counted};
use crate::table::Style;
use crate::usage::{CREDENTIAL_REFUSED, CloseReason};

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
            Ending::Stopped { .. } => Self::Stopped,
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
    signals: &mut Signals,
) -> Result<(), Failure> {
    let End {
        ending,
        plan,
        style,
        failed,
    } = *end;
    let own = ProcessStamp::current();
    let (leftovers, ()) = tokio::join!(
        orphans::end_leftovers(own),
        settle_in_flight(live, ending, signals)
    );
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
            }],
        )
        .await;
    let refused_callers = control.refused_callers();
    control.close().await;
    clear_files(live);
    let written = receipt_at_end(live, plan, style);
    tell_notes(&Notes {
        had_agent: plan.agent.is_some() && !failed,
        counters,
        leftovers,
        refused_callers,
        changed: plan.watched.changed(),
        ledger_failed: match live.account.balance().closed {
            Some(CloseReason::LedgerFailed(what)) => Some(what),
            _ => None,
        },
    });
    ended.map_err(|error| Failure::because("the session's last entry was not written", &*error))?;
    written
}

/// Lets requests in flight end within the grace; a further signal ends it at once.
async fn settle_in_flight(live: &Live, ending: &Ending, signals: &mut Signals) {
    let grace = match ending {
        Ending::AgentExit(_) => GRACE,
        Ending::Stopped { until, .. } => until.saturating_duration_since(Instant::now()),
    };
    let shutdown = live.proxy.shutdown(grace);
    tokio::pin!(shutdown);
    let mut told = false;
    let tell_at = Instant::now() + TELL_AFTER;
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            asked = signals.next() => {
                if !matches!(asked, Asked::Child | Asked::Continue) {
                    live.proxy.shutdown(Duration::ZERO).await;
                    return;
                }
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

/// What a user should know beside the receipt.
struct Notes {
    had_agent: bool,
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
