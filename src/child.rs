//! Children: how every program that labproxy starts for longer than a moment begins.
//!
//! It is started through this program's hidden `__exec` command, a trampoline that asks the kernel
//! to kill it when labproxy dies, gives it a session of its own where it must not get the terminal's
//! signals, and then becomes the program; that needs no `unsafe`. The death signal follows the
//! *thread* that started the child, so one thread starts all of them and lives as long as the
//! process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

#[cfg(target_os = "linux")]
use rustix::process::Signal;

/// The hidden command that becomes the program.
pub const EXEC_COMMAND: &str = "__exec";
/// Where the program stands among its arguments.
pub const PROGRAM_AT: usize = 4;
/// How a limit that does not exist, and one that is left as it is, are written there.
const UNLIMITED: &str = "unlimited";
const KEPT: &str = "kept";
/// Processor time between the signal of its limit and the end.
pub const CPU_GRACE_SECONDS: u64 = 5;
/// How the two kinds of session are written there.
const OWN_SESSION: &str = "own";
const OUR_SESSION: &str = "ours";

/// Why a program cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfound {
    /// No program of that name.
    Absent,
    /// It is there, and this user may not run it.
    NotExecutable,
}

/// Finds a program as a shell would: a name without `/` in `path`, anything else as it is.
///
/// # Errors
/// When it is not there or not executable.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Unfound> {
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Presence::Runs => Ok(PathBuf::from(name)),
            Presence::There => Err(Unfound::NotExecutable),
            Presence::Absent => Err(Unfound::Absent),
        };
    }
    let mut seen = false;
    for directory in path.into_iter().flat_map(env::split_paths) {
        // An empty entry is the working directory; the path must not be searched for again.
        let program = Path::new(".").join(directory).join(name);
        match executable(&program) {
            Presence::Runs if !name.is_empty() => return Ok(program),
            Presence::There => seen |= program.is_file(),
            Presence::Runs | Presence::Absent => {}
        }
    }
    Err(if seen {
        Unfound::NotExecutable
    } else {
        Unfound::Absent
    })
}

enum Presence {
    Runs,
    There,
    Absent,
}

fn executable(path: &Path) -> Presence {
    match path.metadata() {
        Ok(meta) if meta.is_file() => {
            let marked = meta.permissions().mode() & 0o111 != 0;
            if marked && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() {
                Presence::Runs
            } else {
                Presence::There
            }
        }
        Ok(_) => Presence::There,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Presence::There,
        Err(_) => Presence::Absent,
    }
}

/// Whose session (in the sense of setsid(2)) a child belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildSession {
    /// Ours: it has our terminal and its signals.
    Ours,
    /// One of its own: a Ctrl-C in our terminal does not reach it.
    Own,
}

/// The limit of core dumps of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreLimit {
    /// As labproxy has it: none are made.
    Kept,
    /// This many bytes; `None` is without limit.
    Soft(Option<u64>),
}

/// What each process of a child may use; nothing is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Memory that it can write to and shares with nobody, bytes.
    pub memory_bytes: Option<u64>,
    /// Time of processors.
    pub cpu_seconds: Option<u64>,
    /// Longest file that it writes, bytes.
    pub write_bytes: Option<u64>,
}

impl ProcessLimits {
    /// As the trampoline is told them.
    fn word(self) -> String {
        let part = |limit: Option<u64>| limit.map_or_else(|| KEPT.to_owned(), |it| it.to_string());
        [self.memory_bytes, self.cpu_seconds, self.write_bytes]
            .map(part)
            .join(",")
    }
}

/// The program that has the trampoline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trampoline(PathBuf);

impl Trampoline {
    /// Our own file, even when it was replaced on disk meanwhile.
    pub fn own() -> Self {
        Self(own_program())
    }

    /// Another file: tests are not labproxy themselves.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self(program.into())
    }
}

/// Our own file, even when it was replaced on disk meanwhile.
pub fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        env::current_exe().unwrap_or_else(|_| PathBuf::from("labproxy"))
    }
}

/// A child to start.
#[derive(Debug, Clone)]
pub struct ChildCommand<'a> {
    /// The trampoline.
    pub trampoline: &'a Trampoline,
    /// The file that is executed.
    pub program: &'a Path,
    /// Every argument, the name first.
    pub argv: &'a [OsString],
    /// Whose session it belongs to.
    pub session: ChildSession,
    /// Its limit of core dumps.
    pub core: CoreLimit,
    /// What each of its processes may use.
    pub limits: ProcessLimits,
}

impl ChildCommand<'_> {
    /// The trampoline's command line with exactly `environment`; stdio is the caller's to set.
    pub fn prepare<'v>(
        &self,
        environment: impl IntoIterator<Item = (&'v OsString, &'v OsString)>,
    ) -> Command {
        let core = match self.core {
            CoreLimit::Kept => KEPT.to_owned(),
            CoreLimit::Soft(None) => UNLIMITED.to_owned(),
            CoreLimit::Soft(Some(limit)) => limit.to_string(),
        };
        let mut child = Command::new(&self.trampoline.0);
        child
            .arg0("labproxy")
            .arg(EXEC_COMMAND)
            // The program's own arguments may hold options, and `--`.
            .arg("--")
            .arg(rustix::process::getpid().as_raw_nonzero().to_string())
            .arg(core)
            .arg(match self.session {
                ChildSession::Ours => OUR_SESSION,
                ChildSession::Own => OWN_SESSION,
            })
            .arg(self.limits.word())
            .arg(self.program)
            .args(self.argv)
            .env_clear()
            .envs(environment);
        child
    }
}

/// Starts a child whose death signal is not sent before this process ends.
///
/// # Errors
/// When the child cannot be made.
pub fn spawn(mut child: Command) -> io::Result<Child> {
    on_thread_for_life(move || child.spawn())
}

