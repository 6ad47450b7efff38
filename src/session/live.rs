//! A session with everything it needs running: its lock, ledger, account, proxy and sockets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;

use super::control::events::{Event, Events};
use super::control::{ControlServer, HostLink, bind_private};
use super::ending::EndReason;
use super::environment::{self, AgentEnvironment, AgentKind, EnvironmentParts};
use super::owner::{OwnerLock, OwnerRecord};
use super::processes::ProcessStamp;
use super::slot::{Slot, make_private};
use super::start::Plan;
use super::workspace::syncing::Syncing;
use super::{books, settings_file};
use crate::cap::Account;
use crate::clock::SharedClock;
use crate::config::{CredentialChoice, CredentialReference};
use crate::id::SessionId;
use crate::ledger::{Entry, Ledger};
use crate::money::PicoUsd;
use crate::proxy::credential::{CredentialError, CredentialStore};
use crate::proxy::{Proxy, ProxyParts};
use crate::report::{Failure, FailureKind};
use crate::secret::{Credential, Placeholder};

/// A unix socket's path has at most 107 bytes on Linux and 103 on macOS.
const SOCKET_PATH_MAX: usize = 103;

/// A live session.
pub struct Live {
    /// Its name.
    pub session: SessionId,
    /// Its directory.
    pub directory: PathBuf,
    /// Where its sockets are.
    pub sockets: PathBuf,
    /// `http://127.0.0.1:PORT`; `None` when the agent is on a host, which has a port of its own.
    pub base_url: Option<String>,
    /// Its money.
    pub account: Arc<Account>,
    /// The ledger.
    pub ledger: Ledger,
    /// The ledger's file.
    pub ledger_path: PathBuf,
    /// The proxy.
    pub proxy: Arc<Proxy>,
    /// The clock.
    pub clock: SharedClock,
    lock: OwnerLock,
    record: Mutex<OwnerRecord>,
    pub(super) agent_pid: AtomicI32,
    stop: watch::Sender<bool>,
    pub(super) is_pulling: AtomicBool,
    /// The workspace that is mirrored to the host, once it is claimed.
    pub(super) workspace: OnceLock<Arc<Syncing>>,
    /// Tells who watches the session.
    pub(super) events: Events,
    /// How the link to the host is; shared with whoever hears of it.
    pub(super) link: Arc<Mutex<Option<HostLink>>>,
}

/// What an agent or a person needs to use a live session, and what must be wiped after.
pub struct Access {
    /// The placeholder's text.
    pub placeholder: zeroize::Zeroizing<String>,
    /// The real credential, to find it where it must not be.
    pub credential: Arc<Credential>,
}

impl Live {
    /// Makes what a session needs before it is in the ledger: credential, proxy, listeners. May be given
    /// up at any moment: nothing was recorded.
    ///
    /// # Errors
    /// What could not be made.
    pub async fn prepare(
        plan: &mut Plan,
        ledger: Ledger,
        slot: &Slot,
        clock: SharedClock,
    ) -> Result<Prepared, Failure> {
        let sockets = slot.sockets(&plan.paths);
        let (parts, access) = Self::serve(plan, ledger, slot, &sockets, clock).await?;
        Ok(Prepared {
            parts,
            access,
            sockets,
        })
    }

    /// Makes a session live: the durable entry, the control socket. Must not be given up: what the
    /// ledger's writer was told it writes, and an entry that opens a session has one that ends it. Takes
    /// the place out of `slot` once the entry is durable.
    ///
    /// # Errors
    /// What could not be made. Until the entry is durable nothing was spent or recorded.
    pub async fn begin(
        plan: &Plan,
        prepared: Prepared,
        slot: &mut Option<Slot>,
    ) -> Result<(Arc<Self>, ControlServer, Access), Failure> {
        let no_place = || Failure::failed("the session has no directory");
        let Prepared {
            parts,
            access,
            sockets,
        } = prepared;
        let place = slot.as_ref().ok_or_else(no_place)?;
        books::opened(&parts.ledger, place, parts.cap, plan).await?;
        let taken = slot.take().ok_or_else(no_place)?;
        let record = Mutex::new(OwnerRecord::current(sockets.join("control.sock")));
        let live = Arc::new(Self {
            session: taken.session,
            directory: taken.directory,
            sockets,
            base_url: parts.base_url,
            account: parts.account,
            ledger: parts.ledger,
            ledger_path: plan.paths.ledger(),
            proxy: parts.proxy,
            clock: parts.clock,
            lock: taken.lock,
            record,
            agent_pid: AtomicI32::new(0),
            stop: watch::Sender::new(false),
            is_pulling: AtomicBool::new(false),
            workspace: OnceLock::new(),
            events: Events::default(),
            link: Arc::default(),
        });
        match live.open_control() {
            Ok(control) => Ok((live, control, access)),
            Err(failure) => {
                live.never_ran().await;
                Err(failure)
            }
        }
    }

