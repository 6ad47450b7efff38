//! The two ends of a mirror: named by a user or by a session's record, found, and opened.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::connect::Connected;
use super::error::MirrorError;
use super::excludes::{Excludes, Frozen};
use super::failure::failure;
use super::far::Far;
use super::guard;
use super::open::place_of;
use super::pair::{self, Local, Pair};
use super::peer::PeerError;
use super::places;
use super::progress::Progress;
use super::rsync::Rsync;
use super::state::StateError;
use super::stop::Stop;
use crate::child::Trampoline;
use crate::clock::SharedClock;
use crate::config::{Config, Environment, Paths};
use crate::escape::{escape, escape_line};
use crate::report::{self, Failure};
use crate::tree::limits::Limits;
use crate::tunnel::carrier;
use crate::tunnel::host::HostSpec;
use crate::tunnel::resolve::{self, ChosenHost};
use crate::tunnel::transport::{LinkError, Transport};
use crate::wire::bytes::ByteString;
use crate::wire::mirror::RootState;

/// Waiting for another process that works with a mirror: an audit or a pull takes minutes, and who waits
/// longer for one that never ends is better told.
const TURN_WAIT: Duration = Duration::from_mins(10);
/// How often it is looked whether that one is done; a lock cannot be waited for with a limit.
const TURN_LOOK: Duration = Duration::from_millis(100);
/// Digits of a mirror's id that name its socket: the path of one is short.
const NAME: usize = 16;

/// What a mirror is opened with.
#[derive(Debug, Clone)]
pub struct Around {
    /// Where things are kept.
    pub paths: Paths,
    /// The environment that labproxy was started with.
    pub environment: Environment,
    /// The directory that labproxy was started in.
    pub directory: PathBuf,
    /// The clock.
    pub clock: SharedClock,
}

/// How the host of the other end is found.
#[derive(Debug, Clone)]
enum Way {
    /// By its name in the configuration, or as ssh takes it.
    Config(Box<Config>),
    /// As a session wrote it down, whatever the configuration says now.
    Known(Box<HostSpec>),
}

/// Two ends, as paths.
#[derive(Debug, Clone)]
pub struct Ends {
    local: PathBuf,
    far: Far,
    way: Way,
}

/// A mirror whose both ends are open.
pub struct Opened {
    pair: Pair,
    /// The way to the other end; nothing once it is lost.
    link: Option<Link>,
    /// What moves the contents, where it is not labproxy's own channel.
    rsync: Option<Rsync>,
    clock: SharedClock,
    stop: Stop,
    /// What the connection runs on.
    runtime: tokio::runtime::Runtime,
}

struct Link {
    connected: Connected,
    /// What it was made by; nothing within one machine.
    transport: Option<Arc<dyn Transport>>,
    /// What the root there is.
    state: RootState,
}

/// Why there is no way to the other end.
#[derive(Debug)]
pub struct NoLink {
    /// What a user reads of it.
    pub failure: Failure,
    /// Whether another try may find one, as when the network is away. A refused login or another
    /// host key does not get better by that.
    pub may_pass: bool,
}

impl From<Failure> for NoLink {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            may_pass: false,
        }
    }
}

impl From<Box<LinkError>> for NoLink {
    fn from(error: Box<LinkError>) -> Self {
        Self {
            may_pass: error.retry_after.is_some(),
            failure: error.failure,
        }
    }
}

impl Ends {
    /// Finds both ends that a user names.
    ///
    /// # Errors
    /// When one is none, or is no root of a mirror: a wrong command line.
    pub fn of(
        local: &Path,
        text: &OsString,
        around: &Around,
        config: Config,
    ) -> Result<Self, Failure> {
        let far = Far::parse(text).map_err(|error| {
            Failure::usage(format!(
                "'{}' is no other end: {error}",
                escape(text.as_encoded_bytes())
            ))
        })?;
        let real = |path: &Path| {
            places::resolve_root(&around.directory.join(path))
                .map_err(|error| Failure::usage(error.to_string()))
        };
        let local = real(local)?;
        let places = (&around.paths, around.directory.as_path());
        guard::judge(&local, places, &config, &[])?;
        let far = match far {
            Far::Here(path) => {
                let path = real(&path)?;
                guard::judge(&path, places, &config, &[])?;
                places::judge_pair(&local, &path)
                    .map_err(|refused| Failure::usage(refused.to_string()))?;
                Far::Here(path)
            }
            host @ Far::Host { .. } => host,
        };
        Ok(Self {
            local,
            far,
            way: Way::Config(Box::new(config)),
        })
    }

    /// The ends that a session wrote down: a directory here by its real path, and one of a host.
    pub fn known(local: PathBuf, host: String, path: ByteString, spec: HostSpec) -> Self {
        Self {
            local,
            far: Far::Host { host, path },
            way: Way::Known(Box::new(spec)),
        }
    }

