//! What a session tells those who watch it over its control socket.

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{HostLink, Status};
use crate::cap::{Balance, Notice};
use crate::id::RequestId;
use crate::ledger::Entry;
use crate::mirror::pull::{Pulled, Workspace};
use crate::mirror::push::Pushed;
use crate::money::PicoUsd;
use crate::receipt::Outcome;
use crate::session::workspace::asked::Direction;

/// Events that are kept for a subscriber who is slow; older ones are lost to it, and it is told how
/// many. As many again of the session's requests and money.
const EVENTS_KEPT: usize = 64;

/// Something that became of a session, beside its money.
#[derive(Clone, Debug)]
pub enum Event {
    /// How the link to the host is now.
    Link(HostLink),
    /// The state, as in [`Status`].
    State(&'static str),
    /// The workspace is pulled or pushed.
    Pass(Direction, Pass),
    /// It has ended: the last event.
    End(End),
}

/// How far a pull or a push is.
#[derive(Clone, Debug)]
pub enum Pass {
    /// It began.
    Began,
    /// It ended well, with these numbers.
    Done(Value),
    /// It was refused or failed, for this reason.
    Refused(String),
}

/// How a session ended.
#[derive(Clone, Debug)]
pub struct End {
    /// Why, as the receipt says it.
    pub reason: &'static str,
    /// The agent's exit status.
    pub exit_code: Option<i32>,
    /// The signal that ended the agent.
    pub signal: Option<String>,
    /// What was charged.
    pub spent: PicoUsd,
}

/// Tells those who watch a session. Nobody is waited for.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENTS_KEPT))
    }
}

impl Events {
    /// Tells an event; it is not made while nobody watches.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // Whoever left meanwhile needs it no more.
            let _heard = self.0.send(event());
        }
    }

    /// Hears of everything from now on.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

/// What a subscriber gets: the status as it is, then what becomes of it.
#[derive(Debug)]
pub struct Feed {
    /// The money and the requests, watched since before the status was taken.
    pub notices: broadcast::Receiver<Notice>,
    /// The rest, likewise.
    pub events: broadcast::Receiver<Event>,
    /// The status.
    pub status: Status,
}

/// An event's name and what it says.
pub(super) type Told = (&'static str, Value);

impl Event {
    /// As it goes to a subscriber.
    pub(super) fn told(self) -> Told {
        match self {
            Self::Link(link) => ("link", json!({ "link": link })),
            Self::State(state) => ("state", json!({ "state": state })),
            Self::Pass(direction, pass) => (direction.word(), pass.value()),
            Self::End(end) => (
                "end",
                json!({
                    "end_reason": end.reason,
                    "exit_code": end.exit_code,
                    "signal": end.signal,
                    "spent_pico_usd": end.spent.pico(),
                }),
            ),
        }
    }
}

impl Pass {
    fn value(self) -> Value {
        match self {
            Self::Began => json!({ "what": "began" }),
            Self::Refused(why) => json!({ "what": "refused", "error": why }),
            Self::Done(mut numbers) => {
                if let Value::Object(numbers) = &mut numbers {
                    numbers.insert("what".to_owned(), "done".into());
                }
                numbers
            }
        }
    }

    /// A pull that ended well.
    pub fn pulled(pulled: &Pulled) -> Self {
        let changed = match &pulled.workspace {
            Workspace::Brought { summary, .. } => summary.files(),
            Workspace::Left | Workspace::Edited(_) => 0,
        };
        let generation = &pulled.generation;
        Self::Done(json!({
            "tree": generation.tree.to_string(),
            "generation": generation.number.0,
            "files": generation.totals.files,
            "bytes": generation.totals.bytes,
            "changed_files": changed,
            "received_bytes": pulled.received.bytes,
        }))
    }

    /// A push that ended well.
    pub fn pushed(pushed: &Pushed) -> Self {
        Self::Done(json!({
            "tree": pushed.tree.to_string(),
            "changed_files": pushed.plan.summary.files(),
            "sent_bytes": pushed.sent,
        }))
    }
}

/// A notice of the account as it goes to a subscriber; `None` for what is told otherwise.
pub(super) fn of_notice(notice: Notice) -> Option<Told> {
    match notice {
        Notice::Money(balance) => Some(("spend", spend(&balance))),
        Notice::Entry(entry) => of_entry(&entry).map(|value| ("request", value)),
    }
}

fn spend(balance: &Balance) -> Value {
    json!({
        "cap_pico_usd": balance.cap.pico(),
        "spent_pico_usd": balance.settled.pico(),
        "held_pico_usd": balance.held.pico(),
        "waiting": balance.waiting,
        "closed": balance.closed.is_some(),
    })
}

fn of_entry(entry: &Entry) -> Option<Value> {
    match entry {
        Entry::Held {
            request,
            facts,
            max_tokens_sent,
            amount,
            arrival: _,
        } => Some(json!({
            "what": "began",
            "request": request,
            "model": facts.model,
            "stream": facts.stream,
            "max_tokens": max_tokens_sent,
            "held_pico_usd": amount.pico(),
        })),
        Entry::Settled {
            request,
            charged,
            end,
            note,
            ..
        } => ended(entry, request, *charged, end.status, note.as_deref()),
        Entry::Released {
            request,
            reason,
            end,
        } => {
            let status = end.as_ref().and_then(|end| end.status);
            ended(entry, request, PicoUsd::ZERO, status, Some(reason))
        }
        Entry::Kept {
            request,
            charged,
            reason,
            end,
        } => {
            let status = end.as_ref().and_then(|end| end.status);
            ended(entry, request, *charged, status, Some(reason))
        }
        Entry::Refused {
            request,
            status,
            reason,
            ..
        } => ended(entry, request, PicoUsd::ZERO, Some(*status), Some(reason)),
        Entry::Opened { .. }
        | Entry::RefusedMore { .. }
        | Entry::Overrun { .. }
        | Entry::ToppedUp { .. }
        | Entry::Closed { .. }
        | Entry::Ended { .. }
        | Entry::Audited { .. }
        | Entry::Corrected { .. } => None,
    }
}

fn ended(
    entry: &Entry,
    request: &RequestId,
    charged: PicoUsd,
    status: Option<u16>,
    reason: Option<&str>,
) -> Option<Value> {
    let outcome = Outcome::of(entry)?;
    Some(json!({
        "what": "ended",
        "request": request,
        "outcome": outcome,
        "charged_pico_usd": charged.pico(),
        "status": status,
        "reason": reason,
    }))
}