    async fn serve(
        plan: &mut Plan,
        ledger: Ledger,
        slot: &Slot,
        sockets: &Path,
        clock: SharedClock,
    ) -> Result<(Served, Access), Failure> {
        let cap = match (&slot.resumed, plan.cap()) {
            (Some(resumed), _) => resumed.cap,
            (None, Some(cap)) => cap,
            (None, None) => return Err(Failure::usage("there is no cap")),
        };
        let settled = slot
            .resumed
            .map_or(PicoUsd::ZERO, |resumed| resumed.settled);
        let credential = CredentialStore::open(plan.take_credential(), Arc::clone(&clock))
            .await
            .map_err(|error| {
                let kind = match error {
                    CredentialError::File { .. } => FailureKind::Usage,
                    CredentialError::Command { .. } => FailureKind::Failed,
                };
                Failure::new(kind, "there is no credential").caused_by(&error)
            })?;
        let real = credential.current();
        let placeholder = Placeholder::random()
            .map_err(|error| Failure::because("there are no random bytes", &error))?;
        let access = Access {
            placeholder: zeroize::Zeroizing::new(placeholder.expose().to_owned()),
            credential: real,
        };
        let account = Account::new(
            slot.session.clone(),
            ledger.clone(),
            cap,
            settled,
            plan.config.account_settings(),
            Arc::clone(&clock),
        );
        let parts = ProxyParts {
            session: slot.session.clone(),
            book: Arc::clone(&plan.book),
            account: Arc::clone(&account),
            ledger: ledger.clone(),
            clock: Arc::clone(&clock),
        };
        let proxy = Proxy::new(parts, plan.config.proxy_settings(), credential, placeholder)
            .map_err(|error| Failure::because("the proxy cannot be set up", &error))?;
        let base_url = listen(&proxy, sockets, plan.agent_is_here()).await?;
        slot.lock
            .record(&OwnerRecord::current(sockets.join("control.sock")))
            .map_err(|error| Failure::because("the session cannot be locked", &error))?;
        let served = Served {
            cap,
            base_url,
            account,
            ledger,
            proxy,
            clock,
        };
        Ok((served, access))
    }

    /// Ends in the ledger what was opened there and cannot go on.
    async fn never_ran(&self) {
        let ended = Entry::Ended {
            end_reason: EndReason::Error.word().to_owned(),
            exit_code: None,
            signal: None,
            free_requests: 0,
            workspace: None,
        };
        if let Err(error) = self.ledger.append(&self.session, vec![ended]).await {
            tracing::warn!(%error, "the end of the session was not written down");
        }
    }

    fn open_control(self: &Arc<Self>) -> Result<ControlServer, Failure> {
        let path = self.sockets.join("control.sock");
        ControlServer::start(&path, Arc::clone(self)).map_err(|error| {
            Failure::because(
                format!("the control socket {} cannot be made", path.display()),
                &error,
            )
        })
    }

    /// Where an agent of this machine finds the proxy.
    pub fn local_url(&self) -> &str {
        self.base_url.as_deref().unwrap_or_default()
    }

    /// The environment for an agent of this session.
    pub fn agent_environment(
        &self,
        plan: &Plan,
        kind: AgentKind,
        access: &Access,
    ) -> AgentEnvironment {
        environment::build(
            plan.environment.all(),
            &EnvironmentParts {
                kind,
                base_url: self.local_url(),
                placeholder: &access.placeholder,
                pass_env: &plan.config.session.pass_env.value,
                credential: Some(&access.credential),
                credential_variable: plan.credential_variable(),
            },
        )
    }

