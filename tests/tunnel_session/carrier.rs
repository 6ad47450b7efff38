//! What carries a link in these tests: `labproxy-remote` as a child, and a socket that is connected
//! to the proxy's.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use labproxy::report::Failure;
use labproxy::tunnel::phase::Phase;
use labproxy::tunnel::transport::{Carrier, Doing, LinkError, Opened, PhaseWatch, Role, Transport};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::greeting::{self, Nonce};
use labproxy::wire::link::ForwardEnd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A way to the host that tests can cut, refuse and slow down.
pub(crate) struct Pipes {
    name: String,
    program: PathBuf,
    home: PathBuf,
    runtime: PathBuf,
    /// Links made so far.
    pub(crate) links: AtomicU32,
    /// No link is made while it is set.
    pub(crate) refused: AtomicBool,
    /// Forwards are made and never answer.
    pub(crate) is_deaf: AtomicBool,
    /// The next link is cut after so many bytes from the host; 0 is never.
    pub(crate) cut_after: AtomicU64,
    /// Cuts the link of now.
    current: Mutex<Option<watch::Sender<bool>>>,
}

impl Pipes {
    pub(crate) fn new(program: &Path, home: &Path, runtime: &Path) -> Self {
        Self {
            name: "pipes".to_owned(),
            program: program.to_owned(),
            home: home.to_owned(),
            runtime: runtime.to_owned(),
            links: AtomicU32::new(0),
            refused: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            cut_after: AtomicU64::new(0),
            current: Mutex::new(None),
        }
    }

    /// Cuts the link of now, if there is one.
    pub(crate) fn cut(&self) {
        if let Some(link) = &*self.current.lock().unwrap() {
            link.send_replace(true);
        }
    }

    async fn start(&self, role: Role) -> Result<Opened, LinkError> {
        let failed = |what: &str| LinkError {
            phase: Phase::Connect,
            failure: Failure::failed(what),
            retry_after: Some(Duration::ZERO),
        };
        if self.refused.load(Ordering::SeqCst) {
            return Err(failed("the test refuses links"));
        }
        let number = self.links.fetch_add(1, Ordering::SeqCst);
        let mut random = [7; 16];
        random[..4].copy_from_slice(&number.to_le_bytes());
        let nonce = Nonce::new(random);
        let role = match role {
            Role::Supervise => "supervise",
            Role::Attach => "attach",
            Role::Serve => "serve",
            Role::Mirror => "mirror",
            Role::Rsync => "rsync",
        };
        let mut child = Command::new(&self.program)
            .args([role, &nonce.to_string()])
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let writer = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut received = Vec::new();
        let begin = loop {
            match greeting::find(&received, nonce) {
                greeting::Opening::Greeted(at) => break at,
                greeting::Opening::Waiting => {}
                other => panic!("{other:?}"),
            }
            let mut bytes = [0; 64];
            let count = stdout.read(&mut bytes).await.unwrap();
            if count == 0 {
                return Err(failed("no greeting came"));
            }
            received.extend_from_slice(&bytes[..count]);
        };
        let rest = std::io::Cursor::new(received.split_off(begin));
        let (cut, is_cut) = watch::channel(false);
        let budget = self.cut_after.swap(0, Ordering::SeqCst);
        *self.current.lock().unwrap() = Some(cut.clone());
        let reader = Budgeted {
            inner: Box::new(rest.chain(stdout)),
            left: if budget == 0 { u64::MAX } else { budget },
            cut: cut.clone(),
        };
        Ok(Opened {
            pipe: None,
            reader: Box::new(reader),
            writer: Box::new(writer),
            carrier: Box::new(PipeCarrier {
                child: Mutex::new(Some(child)),
                is_cut,
                _cut: cut,
                forwards: Mutex::new(JoinSet::new()),
                is_deaf: self.is_deaf.load(Ordering::SeqCst),
            }),
        })
    }
}

impl Transport for Pipes {
    fn host(&self) -> &str {
        &self.name
    }

    fn open<'a>(
        &'a self,
        role: Role,
        phases: &'a dyn PhaseWatch,
    ) -> Doing<'a, Result<Opened, LinkError>> {
        Box::pin(async move {
            phases.begin(Phase::Connect);
            self.start(role).await
        })
    }

    fn settled(&self) -> Doing<'_, ()> {
        Box::pin(async {})
    }
}

/// Gives so many bytes, then cuts.
struct Budgeted {
    inner: Box<dyn AsyncRead + Send + Unpin>,
    left: u64,
    cut: watch::Sender<bool>,
}

impl AsyncRead for Budgeted {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.left == 0 {
            self.cut.send_replace(true);
            return std::task::Poll::Pending;
        }
        let mut bytes = [0; 16 * 1024];
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(bytes.len()).min(buffer.remaining());
        let mut part = tokio::io::ReadBuf::new(&mut bytes[..most]);
        let polled = std::pin::Pin::new(&mut self.inner).poll_read(cx, &mut part);
        buffer.put_slice(part.filled());
        self.left -= u64::try_from(part.filled().len()).unwrap();
        polled
    }
}

struct PipeCarrier {
    child: Mutex<Option<Child>>,
    is_cut: watch::Receiver<bool>,
    _cut: watch::Sender<bool>,
    forwards: Mutex<JoinSet<()>>,
    is_deaf: bool,
}

impl Carrier for PipeCarrier {
    fn forward<'a>(
        &'a self,
        remote: &'a Path,
        local: &'a Path,
    ) -> Doing<'a, Result<ForwardEnd, LinkError>> {
        Box::pin(async move {
            let end = ForwardEnd::Socket(ByteString::from(remote));
            let listener = UnixListener::bind(remote).unwrap();
            let local = local.to_owned();
            let is_deaf = self.is_deaf;
            self.forwards.lock().unwrap().spawn(async move {
                let mut connections = JoinSet::new();
                loop {
                    let (mut there, _) = listener.accept().await.unwrap();
                    let local = local.clone();
                    connections.spawn(async move {
                        if is_deaf {
                            std::future::pending::<()>().await;
                        }
                        if let Ok(mut here) = UnixStream::connect(local).await {
                            let _ended = tokio::io::copy_bidirectional(&mut there, &mut here).await;
                            let _ended = there.shutdown().await;
                        }
                    });
                }
            });
            Ok(end)
        })
    }

    fn closed(&self) -> Doing<'_, ()> {
        let mut is_cut = self.is_cut.clone();
        Box::pin(async move {
            let _cut = is_cut.wait_for(|cut| *cut).await;
        })
    }

    fn close(self: Box<Self>) -> Doing<'static, ()> {
        Box::pin(async move {
            let child = self.child.lock().unwrap().take();
            if let Some(mut child) = child {
                let _gone = child.kill().await;
                tokio::time::timeout(Duration::from_secs(10), child.wait())
                    .await
                    .expect("a killed child ends")
                    .unwrap();
            }
        })
    }
}
