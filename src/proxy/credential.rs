//! The real credential: where it comes from, and reading it again when the provider refuses it.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

use crate::clock::SharedClock;
use crate::plain_file::{self, Links};
use crate::secret::{Credential, CredentialKind};

/// Least time between two readings that refusals cause: an agent that provokes refusals cannot
/// make a command run in a loop.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// How long a credential command may take; one that asks a person takes longer and must not be
/// used here.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// Longest credential, with room for what surrounds it; the longest tokens known have a few KiB.
const MAX_BYTES: usize = 64 * 1024;
/// Mode bits that let anybody but the owner near a file.
const OTHERS: u32 = 0o077;
/// What an upstream gets that no credential was named for.
const DUMMY: &[u8] = b"labproxy-dummy-credential";

/// Where a credential comes from.
pub enum CredentialSource {
    /// Read once from the environment or a pipe; cannot be read again.
    Given(Credential),
    /// A file that only its owner can read.
    File {
        /// Its kind.
        kind: CredentialKind,
        /// The file.
        path: PathBuf,
    },
    /// A command that prints it.
    Command {
        /// Its kind.
        kind: CredentialKind,
        /// Program and arguments; run with cwd `/` and a built environment.
        argv: Vec<String>,
    },
    /// A worthless one, for an upstream that no credential was named for.
    Dummy,
}

/// Why there is no credential. Never holds the secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file is readable by others, missing, or holds no credential.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The command failed.
    #[error("the credential command '{program}' {what}")]
    Command {
        /// argv\[0\].
        program: String,
        /// Why.
        what: String,
    },
}

/// The credential of one proxy; single-flight re-reads with a minimum interval.
pub struct CredentialStore {
    /// `None` when it cannot be read again.
    source: Option<Rereadable>,
    clock: SharedClock,
    current: RwLock<Arc<Credential>>,
    /// When it was last read again, by the clock's time since boot. Locked while that happens.
    reread: tokio::sync::Mutex<Option<Duration>>,
}

/// A source that can be asked again.
enum Rereadable {
    File(CredentialKind, PathBuf),
    Command(CredentialKind, Vec<String>),
}

impl std::fmt::Debug for CredentialStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialStore")
    }
}

impl CredentialStore {
    /// Reads the credential for the first time.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn open(
        source: CredentialSource,
        clock: SharedClock,
    ) -> Result<Self, CredentialError> {
        let (source, credential) = match source {
            CredentialSource::Given(credential) => (None, credential),
            CredentialSource::Dummy => (None, dummy()?),
            CredentialSource::File { kind, path } => {
                let source = Rereadable::File(kind, path);
                let credential = source.read().await?;
                (Some(source), credential)
            }
            CredentialSource::Command { kind, argv } => {
                let source = Rereadable::Command(kind, argv);
                let credential = source.read().await?;
                (Some(source), credential)
            }
        };
        Ok(Self {
            source,
            clock,
            current: RwLock::new(Arc::new(credential)),
            reread: tokio::sync::Mutex::new(None),
        })
    }

    /// The credential now.
    pub fn current(&self) -> Arc<Credential> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reads it again after a 401, at most once per interval and once at a time; `None` when it did
    /// not change or cannot be read again.
    pub async fn refreshed(&self, refused: &Arc<Credential>) -> Option<Arc<Credential>> {
        let source = self.source.as_ref()?;
        let mut last = self.reread.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, refused) {
            // Another request has read it while this one waited.
            return Some(current);
        }
        let now = self.clock.since_boot();
        if last.is_some_and(|last| now.saturating_sub(last) < MIN_INTERVAL) {
            return None;
        }
        *last = Some(now);
        let fresh = match source.read().await {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::warn!(%error, "the credential was refused and cannot be read again");
                return None;
            }
        };
        if fresh.expose() == current.expose() {
            return None;
        }
        let fresh = Arc::new(fresh);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        Some(fresh)
    }
}

