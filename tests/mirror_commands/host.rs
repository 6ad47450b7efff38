//! The user's world with a host in it: a sshd on loopback, whose own state is below `there`.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Ran, Rig};
use crate::server;

const HOST: &str = "gpu1";

pub(crate) struct World {
    pub(crate) rig: Rig,
    port: u16,
    sshd: Child,
}

impl World {
    pub(crate) fn new() -> Self {
        let rig = Rig::new();
        // Free now; nothing else takes this very port before sshd does.
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let ssh = rig.path("ssh");
        std::fs::create_dir(&ssh).unwrap();
        server::configure(HOST, ("127.0.0.1", port), &ssh);
        // Programs of the host's that a test puts there come before the system's.
        let bin = rig.path("host-bin");
        let own = std::fs::read_to_string(ssh.join("sshd_config")).unwrap();
        let path = format!("PATH={}:/usr/bin:/bin", bin.display());
        let own = format!("SetEnv {path} {}\n{own}", mark(&rig));
        std::fs::write(ssh.join("sshd_config"), own).unwrap();
        let (config, there) = (ssh.join("ssh_config"), rig.path("there"));
        let text = format!(
            "[host.{HOST}]\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
            config.display(),
            there.display()
        );
        rig.write("home/.config/labproxy/config.toml", text);
        let quiet = |program: &str| {
            let mut command = Command::new(program);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let sshd = server::run(quiet, &ssh);
        eventually("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { rig, port, sshd }
    }

    /// Nobody takes new logins; those that are there go on.
    pub(crate) fn stop_sshd(&mut self) {
        self.sshd.kill().unwrap();
        self.sshd.wait().unwrap();
    }

    /// New logins are taken again.
    pub(crate) fn start_sshd(&mut self) {
        let quiet = |program: &str| {
            let mut command = Command::new(program);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        self.sshd = server::run(quiet, &self.rig.path("ssh"));
        let port = self.port;
        eventually("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
    }

    /// `mirror WHAT local gpu1:far MORE…`.
    pub(crate) fn command(&self, what: &str, more: &[&str]) -> Command {
        let far = format!("{HOST}:{}", self.rig.path("far").display());
        let local = self.rig.path("local");
        let mut command = self.rig.command(["mirror", what]);
        command.arg(local).arg(far).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn mirror(&self, what: &str, more: &[&str]) -> Ran {
        Ran::of(&self.command(what, more).output().unwrap())
    }

    /// The host's ends of mirrors that run now.
    pub(crate) fn ends(&self) -> Vec<Pid> {
        let mark = mark(&self.rig);
        running()
            .into_iter()
            .filter(|(process, _)| is_of(*process, &mark))
            .map(|(process, _)| process)
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.sshd.kill());
        drop(self.sshd.wait());
    }
}

/// Every process, with its parent.
fn running() -> Vec<(Pid, i32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| {
            let mut fields = rest.split(' ');
            fields.nth(1)?.parse().ok()
        });
        if let (Some(pid), Some(parent)) = (Pid::from_raw(pid), parent) {
            found.push((pid, parent));
        }
    }
    found
}

/// What is in the environment of every login, and in no other world's.
fn mark(rig: &Rig) -> String {
    format!("TEST_WORLD={}", rig.path("there").display())
}

/// Whether it was started by a login with this mark to be a mirror's end, from wherever its program was
/// found.
fn is_of(process: Pid, mark: &str) -> bool {
    let has = |file: &str, wanted: &str| {
        let words = std::fs::read(format!("/proc/{}/{file}", process.as_raw_pid()));
        words
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .any(|word| word == wanted.as_bytes())
    };
    has("cmdline", "mirror") && has("environ", mark)
}

/// Children of a process whose program has this name.
pub(crate) fn children(parent: u32, program: &str) -> Vec<Pid> {
    let parent = i32::try_from(parent).unwrap();
    let children = running().into_iter().filter(|(_, of)| *of == parent);
    children
        .map(|(pid, _)| pid)
        .filter(|pid| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid()));
            comm.is_ok_and(|comm| comm.trim_end() == program)
        })
        .collect()
}

pub(crate) fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        // It may have ended by itself.
        let _ended = kill_process(*process, signal);
    }
}

/// Waits for something that happens soon.
pub(crate) fn eventually<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(value) = get() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
