//! A host with the forwarder on it, and ssh to it.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::Duration;

use labproxy::remote::forward::{Forwarder, Listeners};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::ForwardEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

use crate::host_program;
use crate::netpair::{FAR, NetPair};
use crate::sshd::{HOST, Sshd};

/// Longer than anything here takes; a test that gets here has failed.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The forwarder on the host, ssh's server there, and the proxy's place here.
pub struct Host {
    pub forwarder: Forwarder,
    pub sshd: Sshd,
    /// Where connections come out of the tunnel.
    pub proxy: TcpListener,
    pub net: NetPair,
    directory: TempDir,
    links: u32,
    /// Accepted, and nothing came on them yet.
    unused: Vec<TcpStream>,
}

impl Host {
    pub fn new() -> Self {
        let net = NetPair::joined();
        let directory = tempfile::tempdir().unwrap();
        let sshd = Sshd::start(|program| net.far(program), FAR, directory.path());
        sshd.wait(|program| net.near(program));
        let forwarder = net.in_far(|| {
            let listeners = Listeners::bind(directory.path()).unwrap();
            let lease = Duration::from_mins(10);
            Forwarder::start(&host_program::path(), listeners, lease).unwrap()
        });
        let proxy = net.in_near(|| TcpListener::bind("127.0.0.1:0").unwrap());
        Self {
            forwarder,
            sshd,
            proxy,
            net,
            directory,
            links: 0,
            unused: Vec::new(),
        }
    }

    /// Makes a link and tells the forwarder.
    pub fn link(&mut self) -> Link {
        self.links += 1;
        let socket = self
            .directory
            .path()
            .join(format!("link-{}.sock", self.links));
        let port = self.proxy.local_addr().unwrap().port();
        let forward = format!("{}:127.0.0.1:{port}", socket.display());
        let mut ssh = self.net.near("ssh");
        ssh.arg("-F").arg(&self.sshd.config);
        // The server's process for this link is what the remote command's parent is.
        ssh.args(["-R", &forward, HOST, "echo $PPID; exec cat"]);
        ssh.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut ssh = ssh.spawn().unwrap();
        let mut line = String::new();
        let output = ssh.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        self.forwarder
            .up(&ForwardEnd::Socket(ByteString::from(&socket)));
        let server: u32 = line.trim().parse().unwrap();
        let pid = Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
        let held = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Link { ssh, server, held }
    }

    /// A connection of the agent.
    pub fn connect(&self) -> TcpStream {
        let port = self.forwarder.port();
        let agent = self
            .net
            .in_far(|| TcpStream::connect(("127.0.0.1", port)).unwrap());
        agent.set_read_timeout(Some(PATIENCE)).unwrap();
        agent
    }

    /// Where the connection comes out at the proxy: the first that carries something. The forwarder
    /// opens one ahead of its client, and lets those go that nobody used.
    pub fn accepted(&mut self) -> TcpStream {
        let patience = Timespec::try_from(PATIENCE).unwrap();
        loop {
            let mut all = vec![PollFd::new(&self.proxy, PollFlags::IN)];
            all.extend(
                self.unused
                    .iter()
                    .map(|one| PollFd::new(one, PollFlags::IN)),
            );
            assert!(poll(&mut all, Some(&patience)).unwrap() > 0, "no request");
            let ready: Vec<bool> = all.iter().map(|one| !one.revents().is_empty()).collect();
            if let Some(at) = ready.iter().skip(1).position(|ready| *ready) {
                let stream = self.unused.swap_remove(at);
                if stream.peek(&mut [0; 1]).is_ok_and(|carried| carried > 0) {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
            } else {
                self.unused.push(self.proxy.accept().unwrap().0);
            }
        }
    }
}

/// An ssh that runs.
pub struct Link {
    ssh: Child,
    /// The server's process for it.
    pub server: u32,
    /// The same, whoever has that number later.
    held: OwnedFd,
}

impl Link {
    pub fn client(&self) -> u32 {
        self.ssh.id()
    }

    /// Waits until the server's process has ended, and its sockets with it.
    pub fn server_ended(&self) {
        let patience = Timespec::try_from(PATIENCE).unwrap();
        let mut ends = [PollFd::new(&self.held, PollFlags::IN)];
        assert_eq!(poll(&mut ends, Some(&patience)).unwrap(), 1, "it goes on");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.ssh.kill());
        drop(self.ssh.wait());
    }
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
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
