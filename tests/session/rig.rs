//! One test's own world: a stand-in upstream, directories, and `labproxy` as a child.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::standin::{Options, Standin};

/// A recognisable key that must reach the upstream and nothing else.
pub(crate) const KEY: &str = "sk-ant-api03-canary-7d1f4c2be95a";
/// The variable of labproxy's environment that holds it.
pub(crate) const KEY_VARIABLE: &str = "RIG_KEY";
/// Whatever a test waits for has come by then, or never will.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at what nobody announces.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A request that costs little; the model is priced and short.
const CALL: &str = r#"#!/bin/sh
# Makes one call; $1 is the prompt, $2 the limit of tokens.
curl -sS -m 60 -o "${OUT:-/dev/null}" -w '%{http_code}' "$ANTHROPIC_BASE_URL/v1/messages" \
  -H "x-api-key: $ANTHROPIC_API_KEY" -H 'anthropic-version: 2023-06-01' \
  -H 'content-type: application/json' \
  -d '{"model":"claude-haiku-4-5","max_tokens":'"${2:-100}"',"messages":[{"role":"user","content":"'"$1"'"}]}'
"#;

pub(crate) struct Rig {
    pub(crate) standin: Standin,
    _runtime: Runtime,
    folder: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running `labproxy`.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: thread::JoinHandle<String>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
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
            standin,
            _runtime: runtime,
            folder: TempDir::new().unwrap(),
        };
        for name in ["home", "work", "state", "config", "run"] {
            let path = rig.path(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        rig.write_program("call", CALL);
        rig
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a session's sockets are while it lives.
    pub(crate) fn sockets(&self, session: &str) -> PathBuf {
        self.path("run/labproxy").join(session)
    }

    pub(crate) fn write_program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// `labproxy` with these arguments, an environment of its own and the test's directories.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
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
            .env("CALL", self.path("call"))
            // The suite must pass long after the prices were checked.
            .env("LABPROXY_PRICING_ALLOW_STALE", "true")
            .env(KEY_VARIABLE, KEY);
        command
    }

    /// `session start` with the stand-in as upstream, these options, and an agent unless empty.
    pub(crate) fn start(&self, options: &[&str], agent: &[&str]) -> Command {
        let url = self.standin.url();
        let credential = format!("env:{KEY_VARIABLE}");
        let mut arguments = vec!["session", "start", "--upstream", &url];
        arguments.extend(["--credential", &credential]);
        if !options.contains(&"--cap") {
            arguments.extend(["--cap", "2"]);
        }
        arguments.extend(options);
        if !agent.is_empty() {
            arguments.push("--");
            arguments.extend(agent);
        }
        self.command(&arguments)
    }

    /// Runs an agent to its end; the receipt lies in `receipt.json`.
    pub(crate) fn run(&self, options: &[&str], agent: &[&str]) -> Done {
        let receipt = self.path("receipt.json").display().to_string();
        let options = [options, &["--receipt", &receipt]].concat();
        finish(&mut self.start(&options, agent))
    }

    /// Runs a command of labproxy to its end.
    pub(crate) fn labproxy(&self, arguments: &[&str]) -> Done {
        finish(&mut self.command(arguments))
    }

    pub(crate) fn receipt(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("receipt.json")).unwrap()).unwrap()
    }

    /// What `session list --json` says.
    pub(crate) fn list(&self) -> Vec<Value> {
        let done = self.labproxy(&["session", "list", "--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// The one session's name.
    pub(crate) fn session(&self) -> String {
        let listed = self.list();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed[0]["session"].as_str().unwrap().to_owned()
    }

    /// What `session show ID --json` says.
    pub(crate) fn show(&self, session: &str) -> Value {
        let done = self.labproxy(&["session", "show", session, "--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Asks a session over its control socket, from outside: the status and the answer.
    pub(crate) fn ask(&self, session: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let socket = self.sockets(session).join("control.sock");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "60", "-w", "\n%{http_code}", "-X", method])
            .arg("--unix-socket")
            .arg(socket);
        if !body.is_empty() {
            curl.args(["-d", body]);
        }
        let done = finish(curl.arg(format!("http://localhost{path}")));
        assert_eq!(done.code, Some(0), "{path} {done:?}");
        let (answer, status) = done.stdout.rsplit_once('\n').unwrap();
        (
            status.parse().unwrap(),
            serde_json::from_str(answer).unwrap(),
        )
    }

    /// Calls of `POST /v1/messages` that reached the stand-in.
    pub(crate) fn arrived(&self) -> usize {
        let seen = self.standin.requests();
        let messages = |target: &str| target.split('?').next() == Some("/v1/messages");
        seen.iter().filter(|seen| messages(&seen.target)).count()
    }

    /// Files below the test's folder that hold the key.
    pub(crate) fn files_with_key(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && holds_key(&std::fs::read(entry.path()).unwrap()) {
                    found.push(entry.path());
                }
            }
        }
        found
    }
}

/// Whether the key stands in `bytes`.
pub(crate) fn holds_key(bytes: &[u8]) -> bool {
    bytes.windows(KEY.len()).any(|at| at == KEY.as_bytes())
}

/// Runs to the end, with nothing on stdin.
pub(crate) fn finish(command: &mut Command) -> Done {
    let mut running = Running::of(command);
    running.close_stdin();
    running.finish()
}

/// Waits until `look` gives something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(LOOK_EVERY);
    }
}

/// Whether a process of that pid runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

fn signal_named(name: &str) -> Signal {
    match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "CONT" => Signal::CONT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        other => panic!("{other}"),
    }
}

fn pid_of(pid: i32) -> Pid {
    assert!(pid > 1, "one process or group, never all of them");
    Pid::from_raw(pid).unwrap()
}

/// Sends a signal to one process.
pub(crate) fn kill(name: &str, pid: i32) {
    rustix::process::kill_process(pid_of(pid), signal_named(name)).unwrap();
}

/// Sends a signal to a process group, as a terminal does.
pub(crate) fn kill_group(name: &str, group: i32) {
    rustix::process::kill_process_group(pid_of(group), signal_named(name)).unwrap();
}

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The next line of stdout.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line comes")
    }

    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.pid());
    }

    pub(crate) fn finish(mut self) -> Done {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                panic!("labproxy did not end: {:?}", self.stderr.join());
            }
            thread::sleep(LOOK_EVERY);
        };
        let stdout: Vec<String> = self.lines.iter().collect();
        Done {
            code: status.code(),
            stdout: stdout.join("\n"),
            stderr: self.stderr.join().unwrap(),
        }
    }
}

/// Every process that descends from `pid`.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = vec![];
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(child) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            let rest = stat.rsplit_once(')').unwrap().1;
            let of: i32 = rest
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            if of == parent && !found.contains(&child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// Whether `path` is a directory that holds nothing.
pub(crate) fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// A price file of one row, checked long ago, whose output costs so many dollars a million tokens.
pub(crate) fn prices(output: &str) -> String {
    format!(
        r#"
schema = 1
[[row]]
ids = ["claude-haiku-4-5", "claude-haiku-4-5-20251001"]
from = 2020-01-01
input = "1"
output = "{output}"
cache_write_5m = "1.25"
cache_write_1h = "2"
cache_read = "0.10"
us_geo = false
web_search = "0.01"
context_window = 200_000
max_output = 64_000
source = "test"
checked_on = 2020-01-01
"#
    )
}
