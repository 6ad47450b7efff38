//! What is done to a session from outside: stop, top up, discard. A living owner is asked; without
//! one the ledger is changed under the session's lock.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::books;
use super::control::{Call, ControlError, PULLING};
use super::listing::ask_now;
use super::owner::{OwnerError, OwnerLock, OwnerRecord, Ownership, ownership};
use super::processes::ProcessStamp;
use super::remote::confirm;
use super::slot::sockets_of;
use super::workspace::mirror::SessionMirror;
use crate::config::{Environment, Paths};
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Ledger};
use crate::money::PicoUsd;
use crate::report::Failure;

/// How long a stopped session may take: the grace of its agent, that of its requests, and some room
/// for the ledger.
const STOP_WAIT: Duration = Duration::from_secs(40);
/// How often an ending session is looked at; a lock cannot be waited for with a limit.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often an ending session is asked whether it brings its agent's work here.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long an owner that just began or is ending may leave its socket unanswered.
const UNREACHABLE_WAIT: Duration = Duration::from_secs(2);
/// How long a killed process may take to go.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// What came of a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Whether an owner was told, and ended it; else what was left of it is ended now.
    pub was_running: bool,
    /// What its host says is left there, when it has one.
    pub there: Option<String>,
}

/// What is left of a session that was forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// What its host says is left there, when it has one.
    pub host: Option<String>,
    /// Where the files of its workspace stay, when it had one that was mirrored.
    pub workspace: Option<String>,
}

/// How an owner answered.
enum Answered {
    /// With this.
    Value(serde_json::Value),
    /// There is none (any more).
    NoOwner,
}

/// Asks the owner of a session, as long as one lives; it may be about to begin or to end.
fn ask_owner(session: &SessionId, paths: &Paths, call: &Call) -> Result<Answered, Failure> {
    let directory = paths.session(session);
    let begun = Instant::now();
    loop {
        let holder = match ownership(&directory).map_err(|error| locked(&error))? {
            Ownership::Free(_) => return Ok(Answered::NoOwner),
            Ownership::Held(holder) => holder,
        };
        match ask_now(session, paths, call) {
            Ok(value) => return Ok(Answered::Value(value)),
            Err(ControlError::Unreachable(_)) if begun.elapsed() < UNREACHABLE_WAIT => {
                thread::sleep(LOOK_EVERY);
            }
            Err(error) => {
                let failure = Failure::because("the session did not do it", &error);
                return Err(match holder {
                    Some(owner) => {
                        failure.hint(format!("its owner is process {}", owner.process.pid))
                    }
                    None => failure,
                });
            }
        }
    }
}

fn locked(error: &OwnerError) -> Failure {
    let failure = Failure::because("the session cannot be used", error);
    match error {
        OwnerError::Held { .. } => failure
            .hint("'labproxy session stop ID' ends it; 'show', 'topup' and 'stop' work meanwhile"),
        OwnerError::Missing | OwnerError::Io { .. } => failure,
    }
}

/// Takes the lock of a session that nobody owns.
///
/// # Errors
/// When somebody does: names the process.
pub(super) fn take_lock(session: &SessionId, paths: &Paths) -> Result<OwnerLock, Failure> {
    OwnerLock::take(&paths.session(session)).map_err(|error| locked(&error))
}

/// Ends a session, and returns when it has ended.
///
/// # Errors
/// When it does not end in time, or what is left of it cannot be settled.
pub fn stop(
    session: &SessionId,
    paths: &Paths,
    environment: &Environment,
    ledger: &OpenLedger<'_>,
) -> Result<Stopped, Failure> {
    let was_running = match ask_owner(session, paths, &Call::Stop)? {
        Answered::Value(_) => {
            wait_for_end(session, paths)?;
            true
        }
        Answered::NoOwner => {
            let lock = take_lock(session, paths)?;
            let ledger = ledger()?;
            settle_remains(session, paths, &ledger, &lock)?;
            false
        }
    };
    // What the owner could confirm is written down; else the host is asked from here.
    let _lock = take_lock(session, paths)?;
    let there = confirm::end_remains(session, paths, environment)?;
    Ok(Stopped { was_running, there })
}

/// Tells a running session to end, and does not wait: of several, all end at the same time. Whether it
/// was told; one that cannot be is left to [`stop`], which says why.
pub fn tell_to_stop(session: &SessionId, paths: &Paths) -> bool {
    ask_now(session, paths, &Call::Stop).is_ok()
}

/// Opens the ledger when it is needed.
pub type OpenLedger<'a> = dyn Fn() -> Result<Ledger, Failure> + 'a;

fn wait_for_end(session: &SessionId, paths: &Paths) -> Result<(), Failure> {
    let mut begun = Instant::now();
    let mut asked = Instant::now();
    while begun.elapsed() < STOP_WAIT {
        match ownership(&paths.session(session)) {
            Ok(Ownership::Held(_)) => thread::sleep(LOOK_EVERY),
            Ok(Ownership::Free(_)) | Err(OwnerError::Missing) => return Ok(()),
            Err(error) => return Err(locked(&error)),
        }
        // As long as it brings its agent's work here it does what it was told.
        if asked.elapsed() >= ASK_EVERY {
            asked = Instant::now();
            if ask_now(session, paths, &Call::Status)
                .is_ok_and(|status| status.get("state").is_some_and(|state| state == PULLING))
            {
                begun = Instant::now();
            }
        }
    }
    Err(Failure::failed(format!(
        "session {session} was told to stop and has not ended within {} s",
        STOP_WAIT.as_secs()
    )))
}

