//! Small commands on the host through the tunnel, and the way of a large file there: its link may be lost
//! and come back meanwhile, like that of any program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::escape::escape;
use crate::report::{Failure, FailureKind, tell};
use crate::session::carry::INHERITED;
use crate::session::remote::not_started::not_started;
use crate::session::shim::script::version_line;
use crate::tunnel::exec::{Status, Stdio};
use crate::tunnel::session::Launches;
use crate::wire::bytes::ByteString;
use crate::wire::digits::Digits;
use crate::wire::link::{Endpoints, ExecEnd, ExecSignal, ExecSpec};

/// For a command that looks at something: the host may have to read 400 MB from a slow disk.
const LOOK: Duration = Duration::from_mins(1);
/// How long the way of a program may stand still: a lost link is made again within a lease, and a disk
/// that takes nothing for so long is broken. How long it takes in all is the line's matter.
const STILL: Duration = Duration::from_mins(5);
/// Output of such a command that is kept.
const OUTPUT_MAX: usize = 4 * 1024;
/// So much is read at once of the file that is sent.
const READ_BYTES: usize = 1024 * 1024;

/// Whether the file is there, as it should be: its directory, its digest.
const CHECK: &str = r#"
[ -O "$1" ] && [ ! -L "$1" ] && [ -x "$1/claude-$2" ] || exit 1
sum=$(sha256sum < "$1/claude-$2") || exit 2
[ "${sum%% *}" = "$2" ] && touch "$1/claude-$2"
"#;
/// Takes the file from standard input, and gives it its name when it is whole. What no session has used
/// for a month goes away.
const RECEIVE: &str = r#"
umask 077
mkdir -p "$1" || exit 1
[ -O "$1" ] && [ ! -L "$1" ] || { echo "$1 belongs to somebody else" >&2; exit 1; }
chmod 700 "$1" || exit 1
find "$1" -name 'claude-*' -mtime +30 -exec rm -f {} +
find "$1" -name '.new-*' -mtime +1 -exec rm -f {} +
new=$(mktemp "$1/.new-XXXXXXXX") || exit 1
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
cat > "$new" || exit 1
sum=$(sha256sum < "$new") || exit 1
[ "${sum%% *}" = "$2" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
chmod 700 "$new" && mv -f "$new" "$1/claude-$2"
"#;

/// Runs commands of ours on the host.
pub struct HostShell<'a> {
    /// The way there.
    pub launches: &'a Launches,
    /// The host, as the user names it.
    pub host: &'a str,
    /// The session's directory there, absolute.
    pub session_directory: &'a ByteString,
    /// Whether somebody watches: then long work shows how far it is.
    pub shows_progress: bool,
}

/// How long a command may take.
enum Patience {
    /// This long.
    Whole(Duration),
    /// As long as it goes on: this counts what was sent to it.
    While(Arc<AtomicU64>),
}

impl Patience {
    /// What comes in time; else for how long nothing came.
    async fn wait<T>(&self, coming: impl Future<Output = T>) -> Result<T, Duration> {
        let limit = match self {
            Self::Whole(limit) => *limit,
            Self::While(_) => STILL,
        };
        let mut seen = None;
        tokio::pin!(coming);
        loop {
            if let Ok(come) = tokio::time::timeout(limit, &mut coming).await {
                return Ok(come);
            }
            let now = match self {
                Self::Whole(_) => return Err(limit),
                Self::While(sent) => Some(sent.load(Ordering::Relaxed)),
            };
            if seen == now {
                return Err(limit);
            }
            seen = now;
        }
    }
}

/// What a command left.
struct Ran {
    end: Result<u8, String>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ran {
    fn said(&self) -> String {
        match (&self.end, self.stderr.trim_ascii()) {
            (Err(why), _) => why.clone(),
            (Ok(status), b"") => format!("exit status {status}"),
            (Ok(_), said) => escape(said),
        }
    }
}

impl HostShell<'_> {
    /// What `uname -m` says there.
    pub(super) async fn machine(&self) -> Result<String, Failure> {
        let ran = self
            .sh("uname -m", &[], None, Patience::Whole(LOOK))
            .await?;
        let machine = escape(ran.stdout.trim_ascii());
        if ran.end == Ok(0) && !machine.is_empty() {
            return Ok(machine);
        }
        Err(Failure::failed(format!(
            "what kind of machine {} is cannot be learned: {}",
            self.host,
            ran.said()
        )))
    }

