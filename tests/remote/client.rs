//! A controller in a few lines: it speaks the protocol over the helper's pipes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use labproxy::wire::bytes::ByteString;
use labproxy::wire::frame;
use labproxy::wire::greeting::{self, Nonce};
use labproxy::wire::link::{
    EndReport, Endpoints, ExecEnd, ExecId, ExecProgress, ExecSpec, ExecState, FromHost, Opening,
    OutputKind, Refusal, StartError, ToHost,
};

use crate::rig::{Host, PATIENCE};

/// One connection, after its greeting.
pub(crate) struct Client {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    frames: Receiver<Vec<u8>>,
    pub(crate) execs: BTreeMap<ExecId, Progress>,
    /// What came that belongs to no launch.
    pub(crate) said: Vec<String>,
}

/// What is known of a launch.
#[derive(Default, Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) pid: Option<u32>,
    pub(crate) failed: Option<StartError>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) taken: u64,
    pub(crate) stdin_closed: bool,
    pub(crate) exited: Option<(ExecEnd, u64, u64)>,
    /// Acknowledged nothing of its outputs.
    pub(crate) deaf: bool,
}

impl Progress {
    /// Whether its end came and everything before it.
    pub(crate) fn is_whole(&self) -> bool {
        self.failed.is_some()
            || self.exited.is_some_and(|(_, stdout, stderr)| {
                self.stdout.len() as u64 >= stdout && self.stderr.len() as u64 >= stderr
            })
    }

    pub(crate) fn end(&self) -> ExecEnd {
        self.exited.expect("it ended").0
    }
}

/// How a client opens.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) role: &'static str,
    pub(crate) lease_ms: u64,
    pub(crate) link: u64,
    pub(crate) must_live: bool,
    pub(crate) workdir: String,
    pub(crate) session: Option<String>,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            role: "supervise",
            lease_ms: 60_000,
            link: 1,
            must_live: false,
            workdir: "~/.labproxy".into(),
            session: None,
        }
    }
}

impl Client {
    /// Starts the helper, takes its greeting and opens a link, and no more.
    pub(crate) fn connect(host: &Host, open: &Open) -> Self {
        let nonce = "00112233445566778899aabbccddeeff";
        let mut command = host.helper(&[open.role, nonce]);
        Self::over(command.spawn().unwrap(), host, open, nonce.parse().unwrap())
    }

