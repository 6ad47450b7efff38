//! Running a program of the host's for what it prints, never for longer than a limit.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::remote::clock::{Moment, patience};

/// How long a program may take: the probe time of all parts.
pub(in crate::remote) const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// How long a killed program may take to go; after that it waits for a device and is left alone.
const REAP_LIMIT: Duration = Duration::from_millis(500);
/// How long what it started may go on holding its outputs open.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);
/// Between two looks at a child, of which nothing tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most that is kept of an output: a GPU's line has 60 bytes.
const OUTPUT_MAX: usize = 64 * 1024;
/// Most of what a program said that is told on.
const WHY_MAX: usize = 200;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::remote) enum Probed {
    /// It ended with status 0 and printed this.
    Said(String),
    /// There is no such program.
    Absent,
    /// It did not do its work.
    Failed(String),
}

/// Runs `program`, which reads from `stdin`.
pub(in crate::remote) fn run(
    program: &str,
    arguments: &[&str],
    stdin: Stdio,
    limit: Duration,
) -> Probed {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir("/")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Probed::Absent,
        Err(error) => return Probed::Failed(format!("it cannot be run: {error}")),
    };
    // The command's own copy of `stdin` goes: a lock in it is the child's alone.
    drop(command);
    let mut outputs = [
        Output::new(child.stdout.take().map(OwnedFd::from)),
        Output::new(child.stderr.take().map(OwnedFd::from)),
    ];
    match watch(&mut child, &mut outputs, limit) {
        Ok(Some(status)) => judge(status, &outputs),
        Ok(None) => {
            let gone = end(&mut child);
            let stuck = if gone { "" } else { ", and cannot be killed" };
            Probed::Failed(format!("no answer within {} s{stuck}", limit.as_secs()))
        }
        Err(error) => {
            end(&mut child);
            Probed::Failed(format!("it cannot be watched: {error}"))
        }
    }
}

struct Output {
    pipe: Option<File>,
    kept: Vec<u8>,
}

impl Output {
    fn new(pipe: Option<OwnedFd>) -> Self {
        Self {
            pipe: pipe.map(File::from),
            kept: Vec::new(),
        }
    }

    /// Takes what is there; what is beyond the most that is kept is dropped.
    fn take(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let length = match io::Read::read(pipe, &mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        if length == 0 {
            self.pipe = None;
        }
        let room = OUTPUT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(buffer.iter().take(length.min(room)));
        Ok(())
    }
}

/// Reads its outputs until it has ended; `None` when that takes too long.
fn watch(
    child: &mut Child,
    outputs: &mut [Output; 2],
    limit: Duration,
) -> io::Result<Option<ExitStatus>> {
    let mut until = Moment::now().after(limit);
    let mut ended = None;
    loop {
        if ended.is_none() {
            ended = child.try_wait()?;
            if ended.is_some() {
                until = Moment::now().after(DRAIN_LIMIT);
            }
        }
        let is_open = outputs.iter().any(|output| output.pipe.is_some());
        if (ended.is_some() && !is_open) || Moment::now() >= until {
            return Ok(ended);
        }
        for at in readable(outputs)? {
            if let Some(output) = outputs.get_mut(at) {
                output.take()?;
            }
        }
    }
}

/// Which outputs can be read, after a short while at most.
fn readable(outputs: &[Output; 2]) -> io::Result<Vec<usize>> {
    let open: Vec<(usize, &File)> = outputs
        .iter()
        .enumerate()
        .filter_map(|(at, output)| Some((at, output.pipe.as_ref()?)))
        .collect();
    let mut polled: Vec<PollFd<'_>> = open
        .iter()
        .map(|(_, pipe)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
        .collect();
    let now = Moment::now();
    match poll(&mut polled, Some(&patience(now, now.after(LOOK_EVERY)))) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = open.iter().zip(&polled);
    Ok(ready
        .filter(|(_, polled)| !polled.revents().is_empty())
        .map(|((at, _), _)| *at)
        .collect())
}

/// Kills it and what it started; whether it went. What waits for a device goes later, or never.
fn end(child: &mut Child) -> bool {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It was not waited for, so the group is still its own.
        let _gone_already = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let until = Moment::now().after(REAP_LIMIT);
    while Moment::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}

fn judge(status: ExitStatus, outputs: &[Output; 2]) -> Probed {
    let [stdout, stderr] = outputs;
    if status.success() {
        return match String::from_utf8(stdout.kept.clone()) {
            Ok(text) => Probed::Said(text),
            Err(_) => Probed::Failed("what it printed is not text".to_owned()),
        };
    }
    let said = [stderr, stdout]
        .iter()
        .find_map(|output| last_line(&output.kept));
    let said = said.map_or_else(String::new, |line| format!(": {line}"));
    Probed::Failed(format!("{status}{said}"))
}

/// The last line that says something.
fn last_line(kept: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(kept);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(line.chars().take(WHY_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Probed {
        run("/bin/sh", &["-c", script], Stdio::null(), limit)
    }

    /// Only status 0 is an answer; everything else says why.
    #[test]
    fn only_status_0_is_an_answer() {
        let said = |text: &str| Probed::Said(text.to_owned());
        let failed = |text: &str| Probed::Failed(text.to_owned());
        assert_eq!(sh("echo yes; echo no >&2", PROBE_LIMIT), said("yes\n"));
        assert_eq!(
            sh("echo out; echo 'no engine' >&2; exit 1", PROBE_LIMIT),
            failed("exit status: 1: no engine")
        );
        assert_eq!(sh("exit 3", PROBE_LIMIT), failed("exit status: 3"));
        assert_eq!(
            sh("printf '\\377'", PROBE_LIMIT),
            failed("what it printed is not text")
        );
        let absent = run("/absent/program", &[], Stdio::null(), PROBE_LIMIT);
        assert_eq!(absent, Probed::Absent);
    }

    /// A program that hangs is ended at the limit, with what it started; one that leaves a child
    /// with its outputs behind does not hold anybody up.
    #[test]
    fn a_program_that_hangs_is_ended_at_the_limit() {
        let began = std::time::Instant::now();
        let limit = Duration::from_millis(100);
        assert_eq!(
            sh("sleep 1000 & wait", limit),
            Probed::Failed("no answer within 0 s".to_owned())
        );
        assert_eq!(
            sh("sleep 2 & echo done", PROBE_LIMIT),
            Probed::Said("done\n".to_owned())
        );
        assert!(began.elapsed() < Duration::from_secs(2), "nobody waited");
    }

    /// A flood is cut, and does not block the program.
    #[test]
    fn a_flood_is_cut() {
        let Probed::Said(text) = sh("head -c 1000000 /dev/zero", PROBE_LIMIT) else {
            panic!("it ends well")
        };
        assert_eq!(text.len(), OUTPUT_MAX);
    }
}
