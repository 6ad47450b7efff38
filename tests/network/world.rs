//! `labproxy` on one machine, a host on another, and a session between them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use labproxy::processes::ProcessStamp;
use labproxy::remote::record::Record;
use tempfile::TempDir;

use crate::netpair::{FAR, NetPair};
use crate::rig::PATIENCE;
use crate::sshd::{HOST, Sshd};

/// Two machines, ssh between them, and the directories of a user on both.
pub struct World {
    pub sshd: Sshd,
    pub net: NetPair,
    folder: TempDir,
}

impl World {
    pub fn new() -> Self {
        let net = NetPair::joined();
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "home",
            "config",
            "config/labproxy",
            "state",
            "run",
            "host",
            "ssh",
        ] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let ssh = folder.path().join("ssh");
        let sshd = Sshd::start(|program| net.far(program), FAR, &ssh);
        sshd.wait(|program| net.near(program));
        let config = format!(
            "[host.{HOST}]\nssh = \"{HOST}\"\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
            sshd.config.display(),
            folder.path().join("host").display()
        );
        let world = Self { sshd, net, folder };
        fs::write(world.path("config/labproxy/config.toml"), config).unwrap();
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A session on the host whose agent is this script of `sh`.
    pub fn start(&self, lease: &str, script: &str) -> Session {
        let mut command = self.net.near(env!("CARGO_BIN_EXE_labproxy"));
        // No upstream is ever asked: these agents make no calls.
        command
            .args(["session", "start", "--host", HOST, "--cap", "1"])
            .args([
                "--upstream",
                "http://127.0.0.1:9",
                "--credential",
                "env:RIG_KEY",
            ])
            .args(["--", "sh", "-c", script])
            .current_dir(self.path("home"))
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("LABPROXY_PRICING_ALLOW_STALE", "true")
            .env("LABPROXY_SESSION_LEASE", lease)
            .env("RIG_KEY", "sk-ant-api03-network-test");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Session {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr,
        }
    }

    /// The one session's directory on the host.
    pub fn session(&self) -> PathBuf {
        let mut all = fs::read_dir(self.path("host/sessions")).unwrap();
        let one = all.next().unwrap().unwrap().path();
        assert!(all.next().is_none());
        one
    }

    /// The guard of the session, whose descendants are everything that runs for it on the host.
    pub fn guard(&self) -> ProcessStamp {
        self.record().guard
    }

    pub fn record(&self) -> Record {
        let directory = OwnedFd::from(fs::File::open(self.session()).unwrap());
        Record::read(&directory).unwrap()
    }
}

/// A `labproxy session start` that runs.
pub struct Session {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: thread::JoinHandle<String>,
}

impl Session {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The next line of the agent.
    pub fn line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for its end: status and what it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let deadline = Instant::now() + 2 * PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("it does not end: {}", self.stderr.join().unwrap());
            }
            thread::sleep(Duration::from_millis(20));
        };
        (status.code(), self.stderr.join().unwrap())
    }
}

/// Waits until something holds, at most so long.
pub fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
