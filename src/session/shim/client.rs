//! The shim's own process: carries its command line, standard streams and signals to the session and
//! ends as the remote program ends. It has no terminal semantics: the program on the host gets
//! three pipes.
//!
//! When it is killed its socket closes, and the session ends the program.

use std::ffi::OsString;
use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::frames::{Receiver, Sender, Window};
use super::{ONLY, PART};
use crate::escape::escape_line;
use crate::report::{Exit, Failure, Job, tell};
use crate::session::remote::not_started::not_started;
use crate::table::Style;
use crate::wire::bytes::ByteString;
use crate::wire::frame;
use crate::wire::link::{
    Endpoints, ExecEnd, ExecSignal, ExecSpec, FromHost, OutputKind, Refusal, ToHost,
};

/// Signals that go on to the program.
const PASSED: [(Signal, ExecSignal); 6] = [
    (Signal::HUP, ExecSignal::HangUp),
    (Signal::INT, ExecSignal::Interrupt),
    (Signal::QUIT, ExecSignal::Quit),
    (Signal::TERM, ExecSignal::Terminate),
    (Signal::USR1, ExecSignal::User1),
    (Signal::USR2, ExecSignal::User2),
];

/// How the shim ends.
enum End {
    Exited(u8),
    Signaled(i32),
    /// labproxy's own failure: the status and lines for standard error.
    Failed(u8, String),
}

/// Runs the shim: `arguments` are the session's socket and then the program's own.
pub fn run(arguments: &[OsString], environment: &[(OsString, OsString)]) -> Exit {
    let Some((socket, arguments)) = arguments.split_first() else {
        tell("labproxy: the shim got no socket\n");
        return Failure::usage("").exit(Job::Program);
    };
    let socket = Path::new(socket);
    match try_run(socket, arguments, environment) {
        Ok(End::Exited(status)) => Exit(status),
        Ok(End::Signaled(signal)) => Exit(end_by(signal)),
        Ok(End::Failed(status, lines)) => {
            tell_lines(&lines);
            Exit(status)
        }
        Err(failure) => {
            tell_lines(&failure.render(Style::Plain));
            failure.exit(Job::Program)
        }
    }
}

/// Tells whose failure it is: the reader thinks of this process as the CLI.
fn tell_lines(lines: &str) {
    let lines = lines.lines().map(|line| format!("{}\n", escape_line(line)));
    tell(&format!("labproxy: {}", lines.collect::<String>()));
}

/// A failure as the end.
fn failed(failure: &Failure) -> End {
    let Exit(status) = failure.exit(Job::Program);
    End::Failed(status, failure.render(Style::Plain))
}

/// Ends this process by a signal, as the program ended; gives the status for when that fails.
fn end_by(signal: i32) -> u8 {
    let _still_here = signal_hook::low_level::emulate_default_handler(signal);
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}

fn try_run(
    socket: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> Result<End, Failure> {
    let directory = std::env::current_dir()
        .map_err(|error| Failure::because("the working directory is gone", &error))?;
    let stream = UnixStream::connect(socket).map_err(|error| {
        Failure::because("the session of this shim does not run any more", &error)
            .hint("start it again with 'labproxy session start --host … --shim FILE'")
    })?;
    let broken = |error: io::Error| Failure::because("the session cannot be spoken to", &error);
    let receiver = Receiver::new(stream.try_clone().map_err(broken)?);
    let sender = Arc::new(Sender::new(stream));
    // Before anything is started, so that no signal ends the shim alone.
    pass_signals(&sender).map_err(broken)?;
    ask(&sender, arguments, environment, &directory).map_err(broken)?;
    converse(receiver, &sender).map_err(broken)
}

/// Says what is wanted.
fn ask(
    sender: &Sender,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    directory: &Path,
) -> io::Result<()> {
    let nothing = || ByteString::from("");
    let spec = ExecSpec {
        program: nothing(),
        argv: arguments.iter().map(ByteString::from).collect(),
        environment: environment
            .iter()
            .map(|(name, value)| (ByteString::from(name), ByteString::from(value)))
            .collect(),
        inherit: Vec::new(),
        directory: ByteString::from(directory),
        files: Vec::new(),
        terminal: None,
        endpoints: Endpoints {
            port: nothing(),
            socket: nothing(),
            session_directory: nothing(),
        },
    };
    let encoded = postcard::to_allocvec(&spec).map_err(io::Error::other)?;
    let mut offset = 0_u64;
    for part in encoded.chunks(PART) {
        sender.send(&ToHost::Spec {
            exec: ONLY,
            offset,
            part: part.into(),
        })?;
        offset = offset.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
    }
    sender.send(&ToHost::Start {
        exec: ONLY,
        length: offset,
    })
}

/// Sends signals on, each from a thread that waits for it.
fn pass_signals(sender: &Arc<Sender>) -> io::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    for (number, signal) in PASSED {
        let (mut read, write) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(number.as_raw(), write)?;
        let (sender, count) = (Arc::clone(sender), Arc::clone(&count));
        thread::Builder::new()
            .name("signal".to_owned())
            .spawn(move || {
                while read.read_exact(&mut [0]).is_ok() {
                    let number = count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                    let _gone = sender.send(&ToHost::Signal {
                        exec: ONLY,
                        number,
                        signal,
                    });
                }
            })?;
    }
    Ok(())
}