    /// The real path of the directory here.
    pub fn local(&self) -> &Path {
        &self.local
    }

    /// The other end.
    pub const fn far(&self) -> &Far {
        &self.far
    }

    /// The other end, as a terminal may show it.
    pub fn far_text(&self) -> String {
        self.far.to_string()
    }

    /// Where the mirror's state is, with its store.
    pub fn place(&self, paths: &Paths) -> PathBuf {
        place_of(paths.state(), &self.local, &self.far)
    }

    /// Refuses two ends that were never mirrored, for commands that would find nothing.
    ///
    /// # Errors
    /// When they were not.
    pub fn must_be_known(&self, around: &Around) -> Result<(), Failure> {
        if self.place(&around.paths).is_dir() {
            return Ok(());
        }
        let local = escape(self.local.as_os_str().as_encoded_bytes());
        let text = format!("{local} and {} were never mirrored", self.far);
        Err(Failure::usage(text).hint("name both ends as for the push or pull, or push first"))
    }

    /// Opens what is kept of both here, without the other end.
    ///
    /// # Errors
    /// As [`Pair::open`].
    pub fn pair_of(&self, local: &Local, around: &Around) -> Result<Pair, Failure> {
        self.pair(local, Frozen::default(), around)
    }

    fn pair(&self, local: &Local, excludes: Frozen, around: &Around) -> Result<Pair, Failure> {
        let place = self.place(&around.paths);
        self.at(&place, local, excludes, around)?
            .map_err(|error| failure(&error))
    }

    fn at(
        &self,
        place: &Path,
        local: &Local,
        excludes: Frozen,
        around: &Around,
    ) -> Result<Result<Pair, MirrorError>, Failure> {
        around.paths.prepare_state()?;
        let excludes = match &self.way {
            Way::Config(config) => Frozen {
                configured: config.mirror.patterns(),
                ..excludes
            },
            // A session wrote down what the configuration said when it began.
            Way::Known(_) => excludes,
        };
        let limits = Limits::default();
        Ok(Pair::open(place, local, &self.far, excludes, limits))
    }

    /// Opens both.
    ///
    /// # Errors
    /// When the state here cannot be used, or the other end cannot be reached.
    pub fn open(
        &self,
        local: &Local,
        excludes: Frozen,
        around: &Around,
        stop: Stop,
    ) -> Result<Opened, Failure> {
        let flags = excludes.flags.clone();
        let pair = self.pair(local, excludes, around)?;
        self.open_pair(pair, &flags, around, stop)
    }

    /// The same, for work that nobody begins again: while another process works with the mirror it
    /// waits for its turn, and says so.
    ///
    /// # Errors
    /// As [`Self::open`]; when the other one does not end in time, or `stop` is told.
    pub fn open_in_turn(
        &self,
        local: &Local,
        excludes: &Frozen,
        around: &Around,
        stop: Stop,
    ) -> Result<Opened, Failure> {
        let begun = around.clock.since_boot();
        let flags = excludes.flags.clone();
        let place = self.place(&around.paths);
        let mut is_told = false;
        let pair = loop {
            let opened = self.at(&place, local, excludes.clone(), around)?;
            let waited = around.clock.since_boot().saturating_sub(begun);
            match opened {
                Err(MirrorError::State(StateError::Used { pid, .. }))
                    if waited < TURN_WAIT && !stop.is_stopped() =>
                {
                    if !is_told {
                        let pid = pid.map(|pid| format!(" {pid}")).unwrap_or_default();
                        report::tell(&format!(
                            "labproxy: waiting for process{pid}, which works with this mirror\n"
                        ));
                    }
                    is_told = true;
                    std::thread::sleep(TURN_LOOK);
                }
                opened => break opened.map_err(|error| failure(&error))?,
            }
        };
        self.open_pair(pair, &flags, around, stop)
    }

    fn open_pair(
        &self,
        mut pair: Pair,
        flags: &[String],
        around: &Around,
        stop: Stop,
    ) -> Result<Opened, Failure> {
        if flags.iter().any(|flag| !pair.frozen().flags.contains(flag)) {
            report::tell(
                "labproxy: note: --exclude has no effect: the excludes were fixed when both ends \
                 first agreed\n",
            );
        }
        if let Way::Config(config) = &self.way
            && pair.agreed().is_some()
            && pair.frozen().configured != config.mirror.patterns()
        {
            report::tell(
                "labproxy: note: mirror.exclude of the configuration is not what it was when both \
                 ends first agreed; what it says now has no effect\n",
            );
        }
        pair.stop_by(stop.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::because("no threads can be started", &error))?;
        let mut opened = Opened {
            pair,
            link: None,
            rsync: None,
            clock: Arc::clone(&around.clock),
            stop,
            runtime,
        };
        let linked = self.link(&mut opened, around);
        linked.map_err(|no_link| no_link.failure)?;
        Ok(opened)
    }

