//! The rsync of this machine as a child: started, fed, heard, and ended.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use super::{Moved, Rsync, RsyncError, Where};
use crate::child::{self, ChildCommand, ChildSession, CoreLimit, ProcessLimits};

/// How long it may take to say its version: the probe time of all parts.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that are kept of each of its outputs: of standard output the last, of standard error the
/// first.
const OUTPUT_MAX: usize = 16 * 1024;
/// Lines of its standard error that are told on.
const LINES_MAX: usize = 10;
/// What it ends with when files of the list were not there, or changed: what is missing is found by
/// its hash.
const SOME_MISSING: [i32; 2] = [23, 24];

/// An rsync that runs. Dropped before its end, it is killed, with what it started.
pub(super) struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            // It has a session of its own, and so a group.
            let _gone = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Rsync {
    /// Starts it in a directory.
    pub(super) fn start(&self, argv: &[OsString], directory: &Path) -> Result<Running, RsyncError> {
        let command = ChildCommand {
            trampoline: &self.trampoline,
            program: &self.program,
            argv,
            session: ChildSession::Own,
            core: CoreLimit::Kept,
            limits: ProcessLimits::default(),
        };
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let mut command = command.prepare(environment);
        command.current_dir(directory);
        let child = child::spawn_piped(command).map_err(|error| RsyncError::Here {
            what: "rsync cannot be started",
            error,
        })?;
        Ok(Running { child })
    }

    /// What it prints of itself.
    pub(super) async fn version(&self) -> Result<String, RsyncError> {
        let absent = |why: String| RsyncError::Absent {
            at: Where::Here,
            why,
        };
        let argv = ["rsync", "--version"].map(OsString::from);
        let mut running = self.start(&argv, Path::new("/"))?;
        let ended = tokio::time::timeout(VERSION_LIMIT, running.end(Vec::new())).await;
        let ended = ended.map_err(|_| absent("it does not answer".to_owned()))??;
        match ended.status {
            Some(0) => Ok(ended.stdout_begin),
            _ => Err(absent(ended.said.join("; "))),
        }
    }
}

/// How it ended.
pub(super) struct Ended {
    status: Option<i32>,
    stdout_begin: String,
    stdout_end: String,
    said: Vec<String>,
}

impl Running {
    /// Feeds it, reads what it says, and waits for its end.
    pub(super) async fn end(&mut self, input: Vec<u8>) -> Result<Ended, RsyncError> {
        let (stdin, stdout, stderr) = (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        );
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // When it ends early, its status says so.
                let _ended = stdin.write_all(&input).await;
            }
        };
        let ((), stdout, stderr, status) =
            tokio::join!(feed, read(stdout), read(stderr), self.child.wait());
        let status = status.map_err(|error| RsyncError::Here {
            what: "rsync cannot be waited for",
            error,
        })?;
        let lines = stderr.begin.lines().filter(|line| !line.is_empty());
        Ok(Ended {
            status: status.code(),
            said: lines.take(LINES_MAX).map(str::to_owned).collect(),
            stdout_begin: stdout.begin,
            stdout_end: stdout.end,
        })
    }
}

impl Ended {
    /// What it moved; files that it did not find are looked for by whoever asked.
    pub(super) fn moved(self) -> Result<Moved, RsyncError> {
        let status = self.status;
        if status != Some(0) && !status.is_some_and(|status| SOME_MISSING.contains(&status)) {
            let said = self.said;
            return Err(RsyncError::Ended { status, said });
        }
        Ok(Moved {
            literal: literal(&self.stdout_end),
            said: self.said,
        })
    }
}

/// How many bytes of contents were sent, from what `--stats` prints.
fn literal(stats: &str) -> Option<u64> {
    let mut lines = stats.lines().rev();
    let number = lines.find_map(|line| line.strip_prefix("Literal data: "))?;
    number.strip_suffix(" bytes")?.parse().ok()
}

/// The first and the last of what came.
#[derive(Default)]
struct Said {
    begin: String,
    end: String,
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Said {
    let Some(mut pipe) = pipe else {
        return Said::default();
    };
    let (mut begin, mut end, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
    // An error ends it as its end does.
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let part = buffer.get(..count).unwrap_or_default();
        let room = OUTPUT_MAX.saturating_sub(begin.len());
        begin.extend(part.iter().take(room));
        end.extend_from_slice(part);
        let more = end.len().saturating_sub(OUTPUT_MAX);
        end.drain(..more);
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said {
        begin: text(begin),
        end: text(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_read_from_the_statistics() {
        let stats = "skipping non-regular file \"Literal data: 7 bytes\"\n\
                     Total file size: 12 bytes\nLiteral data: 3000010 bytes\n\
                     Matched data: 0 bytes\n";
        assert_eq!(literal(stats), Some(3_000_010));
        assert_eq!(literal("Literal data: 3,000 bytes\n"), None);
        assert_eq!(literal(""), None);
    }
}