    /// Sends a program, unless it is there, and gives its path.
    pub(super) async fn send(&self, program: &Path) -> Result<ByteString, Failure> {
        let unreadable = |error: &io::Error| {
            Failure::because(format!("{} cannot be read", program.display()), error)
        };
        let path = program.to_owned();
        let read = tokio::task::spawn_blocking(move || digest(&path)).await;
        let (digest, length) = read
            .map_err(io::Error::other)
            .flatten()
            .map_err(|error| unreadable(&error))?;
        let directory = self.directory()?;
        let arguments = [directory.clone(), ByteString::from(&digest)];
        let there = self
            .sh(CHECK, &arguments, None, Patience::Whole(LOOK))
            .await?;
        if there.end != Ok(0) {
            let file = File::open(program).map_err(|error| unreadable(&error))?;
            let sent = Arc::<AtomicU64>::default();
            let patience = Patience::While(Arc::clone(&sent));
            let source = Progress {
                file,
                sent,
                length,
                shown: None,
                host: self.shows_progress.then(|| self.host.to_owned()),
            };
            let sent = self
                .sh(RECEIVE, &arguments, Some(Box::new(source)), patience)
                .await?;
            if sent.end != Ok(0) {
                return Err(Failure::failed(format!(
                    "the agent's program {} cannot be sent to {}: {}",
                    program.display(),
                    self.host,
                    sent.said()
                ))
                .hint(format!(
                    "it needs {} MB in {} there, and sha256sum",
                    length / 1_000_000,
                    escape(directory.as_bytes())
                )));
            }
        }
        let path = [directory.as_bytes(), b"/claude-", digest.as_bytes()].concat();
        Ok(ByteString::from(OsStr::from_bytes(&path)))
    }

    /// `<workdir>/bin`, two above the session's directory and in.
    fn directory(&self) -> Result<ByteString, Failure> {
        let session = self.session_directory.to_path_buf();
        let workdir = session.ancestors().nth(2);
        workdir
            .map(|workdir| ByteString::from(&workdir.join("bin")))
            .ok_or_else(|| Failure::failed(format!("{} has no directory for sessions", self.host)))
    }

    /// Runs a text of `sh` with arguments.
    async fn sh(
        &self,
        text: &str,
        arguments: &[ByteString],
        stdin: Option<Box<dyn Read + Send>>,
        patience: Patience,
    ) -> Result<Ran, Failure> {
        let words = ["sh", "-c", text, "sh"].map(ByteString::from);
        let spec = ExecSpec {
            program: ByteString::from("/bin/sh"),
            argv: words.iter().chain(arguments).cloned().collect(),
            environment: vec![(ByteString::from("LC_ALL"), ByteString::from("C"))],
            ..bare()
        };
        self.run(&spec, stdin, patience).await
    }

    /// Runs a program to its end.
    async fn run(
        &self,
        spec: &ExecSpec,
        stdin: Option<Box<dyn Read + Send>>,
        patience: Patience,
    ) -> Result<Ran, Failure> {
        let (stdout, stderr) = (Kept::default(), Kept::default());
        let streams = Stdio {
            stdin,
            stdout: Box::new(stdout.clone()),
            stderr: Box::new(stderr.clone()),
        };
        let mut exec = self.launches.launch(spec, streams).map_err(|error| {
            Failure::because(format!("nothing can be run on {}", self.host), &error)
        })?;
        let status = match patience.wait(exec.ended()).await {
            Ok(status) => status,
            Err(limit) => {
                let (signal, what) = match patience {
                    Patience::Whole(_) => {
                        (ExecSignal::Kill, "took longer for a short command than")
                    }
                    // It removes what it left half done; if not, the session's end kills it.
                    Patience::While(_) => {
                        (ExecSignal::Terminate, "took nothing of what was sent for")
                    }
                };
                exec.signal(signal);
                return Err(
                    Failure::failed(format!("{} {what} {} s", self.host, limit.as_secs()))
                        .hint("see whether its disk works: 'labproxy host check' asks for it"),
                );
            }
        };
        let end = match status {
            Status::Ended(ExecEnd::Exited(status)) => Ok(status),
            Status::Ended(ExecEnd::Signaled { signal, .. }) => {
                Err(format!("signal {signal} ended it"))
            }
            Status::NotStarted(why) => {
                let name = escape(spec.program.as_bytes());
                return Err(not_started(&name, self.host, &why));
            }
            Status::Lost(error) => return Err(error.failure(self.host)),
            Status::Starting | Status::Running { .. } => Err("it did not end".to_owned()),
        };
        Ok(Ran {
            end,
            stdout: stdout.take(),
            stderr: stderr.take(),
        })
    }
}

/// What the CLI on the host answers to `--version`.
///
/// # Errors
/// When it is not there (127), cannot be run (126), or answers something else.
pub async fn version(
    shell: &HostShell<'_>,
    program: &ByteString,
    argv: &[ByteString],
) -> Result<String, Failure> {
    let option = ByteString::from("--version");
    let spec = ExecSpec {
        program: program.clone(),
        argv: argv.iter().chain([&option]).cloned().collect(),
        ..bare()
    };
    let hint = "put Claude Code's Linux program here (the Python package claude-agent-sdk or the npm \
                package @anthropic-ai/claude-code brings it, and labproxy sends it), install it on \
                the host, or set agent.binary";
    let ran = shell.run(&spec, None, Patience::Whole(LOOK)).await;
    let ran = ran.map_err(|failure| failure.hint(hint))?;
    if ran.end != Ok(0) {
        return Err(Failure::new(
            FailureKind::NotExecutable,
            format!(
                "'{} --version' fails on {}: {}",
                escape(program.as_bytes()),
                shell.host,
                ran.said()
            ),
        )
        .hint(hint));
    }
    version_line(&ran.stdout)
}

