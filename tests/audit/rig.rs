//! A user with a home, keys and a state of labproxy's, and a tree that an agent made.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use labproxy::audit::desk::Desk;
use labproxy::audit::limits::Limits as ToolLimits;
use labproxy::audit::policy::{Finding, Policy};
use labproxy::audit::record::Begun;
use labproxy::audit::run::{Confinement, Judged, Looked, Run, Ways};
use labproxy::audit::sandbox::Sandbox;
use labproxy::child::Trampoline;
use labproxy::clock::{Clock as _, SharedClock, SystemClock};
use labproxy::config::{self, Config, Environment, Layers, Paths};
use labproxy::id::SessionId;
use labproxy::ledger::{Audit, SandboxKind, Verdict};
use labproxy::mirror::store::{GenerationNumber, Store};
use labproxy::report::Failure;
use labproxy::session::books;
use labproxy::tree::entry::Entry;
use labproxy::tree::limits::Limits;
use labproxy::tree::mirror_id::MirrorId;
use labproxy::tree::root::Root;
use labproxy::tree::scan;

const MIRROR: MirrorId = MirrorId::from_random([7; 16]);
const SESSION: &str = "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa";

/// How a tool of a test runs.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) sandboxed: bool,
    pub(crate) network: bool,
    pub(crate) limit: Duration,
    /// Whether it may change its copy.
    pub(crate) restore: bool,
}

impl Default for How {
    fn default() -> Self {
        Self {
            sandboxed: true,
            network: false,
            limit: Duration::from_mins(1),
            restore: false,
        }
    }
}

/// What an audit came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) audit: Audit,
    pub(crate) findings: Vec<Finding>,
}

impl Done {
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.audit.verdict
    }
}

pub(crate) struct Rig {
    root: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["home/.config/labproxy", "home/.ssh", "run", "far"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        Self { root }
    }

