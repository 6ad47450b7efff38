//! The way to the host and the agent on it, from a live session.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::agent::RemoteAgent;
use super::confirm;
use super::not_started::not_started;
use super::plan::PlannedHost;
use super::record::{RecordFile, Remains};
use super::screen::{self, RawMode};
use super::shim::OpenShim;
use super::watcher::Watcher;
use crate::escape::escape;
use crate::report::Failure;
use crate::session::agent::AgentStdio;
use crate::session::binary::{self, From, HostShell};
use crate::session::carry::{Carrier, Program, Wanted, Watch};
use crate::session::control::HostLink;
use crate::session::environment::AgentKind;
use crate::session::launch::Audience;
use crate::session::live::{Access, Live};
use crate::session::shim::script::ShimFile;
use crate::session::start::{Plan, PlannedAgent};
use crate::tunnel::Attached;
use crate::tunnel::error::TunnelError;
use crate::tunnel::exec::{Status, Stdio};
use crate::tunnel::phase::Phase;
use crate::tunnel::session::{Opening, Settings, Tunnel};
use crate::wire::bytes::ByteString;
use crate::wire::link::{ExecSpec, User, WindowSize};

/// The agent whose CLI may be sent to the host.
const CLAUDE: &str = "claude";

/// A session's tunnel, and what is known of its host.
pub struct Remote {
    /// The tunnel.
    pub tunnel: Tunnel,
    opening: Opening,
    watcher: Arc<Watcher>,
    /// The first link failed before the host's supervisor was asked for.
    was_not_begun: bool,
}

impl Remote {
    /// Begins to connect.
    ///
    /// # Errors
    /// When the host cannot be written down.
    pub fn begin(live: &Live, plan: &Plan, host: &PlannedHost) -> Result<Self, Failure> {
        let lease = plan.config.session.lease.value;
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let record = RecordFile::begin(&live.directory, &host.name, host.spec.clone(), lease_ms)?;
        let watcher = Arc::new(Watcher::new(host.transport.host(), record, live, lease));
        let settings = Settings {
            session: live.session.to_string(),
            workdir: ByteString::from(host.spec.workdir.as_str()),
            lease,
            proxy: live.sockets.join("proxy.sock"),
            clock: Arc::clone(&live.clock),
            watcher: watcher.clone(),
        };
        let (tunnel, opening) = Tunnel::begin(Arc::clone(&host.transport), settings);
        Ok(Self {
            tunnel,
            opening,
            watcher,
            was_not_begun: false,
        })
    }

    /// The host, as the user names it.
    pub fn host(&self) -> &str {
        self.watcher.host()
    }

    /// Waits until requests get through from there.
    ///
    /// # Errors
    /// Why they do not.
    pub async fn ready(&mut self) -> Result<Attached, Failure> {
        let ready = self.opening.ready().await;
        match &ready {
            Ok(_) => self.watcher.link(HostLink::Up),
            Err(error) => self.was_not_begun = error.is_before_supervisor(),
        }
        ready.map_err(|error| self.failure(&error))
    }