/// Moves the streams until the program has ended.
fn converse(receiver: Receiver, sender: &Arc<Sender>) -> io::Result<End> {
    let stdin = Arc::new(Window::default());
    spawn("stdin", {
        let (sender, window) = (Arc::clone(sender), Arc::clone(&stdin));
        move || send_stdin(&sender, &window)
    })?;
    let out = Output::start(OutputKind::Stdout, io::stdout(), sender)?;
    let err = Output::start(OutputKind::Stderr, io::stderr(), sender)?;
    let end = listen(receiver, &stdin, &out.chunks, &err.chunks);
    // What came is written before the end is shown.
    out.finish();
    err.finish();
    Ok(end)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Sends what comes on standard input, within the window.
fn send_stdin(sender: &Sender, window: &Window) {
    let mut offset = 0_u64;
    let mut buffer = vec![0; PART];
    while let Some(room) = window.room(offset) {
        let Some(part) = buffer.get_mut(..room.min(PART)) else {
            return;
        };
        let count = match read_stdin(part) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let sent = sender.send(&ToHost::Stdin {
            exec: ONLY,
            offset,
            bytes: buffer.get(..count).unwrap_or_default().into(),
        });
        if sent.is_err() {
            return;
        }
        offset = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    let _gone = sender.send(&ToHost::StdinEnd {
        exec: ONLY,
        length: offset,
    });
}

/// Reads standard input without a buffer of its own, also when it does not block, as a socket that
/// a caller shares with us.
fn read_stdin(part: &mut [u8]) -> io::Result<usize> {
    let stdin = rustix::stdio::stdin();
    loop {
        match rustix::io::read(stdin, &mut *part) {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_for(&stdin, PollFlags::IN)?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for(stream: &impl std::os::fd::AsFd, what: PollFlags) -> io::Result<()> {
    let mut polled = [PollFd::new(stream, what)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One of the shim's outputs, with a thread that writes it.
struct Output {
    chunks: mpsc::Sender<Vec<u8>>,
    writing: thread::JoinHandle<()>,
}

impl Output {
    fn start(
        output: OutputKind,
        mut stream: impl Write + std::os::fd::AsFd + Send + 'static,
        sender: &Arc<Sender>,
    ) -> io::Result<Self> {
        let (chunks, queue) = mpsc::channel::<Vec<u8>>();
        let sender = Arc::clone(sender);
        let writing = spawn("output", move || {
            let mut offset = 0_u64;
            let mut left = false;
            for chunk in queue {
                if left {
                    continue;
                }
                if write_all(&mut stream, &chunk).is_err() {
                    // The program learns it as it would here: by its next write.
                    left = true;
                    let _gone = sender.send(&ToHost::CloseOutput { exec: ONLY, output });
                    continue;
                }
                offset = offset.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                let _gone = sender.send(&ToHost::Received {
                    exec: ONLY,
                    output,
                    offset,
                });
            }
        })?;
        Ok(Self { chunks, writing })
    }

    /// Waits until all is written.
    fn finish(self) {
        drop(self.chunks);
        let _panicked = self.writing.join();
    }
}

/// Writes all of it at once, also to a stream that does not block.
fn write_all(stream: &mut (impl Write + std::os::fd::AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&*stream, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_for(&*stream, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Takes the session's messages until the last.
fn listen(
    mut receiver: Receiver,
    stdin: &Window,
    stdout: &mpsc::Sender<Vec<u8>>,
    stderr: &mpsc::Sender<Vec<u8>>,
) -> End {
    loop {
        let Ok(Some(message)) = receiver.message() else {
            return failed(&Failure::failed(
                "the session ended, and the agent on the host with it",
            ));
        };
        match frame::decode(message) {
            Ok(FromHost::Output { output, bytes, .. }) => {
                let sink = match output {
                    OutputKind::Stdout => stdout,
                    OutputKind::Stderr => stderr,
                };
                let _ended = sink.send(bytes.into_owned());
            }
            Ok(FromHost::StdinTaken { offset, .. }) => stdin.acknowledge(offset),
            Ok(FromHost::StdinClosed { .. }) => stdin.close(),
            Ok(FromHost::Exited { end, .. }) => {
                return match end {
                    ExecEnd::Exited(status) => End::Exited(status),
                    ExecEnd::Signaled {
                        out_of_memory: true,
                        ..
                    } => {
                        tell("labproxy: the host ended the agent for want of memory\n");
                        End::Signaled(Signal::KILL.as_raw())
                    }
                    ExecEnd::Signaled { signal, .. } => End::Signaled(signal.into()),
                };
            }
            Ok(FromHost::NotStarted { why, .. }) => {
                return failed(&not_started("claude", "the host", &why));
            }
            Ok(FromHost::Refused(Refusal::Failed { what })) => return End::Failed(125, what),
            Ok(FromHost::Started { .. }) => {}
            Ok(_) | Err(_) => {
                return failed(
                    &Failure::failed("what the session sent makes no sense")
                        .hint("the shim is of another version: start the session again"),
                );
            }
        }
    }
}