    pub(crate) fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(inside)
    }

    /// Writes a file of the agent's.
    pub(crate) fn far(&self, inside: &str, text: impl AsRef<[u8]>) {
        let path = self.path("far").join(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes the user's configuration.
    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.path("home/.config/labproxy/config.toml"), text).unwrap();
    }

    pub(crate) fn environment(&self) -> Environment {
        let fixed = [
            ("HOME", self.path("home").into_os_string()),
            ("XDG_RUNTIME_DIR", self.path("run").into_os_string()),
            ("PATH", "/usr/bin:/bin".into()),
            ("ANTHROPIC_API_KEY", "sk-canary-of-the-user".into()),
            ("LANG", "C.UTF-8".into()),
        ];
        let fixed = fixed.map(|(name, value): (&str, OsString)| (name.to_owned(), value));
        Environment::Fixed(BTreeMap::from(fixed))
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::of(&self.environment()).unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        config::load(&Layers {
            environment: &self.environment(),
            paths: &self.paths(),
            directory: Path::new("/"),
            given: None,
            flags: &[],
        })
        .unwrap()
    }

    pub(crate) fn session() -> SessionId {
        SESSION.parse().unwrap()
    }

    pub(crate) fn store(&self) -> Store {
        let directory = self.paths().state().join("mirrors/one/store");
        fs::create_dir_all(directory.parent().unwrap()).unwrap();
        Store::open(&directory, MIRROR, Limits::default()).unwrap()
    }

    /// Publishes what the agent has now.
    pub(crate) fn publish(&self, store: &Store) -> GenerationNumber {
        let far = self.path("far");
        let root = Root::open(&far).unwrap();
        let options = scan::Options {
            limits: Limits::default(),
            threads: 2,
            skip: None,
            progress: &scan::Progress::default(),
            cancel: &AtomicBool::new(false),
        };
        let scan = scan::scan(&root, &far, options).unwrap();
        assert!(scan.is_complete(), "{:?}", scan.problems);
        scan.tree.walk(&mut |path, entry| {
            if let Entry::File(file) = entry {
                let bytes = fs::read(far.join(path.as_os_str())).unwrap();
                let mut writer = store.writer(file.content, file.size);
                writer.take(&bytes).unwrap();
                writer.finish().unwrap();
            }
        });
        let complete = store.complete(&scan.tree).unwrap();
        complete.publish(SystemClock.now()).unwrap().number
    }

    pub(crate) fn sandbox(&self, network: bool) -> Result<Sandbox, Failure> {
        Sandbox::prepare(
            &trampoline(),
            Some("/usr/bin:/bin".as_ref()),
            network,
            &ToolLimits::of(&self.config().audit, true).recorded,
            &self.paths(),
            &self.config(),
        )
    }

    /// Audits what the agent has now.
    pub(crate) fn try_audit(&self, argv: &[&str], how: How) -> Result<Done, Failure> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let (paths, config) = (self.paths(), self.config());
        let clock: SharedClock = Arc::new(SystemClock);
        let store = self.store();
        let number = self.publish(&store);
        let limits = ToolLimits::of(&config.audit, how.sandboxed);
        let confinement = if how.sandboxed {
            Confinement::Sandbox(self.sandbox(how.network)?)
        } else {
            Confinement::None("/usr/bin:/bin".into())
        };
        let run = Run {
            desk: Desk::take(&paths, &Self::session())?,
            ledger: books::open(&paths, &config, Arc::clone(&clock))?,
            session: Self::session(),
            begun: Begun {
                named: None,
                argv: &argv,
                sandbox: match &confinement {
                    Confinement::Sandbox(_) => SandboxKind::Bubblewrap,
                    Confinement::None(_) => SandboxKind::None,
                },
                network: how.network,
                limits: &limits,
                began: clock.now(),
            },
            confinement,
            since: clock.since_boot(),
            clock,
        };
        let policy = Policy::of(&config.audit)?;
        let copied = match run.judge(&store, number, &policy)? {
            Judged::Copied(copied) => *copied,
            Judged::Refused { findings, audit } => {
                return Ok(Done {
                    audit: *audit,
                    findings,
                });
            }
        };
        let ways = Ways {
            trampoline: trampoline(),
            inherited: self.environment().all(),
            limit: how.limit,
            core: Some(0),
            restore: how.restore,
        };
        let change = match run.look(copied, ways)? {
            Looked::Done(audit) => {
                return Ok(Done {
                    audit: *audit,
                    findings: Vec::new(),
                });
            }
            Looked::Changed(change) => *change,
        };
        let findings = change.judge(&policy);
        let audit = if findings.is_empty() && change.is_empty() {
            run.unchanged(change)?
        } else if findings.is_empty() {
            let head = change.keep(&store, &run)?;
            run.restored(change, &head, head.tree.to_string())?
        } else {
            run.refused(change, &findings)?
        };
        Ok(Done { audit, findings })
    }

    #[track_caller]
    pub(crate) fn audit(&self, argv: &[&str]) -> Done {
        self.try_audit(argv, How::default()).unwrap()
    }

    /// A script that may change its copy.
    #[track_caller]
    pub(crate) fn restoring(&self, script: &str) -> Done {
        let how = How {
            restore: true,
            ..How::default()
        };
        self.try_audit(&["sh", "-c", script], how).unwrap()
    }

    /// A script without a sandbox, so that it can alter its copy.
    #[track_caller]
    pub(crate) fn bare(&self, script: &str) -> Done {
        let how = How {
            sandboxed: false,
            ..How::default()
        };
        self.try_audit(&["sh", "-c", script], how).unwrap()
    }

    /// A script of the agent's shell, audited.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> Done {
        self.audit(&["sh", "-c", script])
    }
}

/// The tests are not labproxy themselves.
pub(crate) fn trampoline() -> Trampoline {
    Trampoline::at(env!("CARGO_BIN_EXE_labproxy"))
}

pub(crate) fn altered(done: &Done) -> &[String] {
    match done.verdict() {
        Verdict::AlteredInput { paths, .. } => paths,
        other => panic!("{other:?}"),
    }
}
