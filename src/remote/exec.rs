//! A program that the session runs: its start, its streams and its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus};

use crate::wire::link::{
    ExecEnd, ExecId, ExecSignal, ExecSpec, FromHost, OutputKind, StartError, WindowSize,
};

use super::clock::Moment;
use super::launch::{Launching, Plan};
use super::output::{self, Output};
use super::spec::{Around, plan};
use super::stdin::{self, Stdin};
use super::terminal;

/// How long a terminal's last output may take to arrive after its program's end, while other
/// programs still have it open.
const TERMINAL_REST: Duration = Duration::from_millis(200);

/// Where a program stands.
#[derive(Debug)]
enum Stage {
    /// The trampoline has it.
    Launching(Launching),
    /// It runs.
    Running,
    /// It never ran.
    Failed(StartError),
    /// It ended, with what it had written then.
    Ended {
        end: ExecEnd,
        stdout: u64,
        stderr: u64,
    },
}

/// A program.
#[derive(Debug)]
pub struct Exec {
    id: ExecId,
    stage: Stage,
    /// Its process, until it was waited for.
    process: Option<Pid>,
    pid: u32,
    /// Its input.
    pub stdin: Stdin,
    /// What was told of the input: bytes taken, and whether it is closed.
    told: (u64, bool),
    /// Its outputs.
    pub outputs: [Output; 2],
    terminal: Option<Arc<OwnedFd>>,
    /// It has ended; until this moment its terminal's last output is waited for.
    ended: Option<(ExecEnd, Moment)>,
    /// Whether a SIGKILL of its was ours.
    pub killed: bool,
}

/// Our ends and the program's.
struct Streams {
    stdin: Stdin,
    outputs: [Output; 2],
    terminal: Option<Arc<OwnedFd>>,
    theirs: [OwnedFd; 3],
}

fn streams(size: Option<WindowSize>) -> io::Result<Streams> {
    if let Some(size) = size {
        let (ours, theirs) = terminal::open(size)?;
        let ours = Arc::new(ours);
        let (out, err) = (theirs.try_clone()?, theirs.try_clone()?);
        return Ok(Streams {
            stdin: Stdin::new(Some(Arc::clone(&ours)), true),
            outputs: [
                Output::new(OutputKind::Stdout, Some(Arc::clone(&ours))),
                Output::new(OutputKind::Stderr, None),
            ],
            terminal: Some(ours),
            theirs: [theirs, out, err],
        });
    }
    let (stdin, our_stdin) = stdin::pipe()?;
    let (our_stdout, stdout) = output::pipe()?;
    let (our_stderr, stderr) = output::pipe()?;
    Ok(Streams {
        stdin: Stdin::new(Some(Arc::new(our_stdin)), false),
        outputs: [
            Output::new(OutputKind::Stdout, Some(Arc::new(our_stdout))),
            Output::new(OutputKind::Stderr, Some(Arc::new(our_stderr))),
        ],
        terminal: None,
        theirs: [stdin, stdout, stderr],
    })
}

fn exhausted(what: &str, error: &io::Error) -> StartError {
    StartError::Exhausted {
        what: what.to_owned(),
        errno: error.raw_os_error().unwrap_or_default(),
    }
}

impl Exec {
    /// Starts it, or says in its place why not.
    pub fn start(id: ExecId, spec: Option<Box<ExecSpec>>, around: &Around<'_>) -> Self {
        match spec
            .ok_or(StartError::Malformed)
            .and_then(|spec| launch(id, *spec, around))
        {
            Ok(exec) => exec,
            Err(why) => Self {
                id,
                stage: Stage::Failed(why),
                process: None,
                pid: 0,
                stdin: Stdin::new(None, false),
                told: (0, false),
                outputs: [
                    Output::new(OutputKind::Stdout, None),
                    Output::new(OutputKind::Stderr, None),
                ],
                terminal: None,
                ended: None,
                killed: false,
            },
        }
    }

    /// Its process, until it was waited for.
    pub fn process(&self) -> Option<Pid> {
        self.process
    }