fn dummy() -> Result<Credential, CredentialError> {
    Credential::new(CredentialKind::ApiKey, Zeroizing::new(DUMMY.to_vec())).map_err(|error| {
        CredentialError::Command {
            program: "dummy".to_owned(),
            what: error.to_string(),
        }
    })
}

impl Rereadable {
    async fn read(&self) -> Result<Credential, CredentialError> {
        match self {
            Self::File(kind, path) => {
                let (kind, path) = (*kind, path.clone());
                let failed = path.clone();
                tokio::task::spawn_blocking(move || read_file(kind, &path))
                    .await
                    .unwrap_or_else(|error| {
                        Err(CredentialError::File {
                            path: failed,
                            what: error.to_string(),
                        })
                    })
            }
            Self::Command(kind, argv) => run_command(*kind, argv).await,
        }
    }
}

fn read_file(kind: CredentialKind, path: &Path) -> Result<Credential, CredentialError> {
    let failed = |what: String| CredentialError::File {
        path: path.to_owned(),
        what,
    };
    let (file, metadata) =
        plain_file::open(path, Links::Follow).map_err(|error| failed(error.to_string()))?;
    if metadata.mode() & OTHERS != 0 {
        return Err(failed(format!(
            "others may use it (mode {:04o}); run `chmod 600` on it",
            metadata.mode() & 0o7777
        )));
    }
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(failed("it belongs to another user".to_owned()));
    }
    // One allocation, so that no copy of the secret is left behind by growing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if bytes.len() >= MAX_BYTES {
        return Err(failed("it is too long to be a credential".to_owned()));
    }
    Credential::new(kind, bytes).map_err(|error| failed(error.to_string()))
}

