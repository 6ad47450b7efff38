//! One tree, one server, and a copy for everybody.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::report::{Op, Who};
use crate::sshd;
use crate::tools::Resident;

/// The server's name in the configuration.
pub const HOST: &str = "far";

pub struct Rig {
    folder: TempDir,
    /// A short path, for the sockets of ssh.
    pub run: TempDir,
    server: Child,
    /// The connection that one rsync goes through.
    master: Child,
}

/// What is compared, for the record.
pub fn versions() -> String {
    let first = |program: &str, option: &str| {
        let output = Command::new(program).arg(option).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let rsync = first("rsync", "--version");
    let number = rsync.split_whitespace().nth(2).unwrap_or_default();
    let parts: Vec<u32> = number
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    let note = if parts.as_slice() < &[3, 5][..] {
        " (the oracle of the design is 3.5 or later; this is what the system has)"
    } else {
        ""
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    format!(
        "{rsync}{note}; {}; {} processors; load before: {load}",
        first("ssh", "-V"),
        threads()
    )
}

pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Rig {
    pub fn new(place: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bench-mirror-")
            .tempdir_in(place)
            .unwrap();
        let run = tempfile::Builder::new().prefix("bm-").tempdir().unwrap();
        for name in ["source", "home", "config/labproxy", "state", "own", "ssh"] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let ssh = folder.path().join("ssh");
        sshd::configure(HOST, ("127.0.0.1", port), &ssh);
        let server = sshd::run(
            |program| {
                let mut command = Command::new(program);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command
            },
            &ssh,
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let master = master(&ssh, run.path());
        let rig = Self {
            folder,
            run,
            server,
            master,
        };
        let config = format!(
            "[host.{HOST}]\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
            rig.ssh_config().display(),
            rig.path("there-command").display()
        );
        fs::write(rig.path("config/labproxy/config.toml"), config).unwrap();
        // A host has the helper from its first contact on: that is not what is measured.
        let nothing = rig.path("nothing");
        fs::create_dir(&nothing).unwrap();
        rig.pull(&nothing, &rig.path("copy-nothing"));
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn ssh_config(&self) -> PathBuf {
        self.path("ssh/ssh_config")
    }

    pub fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// Somebody's copy.
    pub fn copy(&self, who: Who) -> PathBuf {
        self.path(match who {
            Who::Rsync => "copy-rsync",
            Who::RsyncConnected => "copy-rsync-connected",
            Who::Command => "copy-command",
            Who::Resident | Who::Pass => "copy-resident",
        })
    }

    /// rsync, at an initial copy without what only costs it time.
    pub fn rsync(&self, who: Who, op: Op) {
        let mut rsync = Command::new("rsync");
        rsync.arg("-a");
        if op != Op::Initial {
            rsync.args(["--checksum", "--delete"]);
        }
        let ssh = format!("ssh -F {}", self.ssh_config().display());
        let through = socket(self.run.path());
        rsync.arg("-e").arg(match who {
            Who::RsyncConnected => format!("{ssh} -S {}", through.display()),
            _ => ssh,
        });
        rsync.arg(format!("{HOST}:{}/", self.source().display()));
        rsync.arg(self.copy(who));
        run(&mut rsync);
    }

    /// `labproxy mirror pull`, as a user runs it.
    pub fn command(&self) {
        self.pull(&self.source(), &self.copy(Who::Command));
    }

    fn pull(&self, from: &Path, to: &Path) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(["mirror", "pull", "--allow-deletes"])
            .arg(to)
            .arg(format!("{HOST}:{}", from.display()))
            .current_dir(self.path("home"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.run.path());
        run(&mut command);
    }

    /// The library, connected.
    pub fn resident(&self) -> Resident {
        Resident::connect(self)
    }
}

fn socket(run: &Path) -> PathBuf {
    run.join("master")
}

/// A connection that is open, for others to go through.
fn master(ssh: &Path, run: &Path) -> Child {
    let socket = socket(run);
    let with = |options: &[&str]| {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(ssh.join("ssh_config"));
        command.arg("-S").arg(&socket).args(options).arg(HOST);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let master = with(&["-M", "-N"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !with(&["-O", "check"]).status().unwrap().success() {
        assert!(Instant::now() < deadline, "ssh does not connect");
        std::thread::sleep(Duration::from_millis(5));
    }
    master
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.master.kill());
        drop(self.master.wait());
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