    /// The command line for an agent of this session; for Claude Code, writes its settings file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn agent_arguments(&self, plan: &Plan, access: &Access) -> Result<Vec<OsString>, Failure> {
        let Some(agent) = &plan.agent else {
            return Ok(Vec::new());
        };
        let mut argv = agent.command.argv.clone();
        let Some(claude) = &agent.claude else {
            return Ok(argv);
        };
        let no_proxy = plan.environment.get("NO_PROXY");
        let settings = settings_file::merged(
            claude.given.clone(),
            self.local_url(),
            &access.placeholder,
            no_proxy.as_deref().and_then(|text| text.to_str()),
        );
        let path = self.settings_path();
        settings_file::write(&path, &settings).map_err(|error| {
            Failure::because("the agent's settings file cannot be written", &error)
        })?;
        let at = claude.at.min(argv.len());
        argv.splice(
            at..at,
            [OsString::from("--settings"), path.into_os_string()],
        );
        Ok(argv)
    }

    /// Where the settings file of a Claude Code agent is, while the session lives.
    pub fn settings_path(&self) -> PathBuf {
        self.directory.join("settings.json")
    }

    /// Writes down which process the agent is.
    pub fn agent_started(&self, agent: ProcessStamp) {
        self.agent_pid.store(agent.pid, Ordering::Relaxed);
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.agent = Some(agent);
        if let Err(error) = self.lock.record(&record) {
            tracing::warn!(%error, "the agent's pid was not written down");
        }
    }

    /// The agent is gone.
    pub fn agent_ended(&self) {
        self.agent_pid.store(0, Ordering::Relaxed);
    }

    /// Whether the agent's work is being brought here, which takes its time.
    pub fn bringing_home(&self, yes: bool) {
        self.is_pulling.store(yes, Ordering::Relaxed);
        self.events.tell(|| Event::State(self.state_word()));
    }

    /// Asks the session to end.
    pub fn request_stop(&self) {
        if !self.stop.send_replace(true) {
            self.events.tell(|| Event::State(self.state_word()));
        }
    }

    /// Resolves when the session was asked to end over the control socket.
    pub async fn stop_requested(&self) {
        let mut asked = self.stop.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _asked = asked.wait_for(|stop| *stop).await;
    }

    /// Whether it was asked to end.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// How the link to the host is; `None`: there is no host.
    pub(super) fn link(&self) -> Option<HostLink> {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that is not in the ledger yet.
pub struct Prepared {
    parts: Served,
    access: Access,
    sockets: PathBuf,
}

struct Served {
    cap: PicoUsd,
    base_url: Option<String>,
    account: Arc<Account>,
    ledger: Ledger,
    proxy: Arc<Proxy>,
    clock: SharedClock,
}

/// Listens on a unix socket and, for an agent here, on an ephemeral loopback port; gives the latter's
/// URL.
async fn listen(
    proxy: &Arc<Proxy>,
    sockets: &Path,
    agent_is_here: bool,
) -> Result<Option<String>, Failure> {
    make_private(sockets)?;
    let path = sockets.join("proxy.sock");
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(Failure::usage(format!(
            "the socket path {} has more than {SOCKET_PATH_MAX} bytes",
            path.display()
        ))
        .hint("set XDG_RUNTIME_DIR to a shorter directory"));
    }
    let unix = bind_private(&path).map_err(|error| {
        Failure::because(
            format!("the socket {} cannot be made", path.display()),
            &error,
        )
    })?;
    proxy.serve_unix(unix);
    if !agent_is_here {
        return Ok(None);
    }
    let no_port =
        |error: std::io::Error| Failure::because("no port of 127.0.0.1 can be listened on", &error);
    let tcp = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .map_err(no_port)?;
    let port = tcp.local_addr().map_err(no_port)?.port();
    proxy.serve_tcp(tcp);
    Ok(Some(format!("http://127.0.0.1:{port}")))
}

impl Plan {
    /// The variable that holds the real credential, when it comes from one.
    pub(super) fn credential_variable(&self) -> Option<&str> {
        match &self.config.upstream.credential.value {
            CredentialChoice::Named(CredentialReference::Env { name, .. }) => Some(name),
            CredentialChoice::Named(
                CredentialReference::File { .. } | CredentialReference::Command { .. },
            )
            | CredentialChoice::Dummy { .. } => None,
        }
    }

    /// The credential's source, once.
    fn take_credential(&mut self) -> crate::proxy::credential::CredentialSource {
        std::mem::replace(
            &mut self.credential,
            crate::proxy::credential::CredentialSource::Dummy,
        )
    }
}
