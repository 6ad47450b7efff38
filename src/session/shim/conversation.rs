//! One launch of a shim, on the session's side.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::frames::{Receiver, Sender, Window};
use super::streams::{OutputSink, StdinSource};
use super::{LOCAL_WINDOW, ONLY};
use crate::report::Failure;
use crate::session::carry::{Rolling, Watch};
use crate::table::Style;
use crate::tunnel::exec::{RemoteExec, Status, Stdio};
use crate::tunnel::transport::Doing;
use crate::wire::frame;
use crate::wire::link::{ExecSignal, ExecSpec, FromHost, OutputKind, Refusal, SPEC_MAX, ToHost};

/// How long a shim may take to say what it wants: the probe time of `design.md` 12.
const ASK: Duration = Duration::from_secs(10);
/// Between TERM and KILL for a program whose shim is gone: what the SDKs wait.
const GRACE: Duration = Duration::from_secs(5);

/// Signals of a shim that wait for its program's start; a shim that sends more waits itself.
const EVENTS_MAX: usize = 64;

/// What a shim asks for.
#[derive(Debug)]
pub struct Asked {
    /// The program's arguments, without its name.
    pub arguments: Vec<OsString>,
    /// The shim's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it was started.
    pub directory: PathBuf,
}

/// Starts programs for shims.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one on the host.
    ///
    /// # Errors
    /// Why it is not started, with the remedy, rendered for whoever reads the shim's standard error.
    fn launch(&self, asked: Asked, stdio: Stdio) -> Result<Box<dyn Running>, String>;

    /// What must not be in standard input.
    fn watch(&self) -> Arc<Watch>;

    /// Why a program was lost, as a user reads it.
    fn lost(&self, error: &crate::tunnel::error::TunnelError) -> String;
}

/// A program on the host.
pub trait Running: Send {
    /// Sends it a signal.
    fn signal(&self, signal: ExecSignal);

    /// Waits until it runs, or will not.
    fn started(&mut self) -> Doing<'_, Status>;

    /// Waits for its end.
    fn ended(&mut self) -> Doing<'_, Status>;
}

impl Running for RemoteExec {
    fn signal(&self, signal: ExecSignal) {
        Self::signal(self, signal);
    }

    fn started(&mut self) -> Doing<'_, Status> {
        Box::pin(Self::started(self))
    }

    fn ended(&mut self) -> Doing<'_, Status> {
        Box::pin(Self::ended(self))
    }
}

/// What happens at the shim's end of the socket.
enum Event {
    Signal(ExecSignal),
    /// The shim was killed, or sent nonsense.
    Gone,
    /// The credential is in standard input.
    Found,
}

/// What both sides of a conversation share.
struct Shared {
    sender: Arc<Sender>,
    stdout: Arc<Window>,
    stderr: Arc<Window>,
    stdin_taken: Arc<AtomicU64>,
    events: mpsc::Sender<Event>,
}

/// Serves a shim until it has the end of its program, from a thread of its own.
pub fn converse(stream: UnixStream, launcher: &dyn Launcher, runtime: &Handle) {
    if let Err(error) = try_converse(stream, launcher, runtime) {
        tracing::info!(%error, "a shim's conversation broke off");
    }
}

fn try_converse(stream: UnixStream, launcher: &dyn Launcher, runtime: &Handle) -> io::Result<()> {
    let sender = Arc::new(Sender::new(stream.try_clone()?));
    let mut receiver = Receiver::new(stream);
    receiver.stream().set_read_timeout(Some(ASK))?;
    let asked = ask(&mut receiver)?;
    receiver.stream().set_read_timeout(None)?;
    let (events, happens) = mpsc::channel(EVENTS_MAX);
    let shared = Shared {
        sender: Arc::clone(&sender),
        stdout: Arc::default(),
        stderr: Arc::default(),
        stdin_taken: Arc::default(),
        events,
    };
    let (chunks, source) = std::sync::mpsc::channel();
    let found = shared.events.clone();
    let sent = [Arc::<AtomicU64>::default(), Arc::default()];
    let sink = |output, window: &Arc<Window>, sent: &Arc<AtomicU64>| {
        Box::new(OutputSink {
            output,
            sender: Arc::clone(&sender),
            window: Arc::clone(window),
            sent: Arc::clone(sent),
        })
    };
    let [stdout_sent, stderr_sent] = &sent;
    let stdio = Stdio {
        stdin: Some(Box::new(StdinSource {
            chunks: source,
            sender: Arc::clone(&sender),
            watch: launcher.watch(),
            rolling: Rolling::default(),
            found: Box::new(move || {
                let _over = found.blocking_send(Event::Found);
            }),
            chunk: Vec::new(),
            at: 0,
            taken: 0,
            acknowledged: Arc::clone(&shared.stdin_taken),
        })),
        stdout: sink(OutputKind::Stdout, &shared.stdout, stdout_sent),
        stderr: sink(OutputKind::Stderr, &shared.stderr, stderr_sent),
    };
    let listening = std::thread::Builder::new()
        .name("shim input".to_owned())
        .spawn(move || listen(receiver, &shared, chunks))?;
    match launcher.launch(asked, stdio) {
        Err(why) => sender.send(&refused(why))?,
        Ok(program) => {
            let last = runtime.block_on(follow(program, &sender, happens, launcher));
            if let Some(mut last) = last {
                if let FromHost::Exited { stdout, stderr, .. } = &mut last {
                    *stdout = stdout_sent.load(Ordering::Acquire);
                    *stderr = stderr_sent.load(Ordering::Acquire);
                }
                sender.send(&last)?;
            }
        }
    }
    // The shim closes the socket when it has passed everything on.
    let _panicked = listening.join();
    Ok(())
}

