//! A home directory with a session in it, and the helper.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use crate::host_program::path as helper;
use labproxy::processes::{self, ProcessStamp};
use labproxy::remote::record::Record;

/// How long anything may take that should take no time, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds; a test that waits in vain fails with what it waited for.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    within(PATIENCE, what, holds);
}

/// The same for what takes its time.
pub(crate) fn within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < limit, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A user's home on a host, with one session. Dropping it ends what is left of the session.
pub(crate) struct Host {
    pub(crate) home: PathBuf,
    pub(crate) session: String,
}

impl Host {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("labproxy-remote-test-{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir_all(&home).unwrap();
        let session = format!("s{}-{number}", std::process::id());
        Self { home, session }
    }

    /// The session's directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.home.join(".labproxy/sessions").join(&self.session)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory().join("workspace")
    }

    /// What guard and supervisor said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory().join("log/host.log")).unwrap_or_default()
    }

    pub(crate) fn record(&self) -> Option<Record> {
        let opened = OwnedFd::from(fs::File::open(self.directory()).ok()?);
        Record::read(&opened)
    }

    pub(crate) fn supervisor(&self) -> ProcessStamp {
        self.record().expect("a supervisor lives").supervisor
    }

    /// The helper in a role, in this home.
    pub(crate) fn helper(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(helper());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/");
        command
    }

    /// A script in the workspace.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(record) = self.record() {
            let both = [record.supervisor, record.guard];
            kill(record.supervisor, rustix::process::Signal::KILL);
            let limit = Instant::now() + PATIENCE;
            while both.iter().any(ProcessStamp::is_alive) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if std::thread::panicking() {
            eprintln!("host log:\n{}", self.log());
        }
        drop(fs::remove_dir_all(&self.home));
    }
}

/// Signals exactly this process.
pub(crate) fn kill(stamp: ProcessStamp, signal: rustix::process::Signal) {
    if stamp.is_alive() {
        let pid = rustix::process::Pid::from_raw(stamp.pid).unwrap();
        let _gone = rustix::process::kill_process(pid, signal);
    }
}

/// Processes whose command line holds these words; zombies have none.
pub(crate) fn running(words: &str) -> Vec<i32> {
    processes::all()
        .map(|process| process.stamp.pid)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(words)
        })
        .collect()
}

/// Whether a path is there.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