    /// Gets to the other end, anew where there was a way already.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses its root.
    pub fn link(&self, opened: &mut Opened, around: &Around) -> Result<(), NoLink> {
        opened.unlink();
        let limits = Limits::default();
        let paths = &around.paths;
        let (mut connected, transport, root, workdir) = match &self.far {
            Far::Here(path) => {
                let workdir = paths.state().join("far");
                let connected = here(limits)?;
                let root = ByteString::from(path.as_os_str());
                let workdir = ByteString::from(workdir.as_os_str());
                (connected, None, root, workdir)
            }
            Far::Host { host, path } => {
                let spec = self.way.spec(host)?;
                paths.prepare_runtime()?;
                let environment = around.environment.all();
                let transport = carrier::over_ssh(host, &spec, environment, paths.runtime())?;
                let runtime = opened.runtime.handle();
                let connected = Connected::over(&*transport, runtime, limits, &opened.stop)?;
                let workdir = ByteString::from(spec.workdir.as_str());
                (connected, Some(transport), path.clone(), workdir)
            }
        };
        let state = match connected.peer.open(root, workdir, opened.pair.id()) {
            Ok(state) => state,
            Err(error) => {
                connected.close();
                // Also when an end that has not noticed yet that its link is lost holds the root.
                return Err(NoLink {
                    failure: failure(&error.into()),
                    may_pass: true,
                });
            }
        };
        opened.link = Some(Link {
            connected,
            transport,
            state,
        });
        Ok(())
    }
}

impl Way {
    fn spec(&self, host: &str) -> Result<HostSpec, Failure> {
        let config = match self {
            Self::Config(config) => config,
            Self::Known(spec) => return Ok(spec.as_ref().clone()),
        };
        let ChosenHost { spec, notes, .. } = resolve::choose(host, config)?;
        for note in notes {
            report::tell(&format!("labproxy: note: {}\n", escape_line(note)));
        }
        Ok(spec)
    }
}

impl Opened {
    /// Works with both.
    ///
    /// # Errors
    /// Those of the work; that there is no way to the other end.
    pub fn with<T>(
        &mut self,
        local: &mut Local,
        progress: &dyn Progress,
        work: impl FnOnce(&mut Pair, &mut pair::Ends<'_>) -> Result<T, MirrorError>,
    ) -> Result<T, MirrorError> {
        let Some(Link {
            connected, state, ..
        }) = &mut self.link
        else {
            return Err(PeerError::Ended.into());
        };
        let mut ends = pair::Ends {
            peer: &mut connected.peer,
            state,
            local,
            progress,
            clock: &*self.clock,
            rsync: self.rsync.as_mut(),
        };
        work(&mut self.pair, &mut ends)
    }

    /// From here on rsync moves the contents.
    ///
    /// # Errors
    /// When one end has no rsync, or one that is too old.
    pub fn use_rsync(&mut self, around: &Around) -> Result<(), Failure> {
        let runtime = self.runtime.handle().clone();
        let path = around.environment.get("PATH");
        let found = Rsync::find(path, runtime, Trampoline::own());
        let mut rsync = found.map_err(|error| failure(&error.into()))?;
        let transport = self.link.as_ref().and_then(|link| link.transport.clone());
        if let Some(transport) = transport {
            let name: String = self.pair.id().to_string().chars().take(NAME).collect();
            let reached = rsync.reach(transport, around.paths.runtime(), &name);
            reached.map_err(|error| failure(&error.into()))?;
        }
        self.rsync = Some(rsync);
        Ok(())
    }

    /// What is kept of both here.
    pub const fn pair(&self) -> &Pair {
        &self.pair
    }

    /// The clock's time since boot.
    pub fn since_boot(&self) -> Duration {
        self.clock.since_boot()
    }

    /// What a push leaves alone.
    pub const fn excludes(&self) -> &Excludes {
        self.pair.excludes()
    }

    /// The other end was pushed to or pulled from: it is this mirror's, also for what comes next over
    /// this link.
    pub fn taken(&mut self) {
        if let Some(link) = &mut self.link {
            link.state = RootState::Ours;
        }
    }

    /// Whether there is a way to the other end.
    pub const fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Leaves the other end, and keeps the mirror.
    pub fn unlink(&mut self) {
        if let Some(rsync) = &mut self.rsync {
            rsync.leave();
        }
        if let Some(link) = self.link.take() {
            link.connected.close();
        }
    }

    /// Leaves the other end.
    pub fn close(mut self) {
        self.unlink();
    }
}

#[cfg(target_os = "linux")]
fn here(limits: Limits) -> Result<Connected, Failure> {
    Connected::here(limits, crate::remote::login::Login::of_process())
}

#[cfg(not(target_os = "linux"))]
fn here(_limits: Limits) -> Result<Connected, Failure> {
    let text = "a mirror within one machine works on Linux only; name the other end as HOST:PATH";
    Err(Failure::usage(text))
}
