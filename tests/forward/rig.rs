//! A forwarder with its directory, and what its clients and its link look like.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use labproxy::remote::forward::{Forwarder, Listeners, SOCKET_NAME};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::ForwardEnd;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::host_program;

/// Longer than anything here takes; a test that gets here has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// A lease that does not end within a test.
pub const LONG: Duration = Duration::from_mins(10);

pub const REQUEST: &[u8] = b"POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A forwarder and its directory.
pub struct Rig {
    pub forwarder: Forwarder,
    pub directory: TempDir,
    /// Ends that stay open and do nothing.
    pub frozen: Vec<(UnixListener, UnixStream)>,
}

impl Rig {
    /// A forwarder without a link, and `lease` to wait for one.
    pub fn without_link(lease: Duration) -> Self {
        let directory = private_directory();
        Self::of_program(directory, &host_program::path(), lease)
    }

    /// A forwarder that `program` becomes.
    pub fn of_program(directory: TempDir, program: &Path, lease: Duration) -> Self {
        let listeners = Listeners::bind(directory.path()).unwrap();
        Self {
            forwarder: Forwarder::start(program, listeners, lease).unwrap(),
            directory,
            frozen: Vec::new(),
        }
    }

    /// A forwarder with a link.
    pub fn new() -> (Self, UnixListener) {
        let mut rig = Self::without_link(LONG);
        let link = rig.link("proxy.sock");
        (rig, link)
    }

    /// Brings up a link whose socket has this name.
    pub fn link(&mut self, name: &str) -> UnixListener {
        let path = self.path(name);
        let listener = UnixListener::bind(&path).unwrap();
        self.forwarder
            .up(&ForwardEnd::Socket(ByteString::from(&path)));
        listener
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A connection of the agent to the port.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.forwarder.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A connection of the agent to the socket.
    pub fn connect_unix(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path(SOCKET_NAME)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// A directory that only we can enter.
pub fn private_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

/// The far end of a connection that the forwarder makes.
pub fn accepted(link: &UnixListener) -> UnixStream {
    let (stream, _) = link.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads exactly these bytes.
pub fn expect(mut from: impl Read, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    from.read_exact(&mut read).unwrap();
    assert_eq!(
        read.escape_ascii().to_string(),
        bytes.escape_ascii().to_string()
    );
}

/// Reads to the end, which must be a clean one.
pub fn rest(mut from: impl Read) -> Vec<u8> {
    let mut read = Vec::new();
    from.read_to_end(&mut read).unwrap();
    read
}

/// The next thing that comes is a reset.
pub fn assert_reset(stream: &mut TcpStream) {
    let end = stream.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

/// The whole answer of a forwarder without a link, in the provider's shape.
pub fn assert_try_again(answer: &[u8]) {
    let text = std::str::from_utf8(answer).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{text:?}"));
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("no {name} in {head}"))
            .trim()
    };
    assert_eq!(header("content-length:"), body.len().to_string());
    assert_eq!(header("content-type:"), "application/json");
    assert_eq!(header("connection:"), "close");
    assert!((1..60).contains(&header("retry-after:").parse::<u64>().unwrap()));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["type"], "error");
    assert_eq!(body["error"]["type"], "api_error");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("labproxy: "), "{message}");
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