/// Runs the command away from the workspace: cwd `/`, three variables, nothing on stdin, a process
/// group of its own so that a Ctrl-C in the terminal does not reach it.
async fn run_command(kind: CredentialKind, argv: &[String]) -> Result<Credential, CredentialError> {
    let program = argv.first().cloned().unwrap_or_default();
    let failed = |what: String| CredentialError::Command {
        program: program.clone(),
        what,
    };
    if program.is_empty() {
        return Err(failed("is empty".to_owned()));
    }
    let mut command = tokio::process::Command::new(&program);
    command
        .args(argv.iter().skip(1))
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may print the secret there.
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for name in ["PATH", "HOME", "LANG"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let run = async {
        let mut child = command
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let mut group = CommandGroup::of(&child);
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
        if let Some(stdout) = child.stdout.take() {
            let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
            stdout
                .take(limit)
                .read_to_end(&mut bytes)
                .await
                .map_err(|error| failed(format!("cannot be read: {error}")))?;
        }
        if bytes.len() >= MAX_BYTES {
            return Err(failed("printed too much to be a credential".to_owned()));
        }
        let status = child
            .wait()
            .await
            .map_err(|error| failed(format!("cannot be waited for: {error}")))?;
        group.has_ended();
        if !status.success() {
            return Err(failed(format!("failed ({status})")));
        }
        Ok(bytes)
    };
    let bytes = tokio::time::timeout(COMMAND_LIMIT, run)
        .await
        .map_err(|_| failed(format!("took longer than {} s", COMMAND_LIMIT.as_secs())))??;
    Credential::new(kind, bytes).map_err(|error| failed(format!("printed no credential: {error}")))
}

/// The process group of a credential command; dropping it before the command has ended kills all of
/// it, not only the process that was started.
struct CommandGroup(Option<Pid>);

impl CommandGroup {
    fn of(child: &tokio::process::Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    /// The command was waited for, so its number may soon be another's.
    fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _gone = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::clock::ManualClock;

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::at("2026-12-01T00:00:00Z".parse().unwrap()))
    }

    #[tokio::test]
    async fn t40_a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "sk-ant-canary\n").unwrap();
        for (mode, readable) in [(0o644, false), (0o640, false), (0o600, true), (0o400, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let source = CredentialSource::File {
                kind: CredentialKind::ApiKey,
                path: path.clone(),
            };
            match CredentialStore::open(source, clock()).await {
                Ok(store) => {
                    assert!(readable, "{mode:o}");
                    assert_eq!(store.current().expose(), b"sk-ant-canary");
                }
                Err(error) => {
                    assert!(!readable, "{mode:o}: {error}");
                    assert!(error.to_string().contains("chmod 600"), "{error}");
                    assert!(!error.to_string().contains("canary"), "{error}");
                }
            }
        }
    }

    /// A command that counts its runs in a file and prints a new credential each time.
    fn counting(directory: &Path) -> (CredentialSource, PathBuf) {
        let runs = directory.join("runs");
        let script = format!(
            "pwd >> {0}; env | cut -d= -f1 | sort | tr '\\n' ' ' > {0}.env; \
             echo key-$(wc -l < {0})",
            runs.display()
        );
        let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        let source = CredentialSource::Command {
            kind: CredentialKind::Oauth,
            argv,
        };
        (source, runs)
    }

    #[tokio::test]
    async fn t40_a09_fifty_parallel_refusals_run_the_command_once() {
        let directory = tempfile::tempdir().unwrap();
        let (source, runs) = counting(directory.path());
        let clock = clock();
        let store = Arc::new(CredentialStore::open(source, clock.clone()).await.unwrap());
        let refused = store.current();
        assert_eq!(refused.expose(), b"key-1");
        let refresh = |refused: Arc<Credential>| {
            let store = store.clone();
            async move { store.refreshed(&refused).await }
        };
        let all = futures_util::future::join_all((0..50).map(|_| refresh(refused.clone()))).await;
        for fresh in all {
            assert_eq!(fresh.unwrap().expose(), b"key-2");
        }
        // Within the interval the new one's refusal does not run it again; afterwards it does.
        let second = store.current();
        assert!(refresh(second.clone()).await.is_none());
        clock.advance(Duration::from_secs(30));
        assert_eq!(refresh(second).await.unwrap().expose(), b"key-3");
        let runs_seen = std::fs::read_to_string(&runs).unwrap();
        assert_eq!(runs_seen, "/\n/\n/\n", "cwd is / at each of three runs");
        let names = std::fs::read_to_string(directory.path().join("runs.env")).unwrap();
        for name in names.split_whitespace() {
            // The shell adds the last three itself.
            let known = ["PATH", "HOME", "LANG", "PWD", "SHLVL", "_", "OLDPWD"];
            assert!(known.contains(&name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_or_prints_nothing_or_too_much_is_an_error() {
        for (script, says) in [
            ("exit 3", "failed"),
            ("true", "printed no credential"),
            ("head -c 70000 /dev/zero", "printed too much"),
        ] {
            let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
            let source = CredentialSource::Command {
                kind: CredentialKind::ApiKey,
                argv,
            };
            let error = CredentialStore::open(source, clock()).await.unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    /// A command that is given up, as one that takes too long, takes what it started with it.
    #[tokio::test]
    async fn a_command_that_is_given_up_leaves_no_process() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 605 & echo $! > {}; wait", file.display());
        let argv = ["/bin/sh", "-c", &script].map(str::to_owned);
        let started = async {
            loop {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                if let Some(pid) = text.strip_suffix('\n') {
                    return pid.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let pid = tokio::select! {
            _ended = run_command(CredentialKind::ApiKey, &argv) => panic!("it ended by itself"),
            pid = tokio::time::timeout(Duration::from_mins(1), started) => pid.unwrap(),
        };
        let state = format!("/proc/{pid}/stat");
        let gone = async {
            // Nobody may be there to wait for it, so a zombie counts as gone.
            while std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), gone)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_given_credential_cannot_be_read_again() {
        let given = Credential::new(
            CredentialKind::ApiKey,
            Zeroizing::new(b"sk-ant-given".to_vec()),
        );
        let source = CredentialSource::Given(given.unwrap());
        let store = CredentialStore::open(source, clock()).await.unwrap();
        assert!(store.refreshed(&store.current()).await.is_none());
    }
}
