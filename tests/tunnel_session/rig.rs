//! One test's own world: the host's program, its home and runtime directories, a proxy that says
//! hello, and the streams of programs.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use labproxy::clock::SystemClock;
use labproxy::tunnel::Attached;
use labproxy::tunnel::error::TunnelError;
use labproxy::tunnel::exec::{RemoteExec, Status, Stdio};
use labproxy::tunnel::session::{LinkWatcher, Opening, Settings, Tunnel};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::{EndReport, Endpoints, ExecEnd, ExecSpec};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use crate::carrier::Pipes;
use crate::host_program;

/// Whatever a test waits for has come by then, or never will.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at what nobody announces.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) struct Rig {
    pub(crate) pipes: Arc<Pipes>,
    pub(crate) watcher: Arc<Watcher>,
    folder: TempDir,
}

/// What was heard of the links.
#[derive(Default)]
pub(crate) struct Watcher {
    link: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) back: AtomicU64,
}

impl LinkWatcher for Watcher {
    fn next_link(&self) -> Result<u64, String> {
        Ok(self.link.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn lost(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    fn exposed(&self, port: u16) {
        panic!("a pipe forwards sockets only, not {port}");
    }

    fn back(&self, _after: Duration) {
        self.back.fetch_add(1, Ordering::SeqCst);
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("lp").unwrap();
        for name in ["home", "run"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let at = |name: &str| folder.path().join(name);
        Self {
            pipes: Arc::new(Pipes::new(&host_program::path(), &at("home"), &at("run"))),
            watcher: Arc::new(Watcher::default()),
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The session's directory on the host.
    pub(crate) fn session(&self) -> PathBuf {
        self.path("home/.labproxy/sessions/ses_test")
    }

    fn settings(&self, lease: Duration) -> Settings {
        Settings {
            session: "ses_test".to_owned(),
            workdir: ByteString::from("~/.labproxy"),
            lease,
            proxy: self.path("proxy.sock"),
            clock: Arc::new(SystemClock),
            watcher: Arc::clone(&self.watcher) as Arc<dyn LinkWatcher>,
        }
    }

    /// A tunnel that works.
    pub(crate) async fn open(&self, lease: Duration) -> Tunnel {
        self.try_open(lease).await.unwrap().0
    }

    /// A tunnel, or why there is none.
    pub(crate) async fn try_open(
        &self,
        lease: Duration,
    ) -> Result<(Tunnel, Attached), Arc<TunnelError>> {
        let (tunnel, mut opening) = self.begin(lease);
        let ready = tokio::time::timeout(PATIENCE, opening.ready())
            .await
            .expect("the tunnel opens or fails in time");
        match ready {
            Ok(attached) => Ok((tunnel, attached)),
            Err(error) => Err(error),
        }
    }

    /// A tunnel on its way.
    pub(crate) fn begin(&self, lease: Duration) -> (Tunnel, Opening) {
        self.proxy();
        Tunnel::begin(self.pipes.clone(), self.settings(lease))
    }

    /// A proxy that answers every request with an empty 200.
    fn proxy(&self) {
        let path = self.path("proxy.sock");
        let _old = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_buf(&mut head).await {
                            Ok(count) if count > 0 => {}
                            _ => return,
                        }
                    }
                    let answer =
                        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _left = stream.write_all(answer).await;
                });
            }
        });
    }
}

/// `sh -c script name arguments…` in the workspace.
pub(crate) fn sh(script: &str, arguments: &[&str]) -> ExecSpec {
    let mut argv = vec!["sh", "-c", script, "sh"];
    argv.extend(arguments);
    spec("sh", &argv)
}

/// A program in the workspace.
pub(crate) fn spec(program: &str, argv: &[&str]) -> ExecSpec {
    ExecSpec {
        program: ByteString::from(program),
        argv: argv.iter().copied().map(ByteString::from).collect(),
        environment: Vec::new(),
        inherit: ["HOME", "PATH"].map(ByteString::from).to_vec(),
        directory: ByteString::from("workspace"),
        files: Vec::new(),
        terminal: None,
        endpoints: Endpoints {
            port: ByteString::from("@port@"),
            socket: ByteString::from("@socket@"),
            session_directory: ByteString::from("@directory@"),
        },
    }
}

/// Bytes that somebody wrote.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A program and what it wrote.
pub(crate) struct Program {
    pub(crate) exec: RemoteExec,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
}

impl Program {
    pub(crate) fn start(
        tunnel: &Tunnel,
        spec: &ExecSpec,
        stdin: Option<Box<dyn Read + Send>>,
    ) -> Self {
        let (stdout, stderr) = (Kept::default(), Kept::default());
        let streams = Stdio {
            stdin,
            stdout: Box::new(stdout.clone()),
            stderr: Box::new(stderr.clone()),
        };
        Self {
            exec: tunnel.launch(spec, streams).unwrap(),
            stdout,
            stderr,
        }
    }

    /// Waits for its end, whatever that is.
    pub(crate) async fn status(&mut self) -> Status {
        tokio::time::timeout(PATIENCE, self.exec.ended())
            .await
            .expect("the program ends in time")
    }

    /// Waits for the end of a program that ran.
    pub(crate) async fn end(&mut self) -> ExecEnd {
        match self.status().await {
            Status::Ended(end) => end,
            other => panic!("{other:?}; stderr: {}", self.stderr.text()),
        }
    }

    /// Waits until it has written so many bytes to stdout.
    pub(crate) async fn wrote(&self, count: usize) {
        eventually("output", || (self.stdout.len() >= count).then_some(())).await;
    }
}

/// Waits until `look` gives something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Ends the tunnel, and everything on the host is gone.
pub(crate) async fn end(tunnel: Tunnel) -> EndReport {
    let ended = tokio::time::timeout(PATIENCE, tunnel.end(Duration::from_secs(2)))
        .await
        .expect("the end comes in time");
    let report = ended.unwrap().expect("something was there");
    assert!(report.left.is_empty(), "{report:?}");
    report
}

/// Whether a process of that pid runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}