/// Ends what a dead owner left: its agent, its open holds, its sockets; and says so in the ledger.
///
/// # Errors
/// When the ledger does not take it, or the old agent cannot be ended.
pub(super) fn settle_remains(
    session: &SessionId,
    paths: &Paths,
    ledger: &Ledger,
    lock: &OwnerLock,
) -> Result<(), Failure> {
    if let Some(agent) = lock
        .last_record()
        .as_ref()
        .and_then(OwnerRecord::living_agent)
    {
        kill(agent)?;
    }
    books::keep(ledger, session)?;
    let _none = fs::remove_dir_all(sockets_of(session, paths));
    let _none = fs::remove_file(paths.session(session).join("settings.json"));
    let entries = books::entries(&paths.ledger(), session)?;
    let open = entries
        .iter()
        .rev()
        .find_map(|recorded| match recorded.entry {
            Entry::Opened { .. } => Some(true),
            Entry::Ended { .. } => Some(false),
            _ => None,
        })
        .unwrap_or(false);
    if open {
        books::append_now(
            ledger,
            session,
            Entry::Ended {
                end_reason: super::ending::EndReason::Error.word().to_owned(),
                exit_code: None,
                signal: None,
                free_requests: 0,
                workspace: None,
            },
        )?;
    }
    Ok(())
}

/// Kills an old agent and what descends from it, and sees it gone.
fn kill(agent: ProcessStamp) -> Result<(), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < KILL_WAIT {
        let mut left = agent.descendants();
        left.push(agent);
        left.retain(ProcessStamp::is_alive);
        if left.is_empty() {
            return Ok(());
        }
        for process in left {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _gone_meanwhile = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(Failure::failed(format!(
        "the old agent, process {}, cannot be ended",
        agent.pid
    )))
}

/// Raises a session's cap; gives the new one.
///
/// # Errors
/// When the owner refuses, or the ledger does not take it.
pub fn top_up(
    session: &SessionId,
    amount: PicoUsd,
    paths: &Paths,
    ledger: &OpenLedger<'_>,
) -> Result<PicoUsd, Failure> {
    if amount == PicoUsd::ZERO {
        return Err(Failure::usage("a top-up of nothing").hint("give dollars, such as 2 or 0.50"));
    }
    let call = Call::TopUp {
        pico_usd: amount.pico(),
    };
    if let Answered::Value(value) = ask_owner(session, paths, &call)? {
        let cap = value
            .get("cap_pico_usd")
            .and_then(serde_json::Value::as_u64);
        return cap
            .map(PicoUsd::from_pico)
            .ok_or_else(|| Failure::failed("the session answered, and did not say its new cap"));
    }
    let _lock = take_lock(session, paths)?;
    let ledger = ledger()?;
    // What was in flight when the owner died is spent, and is no longer told as held.
    books::keep(&ledger, session)?;
    let receipt = books::receipt(&paths.ledger(), session)?;
    let cap = receipt
        .cap_pico_usd
        .checked_add(amount)
        .ok_or_else(|| Failure::usage("the cap would be more than can be counted"))?;
    books::append_now(&ledger, session, Entry::ToppedUp { by: amount, cap })?;
    Ok(cap)
}

/// Forgets a session: its directory and sockets. What it spent stays in the ledger. With
/// `leave_remains` also when its host cannot be asked to end what is left there.
///
/// # Errors
/// When somebody owns it, its host cannot be asked, or the directory cannot be removed.
pub fn discard(
    session: &SessionId,
    leave_remains: bool,
    paths: &Paths,
    environment: &Environment,
    ledger: &OpenLedger<'_>,
) -> Result<Discarded, Failure> {
    let lock = take_lock(session, paths)?;
    settle_remains(session, paths, &ledger()?, &lock)?;
    let directory = paths.session(session);
    let workspace = SessionMirror::find(session, paths)?.map(|mirror| mirror.given_up());
    let host = match confirm::end_remains(session, paths, environment) {
        Err(failure) if leave_remains => Some(confirm::left_there(session, &directory, &failure)),
        Err(failure) => {
            return Err(failure.hint(
                "'labproxy session discard --leave-remains ID' forgets the session all the same",
            ));
        }
        Ok(there) => there,
    };
    fs::remove_dir_all(&directory).map_err(|error| {
        Failure::because(format!("{} cannot be removed", directory.display()), &error)
    })?;
    Ok(Discarded { host, workspace })
}

/// Corrects what a kept hold is charged. A running session counts its own charges, so it has to end
/// first; one that was discarded has no owner.
///
/// # Errors
/// When somebody owns the session, the hold was not kept, or the ledger does not take it.
pub fn correct(
    session: &SessionId,
    correction: (RequestId, PicoUsd, &str),
    paths: &Paths,
    ledger: &OpenLedger<'_>,
) -> Result<(), Failure> {
    let _lock = if paths.session(session).exists() {
        Some(take_lock(session, paths)?)
    } else {
        None
    };
    let (request, charged, reason) = correction;
    books::correct(&ledger()?, session, request, charged, reason)
}