/// A launch of nothing yet, in the session's directory.
fn bare() -> ExecSpec {
    let nothing = || ByteString::from("");
    ExecSpec {
        program: nothing(),
        argv: Vec::new(),
        environment: Vec::new(),
        inherit: INHERITED.iter().copied().map(ByteString::from).collect(),
        directory: ByteString::from("."),
        files: Vec::new(),
        terminal: None,
        endpoints: Endpoints {
            port: nothing(),
            socket: nothing(),
            session_directory: nothing(),
        },
    }
}

/// SHA-256 of a file as hexadecimal digits, and its length.
fn digest(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut length = 0_u64;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(buffer.get(..count).unwrap_or_default());
        length = length.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok((Digits(&hash.finalize()).to_string(), length))
}

/// The first bytes of an output.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OUTPUT_MAX.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that shows how much of it was read.
struct Progress {
    file: File,
    sent: Arc<AtomicU64>,
    length: u64,
    shown: Option<u64>,
    /// Where it goes, when somebody watches.
    host: Option<String>,
}

impl Read for Progress {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let more = u64::try_from(count).unwrap_or(u64::MAX);
        let sent = self.sent.fetch_add(more, Ordering::Relaxed);
        let sent = sent.saturating_add(more);
        let percent = sent.saturating_mul(100) / self.length.max(1);
        if let Some(host) = &self.host
            && self.shown != Some(percent)
        {
            self.shown = Some(percent);
            let end = if sent >= self.length { "\n" } else { "" };
            tell(&format!(
                "\rlabproxy: sending the agent's program to {host}, {} MB: {percent} %{end}",
                self.length / 1_000_000
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn sh(text: &str, directory: &Path, digest: &str, stdin: &Path) -> Option<i32> {
        let mut command = Command::new("/bin/sh");
        let command = command.args(["-c", text, "sh"]).arg(directory).arg(digest);
        let stdin = File::open(stdin).unwrap();
        command.stdin(stdin).status().unwrap().code()
    }

    /// What is sent slowly is waited for, however long it takes; what stands still is not.
    #[tokio::test(start_paused = true)]
    async fn a_transfer_has_time_as_long_as_it_goes_on() {
        let sent = Arc::<AtomicU64>::default();
        let patience = Patience::While(Arc::clone(&sent));
        let slow = async {
            for _ in 0..50 {
                tokio::time::sleep(STILL / 2).await;
                sent.fetch_add(1, Ordering::Relaxed);
            }
        };
        assert_eq!(patience.wait(slow).await, Ok(()));
        let begun = tokio::time::Instant::now();
        let never = patience.wait(std::future::pending::<()>());
        assert_eq!(never.await, Err(STILL));
        assert!(begun.elapsed() <= STILL * 2, "{:?}", begun.elapsed());
        let whole = Patience::Whole(LOOK).wait(std::future::pending::<()>());
        assert_eq!(whole.await, Err(LOOK));
    }

    /// The file is taken when it is whole, found again, and taken anew when it was altered; what arrives
    /// damaged leaves nothing; another's directory is not used.
    #[test]
    fn a_program_is_kept_by_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("program");
        std::fs::write(&here, "#!/bin/sh\necho hello\n").unwrap();
        let (digest, length) = digest(&here).unwrap();
        assert_eq!((digest.len(), length), (64, 21));
        let bin = folder.path().join("work dir/bin");
        let there = bin.join(format!("claude-{digest}"));
        let none = Path::new("/dev/null");
        assert_eq!(sh(CHECK, &bin, &digest, none), Some(1));
        assert_eq!(sh(RECEIVE, &bin, &digest, none), Some(1), "cut short");
        assert_eq!(std::fs::read_dir(&bin).unwrap().count(), 0);
        assert_eq!(sh(RECEIVE, &bin, &digest, &here), Some(0));
        assert_eq!(sh(CHECK, &bin, &digest, none), Some(0));
        let ran = Command::new(&there).output().unwrap();
        assert_eq!(ran.stdout, b"hello\n");
        std::fs::write(&there, "#!/bin/sh\necho altered\n").unwrap();
        assert_eq!(sh(CHECK, &bin, &digest, none), Some(1));
        assert_eq!(sh(RECEIVE, &bin, &digest, &here), Some(0));
        assert_eq!(sh(CHECK, &bin, &digest, none), Some(0));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&bin, &link).unwrap();
        assert_eq!(sh(CHECK, &link, &digest, none), Some(1));
        assert_eq!(sh(RECEIVE, &link, &digest, &here), Some(1));
    }
}