/// Reads what the shim wants.
fn ask(receiver: &mut Receiver) -> io::Result<Asked> {
    let nonsense = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut spec = Vec::new();
    loop {
        let message = receiver.message()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame::decode(message).map_err(io::Error::other)? {
            ToHost::Spec { offset, part, .. } if usize::try_from(offset) == Ok(spec.len()) => {
                let length = spec.len().saturating_add(part.len());
                if u64::try_from(length).map_or(true, |length| length > SPEC_MAX) {
                    return Err(nonsense("more arguments and variables than a kernel takes"));
                }
                spec.extend_from_slice(&part);
            }
            ToHost::Start { length, .. } if usize::try_from(length) == Ok(spec.len()) => break,
            _ => return Err(nonsense("a shim begins with what it wants")),
        }
    }
    let spec: ExecSpec = frame::decode(&spec).map_err(io::Error::other)?;
    Ok(Asked {
        arguments: spec
            .argv
            .into_iter()
            .map(crate::wire::bytes::ByteString::into_os_string)
            .collect(),
        environment: spec
            .environment
            .into_iter()
            .map(|(name, value)| (name.into_os_string(), value.into_os_string()))
            .collect(),
        directory: spec.directory.to_path_buf(),
    })
}

/// Takes the shim's messages until it is gone.
fn listen(mut receiver: Receiver, shared: &Shared, chunks: std::sync::mpsc::Sender<Vec<u8>>) {
    let mut chunks = Some(chunks);
    let mut length = 0;
    loop {
        let goes_on = match receiver.message() {
            Ok(Some(message)) => hear(message, shared, &mut chunks, &mut length),
            Ok(None) | Err(_) => false,
        };
        if !goes_on {
            break;
        }
    }
    drop(chunks);
    shared.stdout.close();
    shared.stderr.close();
    let _over = shared.events.blocking_send(Event::Gone);
    shared.sender.close();
}

/// Takes one message; `false` when it makes no sense.
fn hear(
    message: &[u8],
    shared: &Shared,
    chunks: &mut Option<std::sync::mpsc::Sender<Vec<u8>>>,
    received: &mut u64,
) -> bool {
    match frame::decode(message) {
        Ok(ToHost::Stdin { offset, bytes, .. }) => {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let end = received.saturating_add(length);
            let taken = shared.stdin_taken.load(Ordering::Acquire);
            let Some(chunks) = chunks
                .as_ref()
                .filter(|_| offset == *received && end.saturating_sub(taken) <= LOCAL_WINDOW)
            else {
                return false;
            };
            *received = end;
            // The program reads no more; the shim is told so elsewhere.
            let _nobody = chunks.send(bytes.into_owned());
        }
        Ok(ToHost::StdinEnd { .. }) => *chunks = None,
        Ok(ToHost::Received { output, offset, .. }) => match output {
            OutputKind::Stdout => shared.stdout.acknowledge(offset),
            OutputKind::Stderr => shared.stderr.acknowledge(offset),
        },
        Ok(ToHost::CloseOutput { output, .. }) => match output {
            OutputKind::Stdout => shared.stdout.close(),
            OutputKind::Stderr => shared.stderr.close(),
        },
        Ok(ToHost::Signal { signal, .. }) => {
            let _over = shared.events.blocking_send(Event::Signal(signal));
        }
        Ok(_) | Err(_) => return false,
    }
    true
}

/// Follows the program to its end and gives the last message; `None` when the shim is gone.
async fn follow(
    mut program: Box<dyn Running>,
    sender: &Sender,
    mut happens: mpsc::Receiver<Event>,
    launcher: &dyn Launcher,
) -> Option<FromHost<'static>> {
    let mut runs = false;
    loop {
        let status = if runs {
            program.ended()
        } else {
            program.started()
        };
        let event = tokio::select! {
            status = status => match status {
                Status::Starting | Status::Running { .. } => {
                    runs = true;
                    continue;
                }
                last => return last_message(last, launcher),
            },
            event = happens.recv() => event.unwrap_or(Event::Gone),
        };
        match event {
            Event::Signal(signal) => program.signal(signal),
            Event::Found => {
                let failure = Failure::failed(
                    "standard input holds the provider's credential, which never leaves this machine",
                )
                .hint("the agent on the host needs no key: labproxy's proxy adds it");
                let _gone = sender.send(&refused(failure.render(Style::Plain)));
                program.signal(ExecSignal::Kill);
            }
            Event::Gone => {
                abandon(program).await;
                return None;
            }
        }
    }
}

/// Ends a program whose shim is gone; its input has ended with the socket.
async fn abandon(mut program: Box<dyn Running>) {
    program.signal(ExecSignal::Terminate);
    // A stopped one acts on it only when it goes on.
    program.signal(ExecSignal::Continue);
    if tokio::time::timeout(GRACE, program.ended()).await.is_err() {
        program.signal(ExecSignal::Kill);
        let _ended = program.ended().await;
    }
}

/// What the shim is told of the end; lengths are filled in by whoever knows them.
fn last_message(status: Status, launcher: &dyn Launcher) -> Option<FromHost<'static>> {
    Some(match status {
        Status::Ended(end) => FromHost::Exited {
            exec: ONLY,
            end,
            stdout: 0,
            stderr: 0,
        },
        Status::NotStarted(why) => FromHost::NotStarted { exec: ONLY, why },
        Status::Lost(error) => refused(launcher.lost(&error)),
        Status::Starting | Status::Running { .. } => return None,
    })
}

fn refused(what: String) -> FromHost<'static> {
    FromHost::Refused(Refusal::Failed { what })
}
