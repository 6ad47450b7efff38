//! Two machines in one: a pair of network namespaces that nobody else is in, joined by a cable that
//! can be pulled, or by one that takes its time. Needs root. Everything goes when the pair is
//! dropped, and when the process that has it dies.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Addresses of the two ends.
pub const NEAR: &str = "10.77.0.1";
pub const FAR: &str = "10.77.0.2";
/// The cable's ends, in the namespaces.
const NEAR_END: &str = "cable0";
const FAR_END: &str = "cable1";

/// A process that ends when its standard input does, so when we do.
struct Held(Child);

impl Held {
    /// Starts it and waits until it has printed a line.
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let mut line = String::new();
        let output = child.stdout.take().expect("it has an output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says that it is there");
        assert!(!line.is_empty(), "{command:?} ended");
        Self(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// A network namespace: a process is in it.
struct Namespace(Held);

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo there; exec cat"]);
        let namespace = Self(Held::start(&mut command));
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    /// A command in it.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.pid()))
            .arg("--")
            .arg(program);
        command
    }

    /// Runs `act` in a thread that is in it.
    fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.pid());
        let namespace = File::open(path).expect("the namespace is there");
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).expect("root may enter it");
                act()
            });
            inside.join().expect("it did not panic")
        })
    }

    fn ip(&self, arguments: &[&str]) {
        let status = self.command("ip").args(arguments).status();
        assert!(status.expect("ip can be run").success(), "ip {arguments:?}");
    }

    fn pid(&self) -> String {
        self.0.0.id().to_string()
    }
}

/// Whether there can be a pair; when not, says so.
pub fn is_possible() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: nothing is tried over a network of its own");
    }
    is_root
}

/// The pair.
pub struct NetPair {
    // Dropped first: it has a device in each.
    _delay: Option<Held>,
    near: Namespace,
    far: Namespace,
}

impl NetPair {
    /// Joined by a cable that takes no time.
    pub fn joined() -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        let far_pid = far.pid();
        near.ip(&[
            "link", "add", NEAR_END, "type", "veth", "peer", "name", FAR_END, "netns", &far_pid,
        ]);
        Self::with(near, far, None)
    }

    /// Joined by a way that takes `delay` in each direction.
    pub fn delayed(delay: Duration) -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/delay.py");
        let mut command = near.command("python3");
        command
            .arg(script)
            .args([NEAR_END, FAR_END, &delay.as_millis().to_string()]);
        let delay = Held::start(&mut command);
        near.ip(&["link", "set", FAR_END, "netns", &far.pid()]);
        Self::with(near, far, Some(delay))
    }

    fn with(near: Namespace, far: Namespace, delay: Option<Held>) -> Self {
        for (namespace, end, own, other) in
            [(&near, NEAR_END, NEAR, FAR), (&far, FAR_END, FAR, NEAR)]
        {
            let address = format!("{own}/32");
            namespace.ip(&["addr", "add", &address, "peer", other, "dev", end]);
            namespace.ip(&["link", "set", end, "up"]);
        }
        Self {
            _delay: delay,
            near,
            far,
        }
    }

    /// A command on the controller's machine.
    pub fn near(&self, program: impl AsRef<OsStr>) -> Command {
        self.near.command(program)
    }

    /// A command on the host.
    pub fn far(&self, program: impl AsRef<OsStr>) -> Command {
        self.far.command(program)
    }

    /// Does something on the controller's machine: sockets belong where they are made.
    pub fn in_near<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.near.inside(act)
    }

    /// Does something on the host.
    pub fn in_far<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.far.inside(act)
    }

    /// Pulls the cable: nothing passes, and nobody is told.
    pub fn cut(&self) {
        self.far.ip(&["link", "set", FAR_END, "down"]);
    }

    /// Puts it back.
    pub fn restore(&self) {
        self.far.ip(&["link", "set", FAR_END, "up"]);
        // The route went with the link's state.
        self.far.ip(&["route", "replace", NEAR, "dev", FAR_END]);
    }
}
