//! A session from its plan to its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use super::agent::{Agent, AgentCommand, AgentStdio};
use super::control::ControlServer;
use super::environment::AgentKind;
use super::live::{Access, Live, Prepared};
use super::orphans::Orphans;
use super::remote::open::{Remote, bare_line};
use super::remote::plan::PlannedHost;
use super::remote::shim::OpenShim;
use super::runner::Runner;
use super::running::{Ending, GRACE, interrupted};
use super::signals::{Asked, Signals};
use super::slot::Slot;
use super::start::{Plan, agent_failure};
use super::terminal::TerminalState;
use super::workspace::syncing::Syncing;
use super::{ending, running};
use crate::clock::SharedClock;
use crate::ledger::Ledger;
use crate::report::{self, Exit, Failure};
use crate::table::Style;
use crate::tunnel::Attached;

/// How a session is started.
pub trait Audience {
    /// Where the agent's stdio goes.
    ///
    /// # Errors
    /// When its files cannot be made.
    fn stdio(&self, directory: &Path) -> Result<AgentStdio, Failure>;

    /// The file that the agent's error output goes to, when nobody sees it.
    fn error_file(&self, directory: &Path) -> Option<PathBuf>;

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
    let prepared = tokio::select! {
        prepared = Live::prepare(&mut plan, ledger, &slot, clock) => prepared,
        asked = asked_to_end(&mut signals) => {
            // Nothing was started: no request was taken, no agent runs, no entry was written.
            slot.abandon(&plan.paths);
            return Ok(Exit(interrupted(asked)));
        }
    };
    // Signals wait for this: the ledger answers within its own limits.
    let (live, control, access) = begin(&plan, prepared, slot).await?;
    let terminal = TerminalState::remember();
    let mut started = match (asked_already(&mut signals).await, &plan.host) {
        (Some(asked), _) => Started::interrupted(asked),
        (None, None) => Started::here(start_agent(&live, &plan, &access, audience)),
        (None, Some(host)) => {
            start_there(&live, &plan, host, &access, audience, &mut signals).await
        }
    };
    drop(access);
    if started.failed.is_some() || started.interrupted.is_some() {
        live.request_stop();
    }
    let ended = match started.interrupted {
        None => {
            // A shim for somebody else is of no use without its host; an agent here sees for itself.
            let remote = started.remote.as_ref().filter(|_| started.agent.is_none());
            tokio::select! {
                ended = running::run(&live, started.agent.as_mut(), &mut signals) => ended,
                failure = lost(remote) => {
                    started.failed = Some(failure);
                    live.request_stop();
                    Ending::Stopped { agent: None, until: Instant::now() + GRACE }
                }
            }
        }
        Some(_) => Ending::Stopped {
            agent: None,
            until: Instant::now() + GRACE,
        },
    };
    if ended.agent().is_some_and(|end| end.exit_code().is_none()) {
        terminal.restore();
    }
    started.error_file = audience.error_file(&live.directory);
    finish(&live, control, &ended, &mut signals, &plan, style, started).await
}

/// Makes a prepared session live; what it has is removed when that cannot be.
async fn begin(
    plan: &Plan,
    prepared: Result<Prepared, Failure>,
    slot: Slot,
) -> Result<(Arc<Live>, ControlServer, Access), Failure> {
    let mut slot = Some(slot);
    let begun = match prepared {
        Ok(prepared) => Live::begin(plan, prepared, &mut slot).await,
        Err(failure) => Err(failure),
    };
    if let (Err(_), Some(slot)) = (&begun, slot) {
        slot.abandon(&plan.paths);
    }
    begun
}

/// Why the host is lost, when it is.
async fn lost(remote: Option<&Remote>) -> Failure {
    match remote {
        Some(remote) => remote.lost().await,
        None => std::future::pending().await,
    }
}

/// What came of the start.
struct Started {
    agent: Option<Runner>,
    /// The way to the host, when there is one.
    remote: Option<Remote>,
    /// The workspace that is mirrored there.
    workspace: Option<Arc<Syncing>>,
    /// What an SDK takes for the CLI there.
    shim: Option<OpenShim>,
    /// Where the agent's error output went, when nobody saw it.
    error_file: Option<PathBuf>,
    failed: Option<Failure>,
    /// The session was told to end before its agent ran: the exit status.
    interrupted: Option<u8>,
}

impl Started {
    /// Nothing was started: the session was told to end before.
    fn interrupted(asked: Asked) -> Self {
        let mut started = Self::here(Ok(None));
        started.interrupted = Some(interrupted(asked));
        started
    }

    /// An agent of this machine.
    fn here(started: Result<Option<Agent>, Failure>) -> Self {
        let (agent, failed) = match started {
            Ok(agent) => (agent.map(Runner::Here), None),
            Err(failure) => (None, Some(failure)),
        };
        Self {
            agent,
            remote: None,
            workspace: None,
            shim: None,
            error_file: None,
            failed,
            interrupted: None,
        }
    }
}