    /// What tells that it became its program or cannot.
    pub fn launching(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Launching(launching) => Some(launching.as_fd()),
            _ => None,
        }
    }

    /// Looks whether it became its program; gives what is to be told.
    pub fn look(&mut self) -> Option<FromHost<'static>> {
        let Stage::Launching(launching) = &mut self.stage else {
            return None;
        };
        match launching.outcome()? {
            Ok(()) => self.stage = Stage::Running,
            Err(why) => {
                self.stage = Stage::Failed(why);
                self.close();
            }
        }
        self.start_message()
    }

    /// Whether it started, when that is known.
    fn start_message(&self) -> Option<FromHost<'static>> {
        let exec = self.id;
        match &self.stage {
            Stage::Launching(_) => None,
            Stage::Failed(why) => Some(FromHost::NotStarted {
                exec,
                why: why.clone(),
            }),
            Stage::Running | Stage::Ended { .. } => {
                let pid = self.pid;
                Some(FromHost::Started { exec, pid })
            }
        }
    }

    /// Its process ended. What is to be told comes with [`Self::end_message`].
    pub fn ended(&mut self, status: WaitStatus, out_of_memory: bool) {
        // It was waited for: its pid is nobody's from here on.
        self.process = None;
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExecEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => ExecEnd::Signaled {
                signal: u8::try_from(signal).unwrap_or(u8::MAX),
                out_of_memory,
            },
            (None, None) => return,
        };
        let rest = if self.terminal.is_some() {
            TERMINAL_REST
        } else {
            Duration::ZERO
        };
        self.ended = Some((end, Moment::now().after(rest)));
    }

    /// How it ended, once what it had written until then is known; told once.
    pub fn end_message(&mut self, now: Moment) -> Option<FromHost<'static>> {
        let (end, until) = self.ended?;
        if !matches!(self.stage, Stage::Running) {
            return None;
        }
        let [stdout, stderr] = &self.outputs;
        // A terminal's bytes come a little later; its end, or a moment's patience, is their end.
        if self.terminal.is_some() && !stdout.is_over() && now < until {
            return None;
        }
        self.stage = Stage::Ended {
            end,
            stdout: stdout.written() + stdout.unread(),
            stderr: stderr.written() + stderr.unread(),
        };
        self.exit_message()
    }

    fn exit_message(&self) -> Option<FromHost<'static>> {
        let Stage::Ended {
            end,
            stdout,
            stderr,
        } = self.stage
        else {
            return None;
        };
        Some(FromHost::Exited {
            exec: self.id,
            end,
            stdout,
            stderr,
        })
    }

    /// When [`Self::end_message`] is to be asked again.
    pub fn next(&self) -> Option<Moment> {
        let waits = matches!(self.stage, Stage::Running) && self.terminal.is_some();
        self.ended.map(|(_, until)| until).filter(|_| waits)
    }

    /// One of its outputs.
    pub fn output(&mut self, kind: OutputKind) -> Option<&mut Output> {
        self.outputs.iter_mut().find(|output| output.kind == kind)
    }

    /// Nobody reads an output any more: the pipe breaks for whoever writes on. A terminal stays,
    /// since its input and its size go on.
    pub fn close_output(&mut self, kind: OutputKind) {
        if self.terminal.is_none()
            && let Some(output) = self.output(kind)
        {
            output.close();
        }
    }

    /// Whether its end was told with all that it wrote until then.
    pub fn is_told(&self) -> bool {
        match &self.stage {
            Stage::Launching(_) | Stage::Running => false,
            Stage::Failed(_) => true,
            Stage::Ended { stdout, stderr, .. } => {
                let [out, err] = &self.outputs;
                out.sent() >= *stdout && err.sent() >= *stderr
            }
        }
    }

    /// Everything that was told of it, for a link that may not have heard it.
    pub fn again(&self) -> Vec<FromHost<'static>> {
        let exec = self.id;
        let mut messages = Vec::from_iter(self.start_message());
        let (offset, closed) = self.told;
        if offset > 0 {
            messages.push(FromHost::StdinTaken { exec, offset });
        }
        if closed {
            messages.push(FromHost::StdinClosed { exec });
        }
        messages.extend(self.exit_message());
        messages
    }

    /// What is new of its input.
    pub fn stdin_news(&mut self) -> Vec<FromHost<'static>> {
        let exec = self.id;
        let now = (self.stdin.taken(), self.stdin.is_closed());
        let before = std::mem::replace(&mut self.told, now);
        let mut news = Vec::new();
        if now.0 > before.0 {
            let offset = now.0;
            news.push(FromHost::StdinTaken { exec, offset });
        }
        if now.1 && !before.1 {
            news.push(FromHost::StdinClosed { exec });
        }
        news
    }

    /// Signals its process group; with a terminal, the group in its foreground.
    pub fn signal(&mut self, signal: ExecSignal) {
        let Some(own) = self.process else { return };
        let foreground = self
            .terminal
            .as_ref()
            .and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
        self.killed |= signal == ExecSignal::Kill;
        let signal = raw(signal);
        let group = foreground.unwrap_or(own);
        if rustix::process::kill_process_group(group, signal) == Err(Errno::SRCH) {
            // Before the trampoline made the group there is only the process.
            let _gone = rustix::process::kill_process(own, signal);
        }
    }

    /// Gives its terminal another size.
    pub fn resize(&self, size: WindowSize) {
        if let Some(terminal) = &self.terminal {
            // A terminal that is gone has no size.
            let _gone = terminal::resize(terminal, size);
        }
    }

    /// Closes its streams: who still writes is told so.
    fn close(&mut self) {
        self.stdin.close();
        for output in &mut self.outputs {
            output.close();
        }
        self.terminal = None;
    }
}

fn launch(id: ExecId, spec: ExecSpec, around: &Around<'_>) -> Result<Exec, StartError> {
    let size = spec.terminal;
    let plan: Plan = plan(id, spec, around)?;
    let streams = streams(size).map_err(|error| exhausted("pipes or a terminal", &error))?;
    let [stdin, stdout, stderr] = &streams.theirs;
    let theirs = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let (launching, child) =
        Launching::start(&plan, theirs).map_err(|error| exhausted("a process", &error))?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Exec {
        id,
        stage: Stage::Launching(launching),
        process,
        pid: child.id(),
        stdin: streams.stdin,
        told: (0, false),
        outputs: streams.outputs,
        terminal: streams.terminal,
        ended: None,
        killed: false,
    })
}

/// The signal by its number.
pub fn raw(signal: ExecSignal) -> Signal {
    match signal {
        ExecSignal::Interrupt => Signal::INT,
        ExecSignal::Quit => Signal::QUIT,
        ExecSignal::Terminate => Signal::TERM,
        ExecSignal::HangUp => Signal::HUP,
        ExecSignal::Stop => Signal::TSTP,
        ExecSignal::Continue => Signal::CONT,
        ExecSignal::User1 => Signal::USR1,
        ExecSignal::User2 => Signal::USR2,
        ExecSignal::Kill => Signal::KILL,
    }
}
