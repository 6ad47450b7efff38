//! A session from its plan to its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::agent::{Agent, AgentCommand, AgentStdio};
use super::control::ControlServer;
use super::environment::AgentKind;
use super::live::{Access, Live};
use super::orphans::Orphans;
use super::running::{Ending, interrupted};
use super::signals::{Asked, Signals};
use super::slot::Slot;
use super::start::{Plan, agent_failure};
use super::terminal::TerminalState;
use super::{ending, running};
use crate::clock::SharedClock;
use crate::ledger::Ledger;
use crate::report::{self, Exit, Failure};
use crate::table::Style;

/// How a session is started.
pub trait Audience {
    /// Where the agent's stdio goes.
    ///
    /// # Errors
    /// When its files cannot be made.
    fn stdio(&self, directory: &Path) -> Result<AgentStdio, Failure>;

    /// The session listens, and its agent, when it has one, runs.
    ///
    /// # Errors
    /// When the one who waits cannot be told.
    fn ready(&mut self, live: &Live, exports: Option<&str>) -> Result<(), Failure>;
}

/// Runs a session in this process until it ends.
///
/// # Errors
/// Why it did not start, or what went wrong at its end.
pub fn run(
    plan: Plan,
    ledger: Ledger,
    slot: Slot,
    clock: SharedClock,
    style: Style,
    audience: &mut dyn Audience,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("the runtime cannot be started", &error))?;
    let exit = runtime.block_on(run_async(plan, ledger, slot, clock, style, audience));
    runtime.shutdown_background();
    exit
}

async fn run_async(
    mut plan: Plan,
    ledger: Ledger,
    slot: Slot,
    clock: SharedClock,
    style: Style,
    audience: &mut dyn Audience,
) -> Result<Exit, Failure> {
    let mut signals = Signals::install()
        .map_err(|error| Failure::because("signals cannot be handled", &error))?;
    Orphans::adopt();
    let paths = plan.paths.clone();
    let mut slot = Some(slot);
    let begun = tokio::select! {
        begun = Live::begin(&mut plan, ledger, &mut slot, clock) => begun,
        asked = asked_to_end(&mut signals) => {
            // Nothing was started: no request was taken, no agent runs.
            if let Some(slot) = slot {
                slot.abandon(&paths);
            }
            return Ok(Exit(interrupted(asked)));
        }
    };
    let (live, control, access) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            if let Some(slot) = slot {
                slot.abandon(&paths);
            }
            return Err(failure);
        }
    };
    let terminal = TerminalState::remember();
    let started = start_agent(&live, &plan, &access, audience);
    drop(access);
    let (mut agent, failed) = match started {
        Ok(agent) => (agent, None),
        Err(failure) => {
            live.request_stop();
            (None, Some(failure))
        }
    };
    let ended = running::run(&live, agent.as_mut(), &mut signals).await;
    if ended.agent().is_some_and(|end| end.exit_code().is_none()) {
        terminal.restore();
    }
    finish(&live, control, &ended, &mut signals, &plan, style, failed).await
}

/// Winds the session up and gives the exit status: the agent's own when there was one.
async fn finish(
    live: &Arc<Live>,
    control: ControlServer,
    ended: &Ending,
    signals: &mut Signals,
    plan: &Plan,
    style: Style,
    failed: Option<Failure>,
) -> Result<Exit, Failure> {
    let end = ending::End {
        ending: ended,
        plan,
        style,
        failed: failed.is_some(),
    };
    let wound_up = ending::end(live, control, &end, signals).await;
    if let Some(failure) = failed {
        return Err(failure);
    }
    match (wound_up, ended.agent()) {
        // The agent's own failure is what its caller waits for; ours is told beside it.
        (Err(failure), Some(agent)) if agent.status() != 0 => {
            report::tell(&failure.render(style));
            Ok(Exit(agent.status()))
        }
        (Err(failure), _) => Err(failure),
        (Ok(()), Some(agent)) => Ok(Exit(agent.status())),
        (Ok(()), None) => Ok(Exit::SUCCESS),
    }
}

async fn asked_to_end(signals: &mut Signals) -> Asked {
    loop {
        match signals.next().await {
            Asked::Child | Asked::Continue => {}
            asked @ (Asked::Interrupt | Asked::Quit | Asked::Terminate | Asked::HangUp) => {
                return asked;
            }
        }
    }
}

/// Starts the agent, or tells what to export, and says that all is ready.
fn start_agent(
    live: &Live,
    plan: &Plan,
    access: &Access,
    audience: &mut dyn Audience,
) -> Result<Option<Agent>, Failure> {
    let Some(planned) = &plan.agent else {
        let exports = format!(
            "export ANTHROPIC_BASE_URL={}\nexport {}={}\n",
            live.base_url,
            AgentKind::Other.key_variable(),
            access.placeholder.as_str()
        );
        audience.ready(live, Some(&exports))?;
        return Ok(None);
    };
    let kind = match planned.claude {
        Some(_) => AgentKind::ClaudeCode,
        None => AgentKind::Other,
    };
    let environment = live.agent_environment(plan, kind, access);
    for name in &environment.held_credential {
        report::tell(&format!(
            "labproxy: {} holds the real credential and does not reach the agent\n",
            crate::escape::escape(name.to_string_lossy().as_bytes())
        ));
    }
    let command = AgentCommand {
        program: planned.command.program.clone(),
        argv: live.agent_arguments(plan, access)?,
    };
    let stdio = audience.stdio(&live.directory)?;
    let agent = Agent::start(&command, &environment, stdio, plan.core)
        .map_err(|error| agent_failure(&error))?;
    live.agent_started(agent.stamp());
    audience.ready(live, None)?;
    Ok(Some(agent))
}

/// A session in front of its user: our stdio is the agent's, exports go to stdout.
pub struct Foreground<'a> {
    /// Where exports go.
    pub out: &'a mut report::Output,
}

impl Audience for Foreground<'_> {
    fn stdio(&self, _directory: &Path) -> Result<AgentStdio, Failure> {
        Ok(AgentStdio::Inherited)
    }

    fn ready(&mut self, live: &Live, exports: Option<&str>) -> Result<(), Failure> {
        if let Some(exports) = exports {
            self.out.raw(exports.as_bytes())?;
            self.out.flush()?;
            report::tell(&format!(
                "labproxy: session {} runs until Ctrl-C or 'labproxy session stop {}'\n",
                live.session, live.session
            ));
        }
        Ok(())
    }
}

/// A session's file that is added to, for this user only: what an earlier process wrote stays, and so
/// does the file of one that still runs.
///
/// # Errors
/// When it cannot be opened or made.
pub(super) fn private_log(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| Failure::because(format!("{} cannot be written", path.display()), &error))
}