/// Connects to the host and starts the agent there, unless the session is told to end meanwhile.
async fn start_there(
    live: &Live,
    plan: &Plan,
    host: &PlannedHost,
    access: &Access,
    audience: &mut dyn Audience,
    signals: &mut Signals,
) -> Started {
    let mut started = Started::here(Ok(None));
    let begun = claim(live, plan, host, access)
        .and_then(|workspace| Ok((workspace, Remote::begin(live, plan, host)?)));
    let (workspace, mut remote) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            started.failed = Some(failure);
            return started;
        }
    };
    let start = async {
        let attached = remote.ready().await?;
        if let Some(workspace) = &workspace {
            workspace.before().await?;
            workspace.open()?;
        }
        report::tell(&bare_line(&host.name, &attached.user));
        let known = (&attached, access);
        let begun = start_programs((live, plan, host), &remote, known, audience).await;
        match (&workspace, &begun) {
            (Some(workspace), Err(failure)) if failure.is_no_program() => workspace.not_begun()?,
            (Some(_) | None, _) => {}
        }
        begun
    };
    tokio::select! {
        begun = start => match begun {
            Ok((agent, shim)) => (started.agent, started.shim) = (agent, shim),
            Err(failure) => started.failed = Some(failure),
        },
        asked = asked_to_end(signals) => started.interrupted = Some(interrupted(asked)),
        () = live.stop_requested() => started.interrupted = Some(interrupted(Asked::Terminate)),
    }
    if let Some(workspace) = &workspace {
        workspace.halt().await;
        if started.failed.is_none() && started.interrupted.is_none() {
            workspace.serve();
        }
    }
    (started.remote, started.workspace) = (Some(remote), workspace);
    started
}

/// Takes the workspace for this session, when one is mirrored.
fn claim(
    live: &Live,
    plan: &Plan,
    host: &PlannedHost,
    access: &Access,
) -> Result<Option<Arc<Syncing>>, Failure> {
    let planned = host.mirrored.as_ref();
    let Some(planned) = planned else {
        return Ok(None);
    };
    let claimed = Arc::new(Syncing::claim(live, plan, (host, planned), access)?);
    // Whoever asks the session for it; there is one start, so it is the first.
    let _first = live.workspace.set(Arc::clone(&claimed));
    Ok(Some(claimed))
}

/// Starts the agent on the host, or the shim and what runs beside it here.
async fn start_programs(
    (live, plan, host): (&Live, &Plan, &PlannedHost),
    remote: &Remote,
    known: (&Attached, &Access),
    audience: &mut dyn Audience,
) -> Result<(Option<Runner>, Option<OpenShim>), Failure> {
    match (&host.shim, &plan.agent) {
        (Some(file), _) => {
            let shim = remote.open_shim((live, plan, host), file, known).await?;
            let agent = start_beside(&shim, live, plan, known.1, audience)?;
            Ok((agent.map(Runner::Here), Some(shim)))
        }
        (None, Some(agent)) => {
            let agent = (host, agent);
            let agent = remote.start(live, plan, agent, known, audience).await?;
            audience.ready(live, None)?;
            Ok((Some(Runner::There(Box::new(agent))), None))
        }
        (None, None) => Err(Failure::failed("there is no agent")),
    }
}

/// Starts the agent here, beside the shim; without one, says where the shim is.
fn start_beside(
    shim: &OpenShim,
    live: &Live,
    plan: &Plan,
    access: &Access,
    audience: &mut dyn Audience,
) -> Result<Option<Agent>, Failure> {
    if plan.agent.is_some() {
        return start_agent(live, plan, access, audience);
    }
    report::tell(
        "labproxy: the shim is ready: give it to an SDK as cli_path (Python) or \
         pathToClaudeCodeExecutable (TypeScript)\n",
    );
    audience.ready(live, Some(&format!("{}\n", shim.path().display())))?;
    Ok(None)
}

/// Winds the session up and gives the exit status: the agent's own when there was one.
async fn finish(
    live: &Arc<Live>,
    control: ControlServer,
    ended: &Ending,
    signals: &mut Signals,
    plan: &Plan,
    style: Style,
    started: Started,
) -> Result<Exit, Failure> {
    let Started {
        agent: _,
        remote,
        workspace,
        shim,
        error_file,
        failed,
        interrupted,
    } = started;
    let end = ending::End {
        ending: ended,
        plan,
        style,
        error_file: error_file.as_deref(),
        failed: failed.is_some(),
    };
    if let Some(shim) = shim.filter(|_| failed.is_none()) {
        shim.tell_use();
    }
    let wound_up = ending::end(live, control, &end, (remote, workspace), signals).await;
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let Ending::Unreached { status, .. } = ended {
        // What ended the session is what its caller waits for; that nothing is confirmed is told.
        if let Err(failure) = wound_up {
            report::tell(&failure.render(style));
        }
        return Ok(Exit(*status));
    }
    match (wound_up, ended.agent()) {
        // The agent's own failure is what its caller waits for; ours is told beside it.
        (Err(failure), Some(agent)) if agent.status() != 0 => {
            report::tell(&failure.render(style));
            Ok(Exit(agent.status()))
        }
        (Err(failure), _) => Err(failure),
        (Ok(()), Some(agent)) => Ok(Exit(agent.status())),
        (Ok(()), None) => Ok(interrupted.map_or(Exit::SUCCESS, Exit)),
    }
}

/// Whether the session was told to end while it could not listen.
async fn asked_already(signals: &mut Signals) -> Option<Asked> {
    tokio::select! {
        biased;
        asked = asked_to_end(signals) => Some(asked),
        () = std::future::ready(()) => None,
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
            live.local_url(),
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

    fn error_file(&self, _directory: &Path) -> Option<PathBuf> {
        None
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
