//! A pull or a push of a running session's workspace that somebody asks its owner for: what
//! `labproxy mirror pull | push --session ID` does, under the same locks, over a connection of its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use super::mirror::SessionMirror;
use super::work::{Tools, decide};
use crate::mirror::canary::Canary;
use crate::mirror::error::MirrorError;
use crate::mirror::json;
use crate::mirror::progress::Unwatched;
use crate::mirror::pull::{PullOptions, Workspace};
use crate::mirror::push::PushOptions;
use crate::report::Failure;
use crate::session::control::events::Pass;

/// Which way the contents of a workspace go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host to the directory here.
    Pull,
    /// From the directory here to the host.
    Push,
}

impl Direction {
    /// The word for people, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "push",
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    /// What `--json` of the command says.
    pub value: Value,
    /// What who watches the session is told.
    pub told: Pass,
    /// Why the directory here does not follow a generation that was made.
    pub refused: Option<Failure>,
}

/// Whether the workspace can be asked for: one after the other, and not before an agent was let in or
/// after the session began to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The agent is not started yet.
    Before,
    /// Nobody works with it.
    Idle,
    /// This is done.
    Busy(Direction),
    /// The session ends, and this is still done.
    Ending(Option<Direction>),
}

/// Who may work with the workspace of a running session.
#[derive(Debug)]
pub(super) struct Gate(watch::Sender<State>);

/// Leave to work with it, given back when it is dropped.
#[derive(Debug)]
pub struct Turn {
    gate: Arc<Gate>,
    direction: Direction,
}

impl Turn {
    /// What it is for.
    pub(super) const fn direction(&self) -> Direction {
        self.direction
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.gate.0.send_modify(|state| match state {
            State::Ending(_) => *state = State::Ending(None),
            State::Busy(_) | State::Idle | State::Before => *state = State::Idle,
        });
    }
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(State::Before)))
    }

    /// The agent is let in: from now on the workspace can be asked for.
    pub(super) fn open(&self) {
        self.0.send_if_modified(|state| {
            let is_new = *state == State::Before;
            if is_new {
                *state = State::Idle;
            }
            is_new
        });
    }

    /// What is done now.
    pub(super) fn doing(&self) -> Option<Direction> {
        match *self.0.borrow() {
            State::Busy(direction) => Some(direction),
            State::Ending(doing) => doing,
            State::Before | State::Idle => None,
        }
    }

    /// Lets one in.
    ///
    /// # Errors
    /// When another one is in, or nobody is let in now.
    pub(super) fn enter(self: &Arc<Self>, direction: Direction) -> Result<Turn, Failure> {
        let mut before = State::Before;
        self.0.send_if_modified(|state| {
            before = *state;
            let is_free = before == State::Idle;
            if is_free {
                *state = State::Busy(direction);
            }
            is_free
        });
        match before {
            State::Idle => Ok(Turn {
                gate: Arc::clone(self),
                direction,
            }),
            State::Before => Err(Failure::failed("the agent is not started yet")
                .hint("the workspace is pushed before that; ask again when the session runs")),
            State::Busy(doing) => Err(Failure::failed(format!(
                "a {} of this session's workspace is being done",
                doing.word()
            ))
            .hint("one is done at a time: ask again when it has ended")),
            State::Ending(_) => Err(Failure::failed("the session is ending")
                .hint("its last pull brings here what the agent did")),
        }
    }

    /// Lets nobody in any more, and waits for the one who is.
    pub(super) async fn close(&self) {
        self.0.send_modify(|state| {
            *state = State::Ending(match *state {
                State::Busy(direction) => Some(direction),
                State::Ending(doing) => doing,
                State::Before | State::Idle => None,
            });
        });
        // The sender is in `self`, so waiting cannot fail.
        let mut states = self.0.subscribe();
        let _left = states.wait_for(|state| *state == State::Ending(None)).await;
    }
}

/// Pulls, with the brakes that a command has without options.
///
/// # Errors
/// What stopped it; nothing is lost at either end.
pub(super) fn pull(mirror: &mut SessionMirror, tools: &Tools) -> Result<Done, Failure> {
    let around = &tools.around;
    let began = around.clock.since_boot();
    let mut local = mirror.local()?;
    let mut opened = mirror.open(&local, around, tools.stop.clone())?;
    let pulled = opened.with(&mut local, &Unwatched, |pair, ends| {
        pair.pull(ends, PullOptions::default())
    });
    opened.close();
    let pulled = pulled.map_err(|error| decide(mirror.session(), &error))?;
    mirror.pulled(&pulled, around)?;
    let passed = around.clock.since_boot().saturating_sub(began);
    let refused = match &pulled.workspace {
        Workspace::Edited(paths) => {
            let edited = MirrorError::Edited(paths.clone());
            Some(decide(mirror.session(), &edited))
        }
        Workspace::Left | Workspace::Brought { .. } => None,
    };
    let told = match &refused {
        Some(why) => Pass::Refused(why.message().to_owned()),
        None => Pass::pulled(&pulled),
    };
    Ok(Done {
        value: json::pulled(&pulled, passed),
        told,
        refused,
    })
}

/// Pushes, with the brakes that a command has without options.
///
/// # Errors
/// What stopped it; nothing is lost at either end.
pub(super) fn push(mirror: &mut SessionMirror, tools: &Tools) -> Result<Done, Failure> {
    let around = &tools.around;
    let began = around.clock.since_boot();
    let credential = tools.credential.as_ref();
    let options = PushOptions {
        secrets: tools.secrets.clone(),
        canary: credential.map(|credential| Canary::new(Arc::clone(credential))),
        ..PushOptions::default()
    };
    let mut local = mirror.local()?;
    let mut opened = mirror.open(&local, around, tools.stop.clone())?;
    let pushed = opened.with(&mut local, &Unwatched, |pair, ends| {
        pair.push(ends, &options)
    });
    let written = match &pushed {
        Ok(pushed) => mirror.pushed(pushed, opened.pair(), around),
        Err(_) => Ok(()),
    };
    opened.close();
    let pushed = pushed.map_err(|error| decide(mirror.session(), &error))?;
    written?;
    let passed = around.clock.since_boot().saturating_sub(began);
    Ok(Done {
        value: json::pushed(&pushed, false, passed),
        told: Pass::pushed(&pushed),
        refused: None,
    })
}