    /// Starts the agent and waits until it runs.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn start(
        &self,
        live: &Live,
        plan: &Plan,
        (host, agent): (&PlannedHost, &PlannedAgent),
        (attached, access): (&Attached, &Access),
        audience: &mut dyn Audience,
    ) -> Result<RemoteAgent, Failure> {
        let stdio = audience.stdio(&live.directory)?;
        let terminal = match stdio {
            AgentStdio::Inherited => screen::size(),
            AgentStdio::Files { .. } => None,
        };
        let spec = self
            .carry(plan, host, agent, (attached, access), terminal)
            .await?;
        let streams = streams(stdio)
            .map_err(|error| Failure::because("our own stdio cannot be used", &error))?;
        let mut exec = self
            .tunnel
            .launch(&spec, streams)
            .map_err(|error| Failure::because("the agent cannot be sent to the host", &error))?;
        let limit = Phase::Start.limit().unwrap_or(Duration::MAX);
        let Ok(status) = tokio::time::timeout(limit, exec.started()).await else {
            return Err(self.failure(&TunnelError::Slow {
                phase: Phase::Start,
                limit,
            }));
        };
        match status {
            Status::NotStarted(why) => {
                let name = agent.command.argv0().to_string_lossy();
                Err(not_started(&name, self.host(), &why).problem("nothing was spent"))
            }
            Status::Lost(error) => Err(self.failure(&error)),
            Status::Starting | Status::Running { .. } | Status::Ended(_) => {
                let raw = terminal.map(|_| RawMode::enter()).transpose();
                let raw = raw.map_err(|error| {
                    Failure::because("the terminal cannot be switched to raw mode", &error)
                })?;
                self.watcher.raw(raw.is_some());
                RemoteAgent::new(exec, self.host(), raw, Arc::clone(&self.watcher))
                    .map_err(|error| Failure::because("signals cannot be handled", &error))
            }
        }
    }

    /// What carries launches to the host.
    pub(super) fn carrier(host: &PlannedHost, access: &Access) -> Carrier {
        Carrier {
            watch: Arc::new(Watch::of(&access.credential)),
            placeholder: access.placeholder.clone(),
            workspace: host.workspace.clone(),
            asked: host.asked.clone(),
        }
    }

    /// Puts the agent's CLI on the host, when it is Claude Code by its plain name, or the program that
    /// `agent.binary` names, and gives what to run.
    pub(super) async fn place(
        &self,
        plan: &Plan,
        name: &OsStr,
        from: From<'_>,
        attached: &Attached,
    ) -> Result<ByteString, Failure> {
        let configured = plan.config.agent.binary.value.as_deref();
        let configured = configured.filter(|path| path.file_name() == Some(name));
        let name = ByteString::from(name);
        if configured.is_none() && name.as_bytes() != CLAUDE.as_bytes() {
            return Ok(name);
        }
        let placed = binary::place(&self.shell(attached), configured, from, &name).await?;
        if placed.sent.is_none() {
            let others = placed.passed_over.iter().map(|path| {
                format!(
                    "; {} is for another machine",
                    escape(path.as_os_str().as_encoded_bytes())
                )
            });
            self.watcher.tell(&format!(
                "no Linux CLI for {} was found here, so its own 'claude' is used{}",
                self.host(),
                others.collect::<String>()
            ));
        }
        Ok(placed.path)
    }

    /// Commands of ours on the host.
    pub(super) fn shell<'a>(&'a self, attached: &'a Attached) -> HostShell<'a> {
        HostShell {
            launches: self.tunnel.launches(),
            host: self.host(),
            session_directory: &attached.session_directory,
            shows_progress: std::io::stderr().is_terminal(),
        }
    }

    /// What the host gets of the command line and the environment here.
    async fn carry(
        &self,
        plan: &Plan,
        host: &PlannedHost,
        agent: &PlannedAgent,
        (attached, access): (&Attached, &Access),
        terminal: Option<WindowSize>,
    ) -> Result<ExecSpec, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::because("the working directory cannot be found", &error))?;
        // A workspace that was named is where the agent works, wherever labproxy was started.
        let elsewhere = host.mirrored.as_ref();
        let elsewhere = elsewhere.filter(|_| host.workspace.there(&here).is_none());
        let here = elsewhere.map_or(here, |workspace| workspace.local.clone());
        let argv = &agent.command.argv;
        let (kind, at) = match &agent.claude {
            Some(claude) => (AgentKind::ClaudeCode, claude.at),
            None => (AgentKind::Other, 1),
        };
        let (name, arguments) = argv.split_at(at.min(argv.len()));
        let from = From {
            agent: &[],
            environment: &plan.environment,
            directory: &here,
        };
        let program = Program {
            path: self
                .place(plan, agent.command.argv0(), from, attached)
                .await?,
            argv: name.iter().map(ByteString::from).collect(),
            kind,
        };
        let source = plan.credential_variable();
        let mut environment = plan.environment.all();
        // Where the credential comes from is no mistake of the user's.
        environment.retain(|(name, _)| source.is_none_or(|source| name != source));
        let wanted = Wanted {
            arguments,
            environment,
            directory: &here,
            terminal,
        };
        let carrier = Self::carrier(host, access);
        carrier.carry(wanted, &program).map_err(|refused| {
            Failure::usage(format!("the agent cannot be sent to {}", self.host()))
                .caused_by(&refused)
                .hint(refused.remedy())
        })
    }

    /// Makes the shim: the CLI is on the host and answers before the file is there.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn open_shim(
        &self,
        (live, plan, host): (&Live, &Plan, &PlannedHost),
        file: &ShimFile,
        (attached, access): (&Attached, &Access),
    ) -> Result<OpenShim, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::because("the working directory cannot be found", &error))?;
        let agent = plan
            .agent
            .as_ref()
            .map(|agent| agent.command.argv.as_slice());
        let from = From {
            agent: agent.unwrap_or_default(),
            environment: &plan.environment,
            directory: &here,
        };
        let configured = plan.config.agent.binary.value.as_deref();
        let name = configured
            .and_then(Path::file_name)
            .unwrap_or(OsStr::new(CLAUDE));
        let program = Program {
            path: self.place(plan, name, from, attached).await?,
            argv: vec![ByteString::from(CLAUDE)],
            kind: AgentKind::ClaudeCode,
        };
        let version = binary::version(&self.shell(attached), &program.path, &program.argv).await?;
        OpenShim::open(file, program, &version, (live, host, self), access)
    }

    /// Ends everything on the host; what it says is left. Once `hurry` is over, a host that cannot
    /// be reached is not tried again.
    ///
    /// # Errors
    /// When it cannot say.
    pub async fn end(
        self,
        grace: Duration,
        hurry: impl Future<Output = ()>,
    ) -> Result<Remains, Failure> {
        let host = self.host().to_owned();
        let watcher = Arc::clone(&self.watcher);
        let given_up = async {
            hurry.await;
            watcher.loss().await;
        };
        let ended = tokio::select! {
            answer = self.tunnel.end(grace) => if self.was_not_begun {
                Ok(Remains::NotBegun)
            } else {
                confirm::ended(&host, answer)
            },
            () = given_up => Err(confirm::not_asked(&host)),
        };
        if let Ok(remains) = &ended {
            self.watcher.record().remains(remains.clone())?;
        }
        ended
    }

    /// Resolves when there is no way to the host any more.
    pub async fn lost(&self) -> Failure {
        let error = self.tunnel.over().await;
        self.failure(&error)
    }

    fn failure(&self, error: &TunnelError) -> Failure {
        error.failure(self.host())
    }
}

fn streams(stdio: AgentStdio) -> std::io::Result<Stdio> {
    let ours = |stream: &dyn AsFd| stream.as_fd().try_clone_to_owned().map(std::fs::File::from);
    Ok(match stdio {
        AgentStdio::Inherited => Stdio {
            stdin: Some(Box::new(ours(&std::io::stdin())?)),
            stdout: Box::new(ours(&std::io::stdout())?),
            stderr: Box::new(ours(&std::io::stderr())?),
        },
        AgentStdio::Files { out, err } => Stdio {
            stdin: None,
            stdout: Box::new(out),
            stderr: Box::new(err),
        },
    })
}

/// The one line that says where an agent without a workbench runs, and as whom.
pub fn bare_line(host: &str, user: &User) -> String {
    let uid = user.uid;
    let user = match &user.name {
        Some(name) => format!("{} (uid {uid})", escape(name.as_bytes())),
        None => format!("uid {uid}"),
    };
    format!("labproxy: bare: agent runs as {user} on {}\n", escape(host))
}
