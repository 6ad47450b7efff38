//! A session's side of shims whose programs run here, and a shim that speaks to it.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Pipes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use labproxy::id::SessionId;
use labproxy::remote::exec::raw;
use labproxy::secret::{Credential, CredentialKind};
use labproxy::session::carry::Watch;
use labproxy::session::shim::conversation::{Asked, Launcher, Running};
use labproxy::session::shim::script::{Script, ShimFile};
use labproxy::session::shim::service::ShimServer;
use labproxy::tunnel::error::TunnelError;
use labproxy::tunnel::exec::{Status, Stdio};
use labproxy::tunnel::transport::Doing;
use labproxy::wire::link::{ExecEnd, ExecSignal, StartError};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A key that must not pass.
pub(crate) const KEY: &str = "sk-ant-api03-canary-51c7e0a9d3f2";
/// The version that the shim tells.
pub(crate) const VERSION: &str = "2.1.332 (Claude Code)";
/// Whatever a test waits for has come by then, or never will.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at what nobody announces.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs the arguments as a program of this machine.
#[derive(Default)]
pub(crate) struct Local {
    /// What shims asked for.
    pub(crate) asked: Mutex<Vec<Asked>>,
    /// Pids of programs.
    pub(crate) pids: Mutex<Vec<u32>>,
    /// Bytes of standard output that were taken from a program.
    pub(crate) accepted: Arc<AtomicU64>,
}

struct Program {
    pid: Pid,
    status: watch::Receiver<Status>,
}

impl Running for Program {
    fn signal(&self, signal: ExecSignal) {
        let _gone = rustix::process::kill_process(self.pid, raw(signal));
    }

    fn started(&mut self) -> Doing<'_, Status> {
        Box::pin(async { self.status.borrow().clone() })
    }

    fn ended(&mut self) -> Doing<'_, Status> {
        Box::pin(async {
            let ended = self.status.wait_for(Status::is_final).await;
            ended.unwrap().clone()
        })
    }
}

impl Launcher for Local {
    fn launch(&self, asked: Asked, stdio: Stdio) -> Result<Box<dyn Running>, String> {
        let (program, arguments) = asked.arguments.split_first().unwrap();
        if program == "refuse" {
            return Err("nothing of\u{1b}[2J that kind runs here".to_owned());
        }
        let spawned = Command::new(program)
            .args(arguments)
            .current_dir(&asked.directory)
            .stdin(Pipes::piped())
            .stdout(Pipes::piped())
            .stderr(Pipes::piped())
            .spawn();
        self.asked.lock().unwrap().push(asked);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let why = match error.kind() {
                    std::io::ErrorKind::NotFound => StartError::NotFound,
                    _ => StartError::NotExecutable {
                        errno: error.raw_os_error().unwrap(),
                    },
                };
                let (_, status) = watch::channel(Status::NotStarted(why));
                let pid = Pid::INIT;
                return Ok(Box::new(Program { pid, status }));
            }
        };
        self.pids.lock().unwrap().push(child.id());
        let mut input = child.stdin.take().unwrap();
        let mut source = stdio.stdin.unwrap();
        thread::spawn(move || std::io::copy(&mut source, &mut input));
        let never = Arc::<AtomicU64>::default();
        let out = pump(child.stdout.take().unwrap(), stdio.stdout, &self.accepted);
        let err = pump(child.stderr.take().unwrap(), stdio.stderr, &never);
        let pid = Pid::from_child(&child);
        let (sender, status) = watch::channel(Status::Running { pid: child.id() });
        thread::spawn(move || {
            let end = child.wait().unwrap();
            out.join().unwrap();
            err.join().unwrap();
            let number = |number: i32| u8::try_from(number).unwrap();
            let end = match (end.code(), end.signal()) {
                (Some(code), _) => ExecEnd::Exited(number(code)),
                (None, signal) => ExecEnd::Signaled {
                    signal: number(signal.unwrap()),
                    out_of_memory: false,
                },
            };
            let _nobody = sender.send(Status::Ended(end));
        });
        Ok(Box::new(Program { pid, status }))
    }

    fn watch(&self) -> Arc<Watch> {
        let bytes = zeroize::Zeroizing::new(KEY.as_bytes().to_vec());
        let credential = Credential::new(CredentialKind::ApiKey, bytes).unwrap();
        Arc::new(Watch::of(&credential))
    }

    fn lost(&self, error: &TunnelError) -> String {
        format!("{error:?}")
    }
}

fn pump(
    mut from: impl Read + Send + 'static,
    mut to: Box<dyn Write + Send>,
    accepted: &Arc<AtomicU64>,
) -> thread::JoinHandle<()> {
    let accepted = Arc::clone(accepted);
    thread::spawn(move || {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let count = from.read(&mut buffer).unwrap();
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                return;
            }
            accepted.fetch_add(count as u64, Ordering::SeqCst);
        }
    })
}

/// A session and its shim's file.
pub(crate) struct World {
    _runtime: Runtime,
    pub(crate) local: Arc<Local>,
    server: Option<ShimServer>,
    script: Script,
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("shim.sock");
        let local = Arc::<Local>::default();
        let launcher = Arc::clone(&local);
        let server = runtime.block_on(async { ShimServer::start(&socket, launcher) });
        // What an SDK is given: the file in a directory of the user's.
        let file = ShimFile::check(&folder.path().join("claude")).unwrap();
        let labproxy = Path::new(env!("CARGO_BIN_EXE_labproxy"));
        let session = SessionId::random().unwrap();
        let script = file.write(&session, labproxy, &socket, VERSION).unwrap();
        Self {
            server: Some(server.unwrap()),
            _runtime: runtime,
            local,
            script,
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The shim with these arguments, with three pipes.
    pub(crate) fn shim(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.script.path());
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Pipes::piped())
            .stdout(Pipes::piped())
            .stderr(Pipes::piped());
        command
    }

    /// The shim that becomes `sh -c` of this text.
    pub(crate) fn sh(&self, text: &str) -> Command {
        self.shim(&["sh", "-c", text])
    }

    pub(crate) fn launches(&self) -> u64 {
        self.server.as_ref().unwrap().launches()
    }

    /// The session ends.
    pub(crate) fn end_session(&mut self) {
        let server = self.server.take().unwrap();
        drop(server);
    }

    /// The pid of the only program.
    pub(crate) fn pid(&self) -> u32 {
        let pids = self.local.pids.lock().unwrap();
        assert_eq!(pids.len(), 1);
        pids[0]
    }

    /// The arguments that the only shim asked for.
    pub(crate) fn asked(&self) -> Vec<OsString> {
        self.local.asked.lock().unwrap()[0].arguments.clone()
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Whether a process is there; a zombie is not.
pub(crate) fn is_there(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

pub(crate) fn kill(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

/// Reads one line, byte by byte, so that nothing after it is taken.
pub(crate) fn line(from: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}
