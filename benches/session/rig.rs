//! A user, a host that is a ssh server on loopback, and a workspace.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::report::Who;
use crate::sshd;

/// The server's name in the configuration.
const HOST: &str = "far";
/// Files in a directory.
const IN_DIRECTORY: u32 = 17;
/// Files of which one byte is changed by one edit.
const EDITS: usize = 100;

pub struct Rig {
    folder: TempDir,
    /// A short path, for the sockets of ssh.
    run: TempDir,
    server: Child,
}

/// A session whose agent waits to be told to end.
pub struct Session {
    labproxy: Child,
    name: String,
    /// The workspace on the host.
    pub there: PathBuf,
}

/// What is compared, for the record.
pub fn versions() -> String {
    let output = Command::new("rsync").arg("--version").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rsync = text.lines().next().unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{rsync}; {processors} processors; load before: {load}")
}

impl Rig {
    pub fn new(place: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bench-session-")
            .tempdir_in(place)
            .unwrap();
        let run = tempfile::Builder::new().prefix("bs-").tempdir().unwrap();
        for name in [
            "work",
            "home",
            "config/labproxy",
            "state",
            "ssh",
            "there-run",
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let ssh = folder.path().join("ssh");
        sshd::configure(HOST, ("127.0.0.1", port), &ssh);
        let own = fs::read_to_string(ssh.join("sshd_config")).unwrap();
        let runtime = run.path().join("there");
        fs::create_dir(&runtime).unwrap();
        let own = format!("SetEnv XDG_RUNTIME_DIR={}\n{own}", runtime.display());
        fs::write(ssh.join("sshd_config"), own).unwrap();
        let quiet = |program: &str| {
            let mut command = Command::new(program);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let server = sshd::run(quiet, &ssh);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let rig = Self {
            folder,
            run,
            server,
        };
        let config = format!(
            "[host.{HOST}]\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
            rig.path("ssh/ssh_config").display(),
            rig.path("there").display()
        );
        fs::write(rig.path("config/labproxy/config.toml"), config).unwrap();
        // A host has the helper from its first contact on: that is not what is measured.
        run_to_end(&mut rig.session(&[], &["true"]));
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the workspace: files of 1 to 9 KB that nothing packs.
    pub fn make(&self, files: u32) {
        let mut bytes = vec![0; 9 << 10];
        for number in 0..files {
            let directory = self
                .path("work")
                .join(format!("d{}", number / IN_DIRECTORY));
            fs::create_dir_all(&directory).unwrap();
            let mut noise = blake3::Hasher::new();
            noise.update(&number.to_le_bytes());
            let length = 1_024 + (number as usize * 7_919) % (8 << 10);
            noise.finalize_xof().fill(&mut bytes[..length]);
            fs::write(directory.join(format!("f{number}")), &bytes[..length]).unwrap();
        }
    }

    fn labproxy(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(words)
            .current_dir(self.path("home"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.run.path())
            .env("LABPROXY_PRICING_ALLOW_STALE", "true")
            .env("BENCH_KEY", "sk-ant-api03-bench");
        command
    }

    /// `session start` on the host. Nothing is asked of the upstream.
    fn session(&self, options: &[&str], agent: &[&str]) -> Command {
        let mut command = self.labproxy(&["session", "start", "--host", HOST, "--cap", "2"]);
        command.args(["--upstream", "http://127.0.0.1:9"]);
        command.args(["--credential", "env:BENCH_KEY"]);
        command.args(options).arg("--").args(agent);
        command
    }

    /// Starts a session, and returns with its agent's first byte.
    pub fn start(&self) -> Session {
        let work = self.path("work").display().to_string();
        let agent = ["sh", "-c", "echo ready; read go; true"];
        let said = fs::File::create(self.path("said")).unwrap();
        let mut labproxy = self
            .session(&["--workspace", &work], &agent)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(labproxy.stdout.as_mut().unwrap());
        output.read_line(&mut line).unwrap();
        let said = fs::read_to_string(self.path("said")).unwrap();
        assert_eq!(line, "ready\n", "{said}");
        let list = run_to_end(&mut self.labproxy(&["session", "list", "--json"]));
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let all = list.as_array().unwrap();
        let running = all.iter().find(|one| one["state"] == "running").unwrap();
        let name = running["session"].as_str().unwrap().to_owned();
        let there = self.path("there/sessions").join(&name).join("workspace");
        Session {
            labproxy,
            name,
            there,
        }
    }

    /// Somebody's copy.
    pub fn copy(&self, who: Who) -> PathBuf {
        self.path(match who {
            Who::RsyncChecksum => "copy-checksum",
            Who::Session | Who::Audit | Who::Pull | Who::Rsync => "copy-plain",
        })
    }

    fn rsync(&self, options: &[&str], from: &str, to: &str) {
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "--delete"]).args(options).arg("-e");
        rsync.arg(format!("ssh -F {}", self.path("ssh/ssh_config").display()));
        run_to_end(rsync.args([from, to]));
    }

    /// The workspace to an empty directory there, by rsync.
    pub fn rsync_there(&self) {
        let (from, to) = (self.path("work"), self.path("rsync-there"));
        let (from, to) = (from.display(), to.display());
        self.rsync(&[], &format!("{from}/"), &format!("{HOST}:{to}"));
    }
}

/// Two trees have the same files with the same bytes.
pub fn assert_same(one: &Path, other: &Path) {
    run_to_end(Command::new("diff").arg("-r").arg(one).arg(other));
}

impl Session {
    /// Brings what is there here, in one of the ways.
    pub fn copy(&self, rig: &Rig, who: Who) {
        let from = format!("{HOST}:{}/", self.there.display());
        let to = rig.copy(who).display().to_string();
        let session = ["--session", &self.name];
        match who {
            Who::Session => {}
            Who::Audit => {
                let words = [&["audit", "run"], &session[..], &["--", "true"]].concat();
                run_to_end(&mut rig.labproxy(&words));
            }
            Who::Pull => {
                let words = [&["mirror", "pull", "--generation-only"], &session[..]].concat();
                run_to_end(&mut rig.labproxy(&words));
            }
            Who::RsyncChecksum => rig.rsync(&["--checksum"], &from, &to),
            Who::Rsync => rig.rsync(&[], &from, &to),
        }
    }

    /// Changes a byte in each of a hundred files, always the same ones, far from each other.
    pub fn edit(&self) {
        let mut files = Vec::new();
        for directory in fs::read_dir(&self.there).unwrap() {
            let entries = fs::read_dir(directory.unwrap().path()).unwrap();
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        files.sort();
        for number in 0..EDITS {
            let path = &files[number * files.len() / EDITS];
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 512).unwrap();
            file.write_all_at(&[byte[0].wrapping_add(1)], 512).unwrap();
        }
    }

    /// Tells the agent to end, and returns when the session has.
    pub fn end(mut self) {
        drop(self.labproxy.stdin.take());
        let status = self.labproxy.wait().unwrap();
        assert!(status.success(), "the session ended with {status}");
    }
}

/// Runs a command that must succeed; what it printed.
fn run_to_end(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