    /// The same over a process that was started otherwise.
    pub(crate) fn over(mut child: Child, host: &Host, open: &Open, nonce: Nonce) -> Self {
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut greeted = [0; greeting::GREETING_BYTES];
        output.read_exact(&mut greeted).unwrap();
        assert_eq!(greeted, greeting::greeting(nonce));
        let opening = Opening {
            session: open.session.clone().unwrap_or_else(|| host.session.clone()),
            workdir: ByteString::from(&open.workdir),
            lease_ms: open.lease_ms,
            link: open.link,
            must_live: open.must_live,
        };
        let mut bytes = Vec::new();
        frame::encode(&opening, &mut bytes).unwrap();
        input.write_all(&bytes).unwrap();
        // Few at a time: who is not read waits, as ssh's channel would make it.
        let (sender, frames) = sync_channel(16);
        std::thread::spawn(move || {
            loop {
                let mut prefix = [0; 4];
                if output.read_exact(&mut prefix).is_err() {
                    return;
                }
                let mut message = vec![0; u32::from_le_bytes(prefix) as usize];
                if output.read_exact(&mut message).is_err() || sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input: Some(input),
            frames,
            execs: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    /// A whole link: opened and attached, with nothing known.
    pub(crate) fn new(host: &Host) -> Self {
        let mut client = Self::connect(host, &Open::default());
        client.attach();
        client
    }

    /// Begins the link; gives what the host has.
    pub(crate) fn attach(&mut self) -> Vec<ExecState> {
        let execs = self.execs.iter().map(|(exec, progress)| ExecProgress {
            exec: *exec,
            stdout: progress.stdout.len() as u64,
            stderr: progress.stderr.len() as u64,
        });
        let execs = execs.collect();
        self.send(&ToHost::Attach { execs });
        let bytes = self.next(PATIENCE).expect("an answer to Attach");
        match frame::decode::<FromHost<'_>>(&bytes).unwrap() {
            FromHost::Attached { execs, .. } => execs,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn send(&mut self, message: &ToHost<'_>) {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).unwrap();
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        // A link that was refused is closed while we write.
        drop(self.input.as_mut().unwrap().write_all(bytes));
    }

    /// The next message; `None` at the end of the link.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<Vec<u8>> {
        match self.frames.recv_timeout(patience) {
            Ok(frame) => Some(frame),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came for {patience:?}"),
        }
    }

    /// Takes messages in until `done`, or the link's end.
    pub(crate) fn pump(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + 4 * PATIENCE;
        while !done(self) {
            assert!(Instant::now() < limit, "in vain: {:?}", self.said);
            let Some(bytes) = self.next(PATIENCE) else {
                self.said.push("end".into());
                return;
            };
            self.take(&bytes);
        }
    }

    /// Takes one message in.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let message = frame::decode::<FromHost<'_>>(bytes).unwrap();
        match message {
            FromHost::Ping(number) => self.send(&ToHost::Pong(number)),
            FromHost::Started { exec, pid } => self.of(exec).pid = Some(pid),
            FromHost::NotStarted { exec, why } => self.of(exec).failed = Some(why),
            FromHost::StdinTaken { exec, offset } => self.of(exec).taken = offset,
            FromHost::StdinClosed { exec } => self.of(exec).stdin_closed = true,
            FromHost::Output {
                exec,
                output,
                offset,
                bytes,
            } => {
                let progress = self.of(exec);
                let stream = match output {
                    OutputKind::Stdout => &mut progress.stdout,
                    OutputKind::Stderr => &mut progress.stderr,
                };
                let have = stream.len() as u64;
                assert!(offset <= have, "a gap: {offset} after {have}");
                let known = usize::try_from(have - offset).unwrap();
                stream.extend_from_slice(bytes.get(known..).unwrap_or_default());
                let offset = stream.len() as u64;
                if !progress.deaf {
                    self.send(&ToHost::Received {
                        exec,
                        output,
                        offset,
                    });
                }
            }
            FromHost::Exited {
                exec,
                end,
                stdout,
                stderr,
            } => {
                let exited = Some((end, stdout, stderr));
                let before = self.of(exec).exited;
                assert!(before.is_none() || before == exited);
                self.of(exec).exited = exited;
            }
            other => self.said.push(format!("{other:?}")),
        }
    }

    pub(crate) fn of(&mut self, exec: ExecId) -> &mut Progress {
        self.execs.entry(exec).or_default()
    }

    /// Sends a spec and starts it.
    pub(crate) fn start(&mut self, id: u32, spec: &ExecSpec) -> ExecId {
        let exec = ExecId(id);
        let bytes = postcard::to_extend(spec, Vec::new()).unwrap();
        for (at, part) in bytes.chunks(200_000).enumerate() {
            self.send(&ToHost::Spec {
                exec,
                offset: at as u64 * 200_000,
                part: part.into(),
            });
        }
        let length = bytes.len() as u64;
        self.send(&ToHost::Start { exec, length });
        self.of(exec);
        exec
    }

    /// Starts it, gives it `input` and waits for its end.
    pub(crate) fn run(&mut self, id: u32, spec: &ExecSpec, input: &[u8]) -> Progress {
        let exec = self.start(id, spec);
        if !input.is_empty() {
            self.send(&ToHost::Stdin {
                exec,
                offset: 0,
                bytes: input.into(),
            });
        }
        let length = input.len() as u64;
        self.send(&ToHost::StdinEnd { exec, length });
        self.wait(exec)
    }

    /// Waits for its end and all that it wrote before.
    pub(crate) fn wait(&mut self, exec: ExecId) -> Progress {
        self.pump(|client| client.execs[&exec].is_whole());
        self.execs[&exec].clone()
    }

    /// Ends the session.
    pub(crate) fn end(&mut self, grace_ms: u64) -> EndReport {
        self.send(&ToHost::End { grace_ms });
        loop {
            let bytes = self.next(PATIENCE).expect("a report before the link's end");
            if let FromHost::Ended(report) = frame::decode(&bytes).unwrap() {
                return report;
            }
            self.take(&bytes);
        }
    }

    /// The refusal that ends the link.
    pub(crate) fn refusal(&mut self) -> Refusal {
        loop {
            let bytes = self
                .next(PATIENCE)
                .expect("a refusal before the link's end");
            if let FromHost::Refused(refusal) = frame::decode(&bytes).unwrap() {
                return refusal;
            }
            self.take(&bytes);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A command without a terminal, in the workspace.
pub(crate) fn spec(argv: &[&str]) -> ExecSpec {
    ExecSpec {
        program: ByteString::from(argv[0]),
        argv: argv.iter().map(|text| ByteString::from(*text)).collect(),
        environment: Vec::new(),
        inherit: ["HOME", "PATH"]
            .iter()
            .map(|name| ByteString::from(*name))
            .collect(),
        directory: ByteString::from("workspace"),
        files: Vec::new(),
        terminal: None,
        endpoints: Endpoints {
            port: ByteString::from("{port-9a1}"),
            socket: ByteString::from("{socket-9a1}"),
            session_directory: ByteString::from("{session-9a1}"),
        },
    }
}

/// A shell's command line.
pub(crate) fn shell(script: &str) -> ExecSpec {
    spec(&["sh", "-c", script])
}