/// The same for a child that is waited for by this runtime, all of whose stdio are pipes, and that
/// is killed when it is dropped.
///
/// # Errors
/// When the child cannot be made.
pub fn spawn_piped(mut child: Command) -> io::Result<tokio::process::Child> {
    let runtime = tokio::runtime::Handle::current();
    child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = tokio::process::Command::from(child);
    child.kill_on_drop(true);
    on_thread_for_life(move || {
        let _entered = runtime.enter();
        child.spawn()
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// Does `work` on the thread that starts children.
fn on_thread_for_life<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        // Whoever asked waits for the answer, so it is taken.
        let _taken = sender.send(work());
    });
    let gone = || io::Error::other("the thread that starts children ended");
    thread_for_life()?.send(job).map_err(|_| gone())?;
    receiver.recv().map_err(|_| gone())?
}

/// The one thread that starts children; it never ends before the process does.
fn thread_for_life() -> io::Result<mpsc::Sender<Job>> {
    static JOBS: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);
    let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*jobs {
        return Ok(sender.clone());
    }
    let (sender, receiver) = mpsc::channel::<Job>();
    thread::Builder::new()
        .name("children".to_owned())
        .spawn(move || {
            for job in receiver {
                // A panic would end the thread, and with it every child.
                let _told_by_the_missing_answer = std::panic::catch_unwind(AssertUnwindSafe(job));
            }
        })?;
    *jobs = Some(sender.clone());
    Ok(sender)
}

/// The trampoline: binds this process's life to its parent's, then becomes the program. Returns
/// only when it cannot, with the exit status and what to tell.
///
/// `arguments` are the parent's pid, the limit of core dumps, whose session, what each process may use,
/// the program's file and its argv.
pub fn become_program(arguments: &[OsString]) -> (u8, String) {
    let [parent, core, session, limits, program, argv @ ..] = arguments else {
        return (125, "the trampoline got no program".to_owned());
    };
    let Some((argv0, rest)) = argv.split_first() else {
        return (125, "the trampoline got no argv".to_owned());
    };
    if session == OWN_SESSION
        && let Err(error) = rustix::process::setsid()
    {
        return (125, format!("no session of its own: {error}"));
    }
    #[cfg(target_os = "linux")]
    {
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            return (125, format!("no death signal: {error}"));
        }
        // The parent may have died before the request took hold.
        let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if now.as_deref().map(OsStr::new) != Some(parent) {
            return (125, "labproxy ended before the program began".to_owned());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    if core != KEPT {
        restore_core_limit(core);
    }
    if let Err(why) = set_limits(limits) {
        return (125, why);
    }
    let error = Command::new(program).arg0(argv0).args(rest).exec();
    let status = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    (status, error.to_string())
}

/// Sets what each process may use, for what cannot raise it again.
fn set_limits(word: &OsStr) -> Result<(), String> {
    use rustix::process::Resource;
    let words = word.to_str().unwrap_or_default().split(',');
    let resources = [
        ("memory", Resource::Data),
        ("processor time", Resource::Cpu),
        ("the length of files", Resource::Fsize),
    ];
    for ((what, resource), word) in resources.into_iter().zip(words) {
        if word == KEPT {
            continue;
        }
        let wanted: u64 = word
            .parse()
            .map_err(|_| format!("no limit of {what}: '{word}' is no number"))?;
        let before = rustix::process::getrlimit(resource);
        let lower = |wanted: u64| before.maximum.map_or(wanted, |most| most.min(wanted));
        let hard = match resource {
            // First the signal that says why, then the end.
            Resource::Cpu => wanted.saturating_add(CPU_GRACE_SECONDS),
            _ => wanted,
        };
        let limit = rustix::process::Rlimit {
            current: Some(lower(wanted)),
            maximum: Some(lower(hard)),
        };
        rustix::process::setrlimit(resource, limit)
            .map_err(|error| format!("no limit of {what}: {error}"))?;
    }
    Ok(())
}

/// Gives the program the soft limit that labproxy had before it lowered its own.
fn restore_core_limit(core: &OsStr) {
    let resource = rustix::process::Resource::Core;
    let mut limit = rustix::process::getrlimit(resource);
    limit.current = core.to_str().and_then(|text| text.parse().ok());
    // Never above the hard limit, which stayed as it was.
    let _refused = rustix::process::setrlimit(resource, limit);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Absent is 127's case, present without the right to run is 126's, as in a shell.
    #[test]
    fn a_program_is_found_or_named_as_a_shell_would() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        fs::write(&plain, "#!/bin/sh\n").unwrap();
        let folder = directory.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let find = |name: &OsStr| find(name, Some(directory.path().as_os_str()));
        assert_eq!(find("plain".as_ref()), Err(Unfound::NotExecutable));
        assert_eq!(find("folder".as_ref()), Err(Unfound::Absent));
        assert_eq!(find("absent".as_ref()), Err(Unfound::Absent));
        assert_eq!(find("".as_ref()), Err(Unfound::Absent));
        assert_eq!(find(folder.as_os_str()), Err(Unfound::NotExecutable));
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find("plain".as_ref()), Ok(plain.clone()));
        assert_eq!(find(plain.as_os_str()), Ok(plain.clone()));
    }

    /// All children are of one thread, also after a job of it panicked.
    #[test]
    fn one_thread_starts_all_children() {
        let name = || Ok(thread::current().id());
        let first = on_thread_for_life(name).unwrap();
        let failed = on_thread_for_life(|| -> io::Result<()> { panic!("a job that fails") });
        assert!(failed.is_err());
        assert_eq!(on_thread_for_life(name).unwrap(), first);
        assert_ne!(first, thread::current().id());
    }
}
