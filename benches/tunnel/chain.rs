//! The programs between the load and the upstream: ssh, and what stands in front of its socket.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use labproxy::remote::forward::{CONNECTIONS_MAX, Forwarder, Listeners};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::ForwardEnd;
use tempfile::TempDir;

use crate::load::Work;
use crate::netpair::{FAR, NetPair};
use crate::sshd::{HOST, Sshd};

/// socat's port; nobody else is in the namespace.
const SOCAT_PORT: u16 = 4000;

/// What stands between the agent and ssh's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Nothing: the socket itself.
    Bare,
    /// labproxy's forwarder.
    Forwarder,
    /// socat, which makes a process for each connection.
    Socat,
}

impl Peer {
    pub const ALL: [Self; 3] = [Self::Bare, Self::Forwarder, Self::Socat];
}

/// A process that ends with us, and the first line that it printed.
pub struct Part {
    child: Child,
    pub line: String,
}

impl Part {
    /// Starts it; its standard input stays open until it is to end.
    pub fn start(command: &mut Command, prints: bool) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        if prints {
            let output = child.stdout.take().unwrap();
            BufReader::new(output).read_line(&mut line).unwrap();
        }
        let line = line.trim().to_owned();
        Self { child, line }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // socat does not look at its standard input.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Everything that runs.
pub struct Chain<'a> {
    net: &'a NetPair,
    link: PathBuf,
    /// The forwarder's port and pid.
    forwarder: (u16, u32),
    _parts: Vec<Part>,
    _sshd: Option<Sshd>,
    _directory: TempDir,
}

impl<'a> Chain<'a> {
    /// ssh's socket on the host, and the upstream on the other machine.
    pub fn over_ssh(net: &'a NetPair) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sshd = Sshd::start(|program| net.far(program), FAR, directory.path());
        sshd.wait(|program| net.near(program));
        let this = std::env::current_exe().unwrap();
        let upstream = Part::start(net.near(&this).arg("upstream"), true);
        let link = directory.path().join("proxy.sock");
        let forward = format!("{}:127.0.0.1:{}", link.display(), upstream.line);
        let mut ssh = net.near("ssh");
        // With a command: without one ssh would never switch Nagle's algorithm off.
        let command = "echo there; cat";
        ssh.arg("-F").arg(&sshd.config);
        ssh.args(["-R", &forward, HOST, command]);
        let ssh = Part::start(&mut ssh, true);
        Self::before(net, directory, vec![ssh, upstream], Some(sshd))
    }

    /// The upstream itself listens at the socket: what stands before it is seen alone.
    pub fn without_ssh(net: &'a NetPair) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut upstream = net.far(std::env::current_exe().unwrap());
        upstream
            .arg("upstream")
            .arg(directory.path().join("proxy.sock"));
        let upstream = Part::start(&mut upstream, true);
        Self::before(net, directory, vec![upstream], None)
    }

    /// With the forwarder and socat before the socket.
    fn before(
        net: &'a NetPair,
        directory: TempDir,
        mut parts: Vec<Part>,
        sshd: Option<Sshd>,
    ) -> Self {
        let this = std::env::current_exe().unwrap();
        let link = directory.path().join("proxy.sock");
        let mut forward = net.far(&this);
        forward.arg("forward").arg(&link).arg(directory.path());
        let forward = Part::start(&mut forward, true);
        let (port, pid) = forward.line.split_once(' ').unwrap();
        let forwarder = (port.parse().unwrap(), pid.parse().unwrap());
        let mut socat = net.far("socat");
        socat
            .arg(format!(
                "TCP-LISTEN:{SOCAT_PORT},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=128"
            ))
            .arg(format!("UNIX-CONNECT:{}", link.display()));
        let socat = Part::start(&mut socat, false);
        parts.splice(..0, [socat, forward]);
        let chain = Self {
            net,
            link,
            forwarder,
            _parts: parts,
            _sshd: sshd,
            _directory: directory,
        };
        chain.wait_for_socat();
        chain
    }

    fn wait_for_socat(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let listening = format!(":{SOCAT_PORT:04X} 00000000:0000 0A");
        loop {
            let table = self
                .net
                .far("cat")
                .arg("/proc/self/net/tcp")
                .output()
                .unwrap();
            if String::from_utf8_lossy(&table.stdout).contains(&listening) {
                return;
            }
            assert!(Instant::now() < deadline, "socat does not listen");
        }
    }

    fn target(&self, peer: Peer) -> String {
        match peer {
            Peer::Bare => format!("unix:{}", self.link.display()),
            Peer::Forwarder => format!("tcp:{}", self.forwarder.0),
            Peer::Socat => format!("tcp:{SOCAT_PORT}"),
        }
    }

    /// Does some work on the host through each peer; the values of each, in order of time.
    pub fn load(&self, work: Work) -> Vec<Vec<f64>> {
        let this = std::env::current_exe().unwrap();
        let mut load = self.net.far(this);
        let numbers = [work.turns, work.count].map(|number| number.to_string());
        load.args(["load", work.what.name()])
            .args(numbers)
            .args(Peer::ALL.map(|peer| self.target(peer)));
        let output = load.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{work:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The forwarder's memory, KiB: now, and the most there was.
    pub fn forwarder_memory(&self) -> (u64, u64) {
        memory(self.forwarder.1)
    }

    /// Its memory with as many idle connections as it takes, KiB.
    pub fn memory_of_many(&self) -> u64 {
        let path = self.link.with_file_name("agent.sock");
        let open: Vec<UnixStream> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                crate::load::ask(&mut stream, "GET /small HTTP/1.1\r\n\r\n").unwrap();
                stream
            })
            .collect();
        let memory = self.forwarder_memory().0;
        drop(open);
        memory
    }
}

/// A process's resident memory, KiB: now, and the most there was.
pub fn memory(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmRSS"), of("VmHWM"))
}

/// A role: a forwarder on the host, whose port and pid it prints.
pub fn forward(link: &Path, directory: &Path) {
    let program = directory.join("labproxy-remote");
    fs::write(
        &program,
        zstd::decode_all(labproxy::tunnel::program::COMPRESSED).unwrap(),
    )
    .unwrap();
    let status = Command::new("chmod").arg("700").arg(&program).status();
    assert!(status.unwrap().success());
    let listeners = Listeners::bind(directory).unwrap();
    let mut forwarder = Forwarder::start(&program, listeners, Duration::from_mins(10)).unwrap();
    forwarder.up(&ForwardEnd::Socket(ByteString::from(link)));
    println!("{} {}", forwarder.port(), forwarder.pid());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
