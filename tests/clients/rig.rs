//! One test's own world: a stand-in upstream in this process, a home, a workspace, a key file, and
//! `labproxy` as a child.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::standin::{Options, Seen, Served, Standin};

/// A recognisable key that must reach the upstream and nothing else.
pub(crate) const KEY: &str = "sk-ant-api03-canary-4f7d2c9e81b6";
/// A run that takes longer is stuck: the slowest sends 400 MB through ssh.
const RUN_MAX: Duration = Duration::from_mins(5);

pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) standin: Standin,
    folder: TempDir,
}

/// What came of one `labproxy session start`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) receipt: Value,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let options = Options {
            expect_key: Some(KEY.to_owned()),
            ..Options::default()
        };
        let standin = runtime
            .block_on(Standin::start("127.0.0.1:0".parse().unwrap(), options))
            .unwrap();
        let rig = Self {
            runtime,
            standin,
            folder: TempDir::new().unwrap(),
        };
        for name in ["home", "tmp", "workspace", "state", "config", "runtime"] {
            std::fs::create_dir(rig.path(name)).unwrap();
        }
        for private in ["runtime", "state"] {
            let mode = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(rig.path(private), mode).unwrap();
        }
        // The prices of a test do not go stale: it must pass in a year too.
        rig.write(
            "config/labproxy/config.toml",
            "[pricing]\nallow_stale = true\n",
        );
        std::fs::write(rig.path("key"), KEY).unwrap();
        std::fs::set_permissions(rig.path("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        rig
    }

    /// A path inside this test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file below this test's folder, and the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// `labproxy session start` with the stand-in as upstream, up to and without `--`.
    pub(crate) fn arguments(&self, cap: &str) -> Vec<String> {
        let key = format!("file:{}", self.path("key").display());
        let receipt = self.path("receipt.json").display().to_string();
        let url = self.standin.url();
        ["session", "start", "--cap", cap, "--upstream", &url]
            .into_iter()
            .chain(["--credential", &key, "--receipt", &receipt])
            .map(str::to_owned)
            .collect()
    }

    /// The environment that labproxy is started with: nothing of this process but `PATH`.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let shown = |name: &str| self.path(name).display().to_string();
        vec![
            ("PATH", std::env::var("PATH").unwrap()),
            ("TERM", "dumb".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("HOME", shown("home")),
            ("TMPDIR", shown("tmp")),
            ("XDG_STATE_HOME", shown("state")),
            ("XDG_CONFIG_HOME", shown("config")),
            ("XDG_RUNTIME_DIR", shown("runtime")),
        ]
    }

    /// Runs an agent in a session with that cap.
    pub(crate) fn run(&self, cap: &str, agent: &[&str]) -> Run {
        self.run_with(cap, &[], agent)
    }

    /// The same, with more options and more of labproxy's environment.
    pub(crate) fn run_with(&self, cap: &str, more: &[(&str, &str)], agent: &[&str]) -> Run {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(self.arguments(cap))
            .arg("--")
            .args(agent)
            .current_dir(self.path("workspace"))
            .env_clear()
            .envs(self.environment())
            .envs(more.iter().copied());
        self.finish(command)
    }

    /// Waits for a prepared `labproxy` and reads its receipt.
    pub(crate) fn finish(&self, mut command: tokio::process::Command) -> Run {
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output: Output = self
            .runtime
            .block_on(async { tokio::time::timeout(RUN_MAX, command.output()).await })
            .expect("labproxy ends in time")
            .expect("labproxy starts");
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            receipt: self.receipt(),
        }
    }

    /// The receipt that `--receipt` wrote, or null.
    pub(crate) fn receipt(&self) -> Value {
        std::fs::read(self.path("receipt.json"))
            .map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap())
    }

    pub(crate) fn served(&self) -> Served {
        self.standin.served()
    }

    /// Calls of `POST /v1/messages` that reached the stand-in.
    pub(crate) fn messages(&self) -> Vec<Seen> {
        let mut seen = self.standin.requests();
        seen.retain(|seen| seen.target.split('?').next() == Some("/v1/messages"));
        seen
    }

    /// The session ended well, every answer was settled, the bill is the stand-in's own count, the
    /// real key arrived each time, and nothing of the key is in what a user or agent can read.
    pub(crate) fn assert_exact(&self, run: &Run, answers: usize) {
        let served = self.served();
        assert_eq!(served.answers, answers, "{run:#?}");
        assert_eq!(run.receipt["schema"], 1, "{run:#?}");
        assert_eq!(run.receipt["spent_pico_usd"], served.pico_usd, "{run:#?}");
        assert_eq!(run.receipt["held_pico_usd"], 0, "{run:#?}");
        assert_eq!(run.receipt["end_reason"], "agent_exit", "{run:#?}");
        for seen in self.messages() {
            assert_eq!(seen.credential, "expected", "{seen:#?}");
        }
        self.assert_no_key(run);
    }

    /// The key is nowhere but in its own file.
    pub(crate) fn assert_no_key(&self, run: &Run) {
        for text in [&run.stdout, &run.stderr] {
            assert!(!text.contains(KEY), "the key was shown");
        }
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && entry.path() != self.path("key") {
                    let bytes = std::fs::read(entry.path()).unwrap();
                    let found = bytes.windows(KEY.len()).any(|at| at == KEY.as_bytes());
                    assert!(!found, "the key is in {}", entry.path().display());
                }
            }
        }
    }
}

/// The receipt's requests with that outcome.
pub(crate) fn outcomes<'a>(receipt: &'a Value, outcome: &str) -> Vec<&'a Value> {
    let requests = receipt["requests"].as_array().expect("a receipt");
    requests
        .iter()
        .filter(|request| request["outcome"] == outcome)
        .collect()
}

/// Where the pinned clients are.
pub(crate) fn clients() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients");
    assert!(
        folder.join("node_modules").exists(),
        "the clients are not installed: run 'make clients'"
    );
    folder
}

/// The pinned Claude Code.
pub(crate) fn claude() -> String {
    let path = clients().join("node_modules/.bin/claude");
    path.display().to_string()
}
