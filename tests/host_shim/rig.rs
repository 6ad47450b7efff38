//! One test's own world: a host behind sshd, a stand-in upstream, a user's directories, a scripted CLI.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::sshd::{Host, Setup};
use crate::standin::{Options, Standin};

/// A recognisable key that must reach the upstream and nothing else.
pub(crate) const KEY: &str = "sk-ant-api03-canary-93b1e7d4a0f8";
/// The variable of labproxy's environment that holds it.
pub(crate) const KEY_VARIABLE: &str = "RIG_KEY";
/// Whatever a test waits for has come by then, or never will.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Stands for Claude Code: tells a version, else becomes what stands after `run`.
const CLI: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo '2.1.332 (Claude Code)'; exit 0; }
[ "$1" = --settings ] || { echo "no settings: $*" >&2; exit 99; }
settings=$2
shift 2
while [ $# -gt 0 ]; do
    case "$1" in
    run) shift; export SETTINGS="$settings"; exec "$@" ;;
    --mcp-config) MCP=$2; export MCP; shift 2 ;;
    *) shift ;;
    esac
done
"#;

/// A user of this machine and a host that they may use.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) standin: Standin,
    _runtime: Runtime,
    folder: TempDir,
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    /// A world whose host is special.
    pub(crate) fn with(setup: Setup) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let options = Options {
            expect_key: Some(KEY.to_owned()),
            ..Options::default()
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let standin = runtime.block_on(Standin::start(address, options)).unwrap();
        let world = Self {
            host: Host::with(setup),
            standin,
            _runtime: runtime,
            folder: tempfile::Builder::new()
                .prefix("lps")
                .tempdir_in("/tmp")
                .unwrap(),
        };
        for name in ["home", "work", "state", "config/labproxy", "run", "bin"] {
            std::fs::create_dir_all(world.path(name)).unwrap();
        }
        for private in ["state", "run"] {
            let mode = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(world.path(private), mode).unwrap();
        }
        world.write_program("bin/claude", CLI);
        let binary = world.path("bin/claude").display().to_string();
        world.configure(&format!("[agent]\nbinary = \"{binary}\"\n"));
        world
    }

    /// The user's configuration: the host as `rig`, and more.
    pub(crate) fn configure(&self, more: &str) {
        self.configure_user("bash", more);
    }

    /// The same for a user of the host with another login shell.
    pub(crate) fn configure_user(&self, user: &str, more: &str) {
        let config = self.host.file("ssh_config").display().to_string();
        let text = format!(
            "{more}\n[pricing]\nallow_stale = true\n[host.rig]\nssh = \"tested\"\nuser = \"t{user}\"\n\
             ssh_config = \"{config}\"\n"
        );
        std::fs::write(self.path("config/labproxy/config.toml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn shim(&self) -> PathBuf {
        self.path("shim")
    }

    pub(crate) fn write_program(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// `labproxy` with these arguments and an environment of its own.
    pub(crate) fn labproxy(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(arguments)
            .current_dir(self.path("work"))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("SHIM", self.shim())
            .env(KEY_VARIABLE, KEY)
            .stdin(Stdio::null());
        command
    }

    /// `session start` of an agent on the host.
    pub(crate) fn bare(&self, agent: &[impl AsRef<OsStr>]) -> Command {
        let url = self.standin.url();
        let credential = format!("env:{KEY_VARIABLE}");
        let mut arguments = vec!["session", "start", "--cap", "2", "--upstream", &url];
        arguments.extend(["--credential", &credential, "--host", "rig", "--"]);
        let mut command = self.labproxy(&arguments);
        command.args(agent);
        command
    }

    /// `session start` on the host with a shim, these options, and an agent unless empty.
    pub(crate) fn start(&self, options: &[&str], agent: &[&str]) -> Command {
        let url = self.standin.url();
        let credential = format!("env:{KEY_VARIABLE}");
        let shim = self.shim().display().to_string();
        let mut arguments = vec!["session", "start", "--cap", "2", "--upstream", &url];
        arguments.extend([
            "--credential",
            &credential,
            "--host",
            "rig",
            "--shim",
            &shim,
        ]);
        arguments.extend(options);
        if !agent.is_empty() {
            arguments.push("--");
            arguments.extend(agent);
        }
        self.labproxy(&arguments)
    }

    /// A session whose agent here is a text of `sh` that finds the shim in `SHIM`.
    pub(crate) fn run(&self, text: &str) -> Done {
        self.start(&[], &["sh", "-c", text])
            .output()
            .unwrap()
            .into()
    }

    /// A session without an agent, when its shim is there.
    pub(crate) fn waiting(&self, options: &[&str]) -> Waiting {
        let mut command = self.start(options, &[]);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let waiting = Waiting(child.unwrap());
        until("the shim is there", || self.shim().exists());
        waiting
    }

    /// The shim as an SDK starts it, in the workspace.
    pub(crate) fn launch(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.shim());
        command
            .args(arguments)
            .current_dir(self.path("work"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// A session that waits until it is told to end.
pub(crate) struct Waiting(Child);

impl Waiting {
    /// Tells it to end, and what it left.
    pub(crate) fn end(self) -> Done {
        terminate(self.0.id());
        self.0.wait_with_output().unwrap().into()
    }
}

pub(crate) fn terminate(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Every file below a folder that holds these bytes.
pub(crate) fn files_with(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A session that runs makes and removes directories.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                if memchr::memmem::find(&bytes, needle.as_bytes()).is_some() {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}
