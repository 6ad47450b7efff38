//! `push --watch` over a ssh that is lost: the watch waits for the host and goes on, or says why it
//! cannot.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::host::{World, children, signal};

/// What must come comes within this, on however busy a machine.
const SOON: Duration = Duration::from_mins(2);

/// A watch that runs, and what it says, line by line.
struct Watching {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            drop(sender.send(line.unwrap()));
        }
    });
    lines
}

impl Watching {
    fn start(world: &World) -> Self {
        let mut command = world.command("push", &["--watch"]);
        command.stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Waits for a line of standard error that has this in it.
    #[track_caller]
    fn says(&self, wanted: &str) {
        loop {
            let line = self.stderr.recv_timeout(SOON);
            let line = line.unwrap_or_else(|error| panic!("no line with '{wanted}': {error}"));
            if line.contains(wanted) {
                return;
            }
        }
    }

    /// Waits for pushes until this holds.
    #[track_caller]
    fn until(&self, holds: impl Fn() -> bool) {
        while !holds() {
            self.stdout.recv_timeout(SOON).expect("a push");
        }
    }

    /// Cuts the link as a dying network does for the one who keeps the time: its ssh ends.
    fn cut(&self) {
        let ssh = children(self.child.id(), "ssh");
        assert_eq!(ssh.len(), 1, "one connection");
        signal(&ssh, Signal::KILL);
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The host is away for a while, and edits go on: they are pushed when it is back, all of them, and
/// nobody has to do anything.
#[test]
fn a_watch_goes_on_when_the_host_is_back() {
    let mut world = World::new();
    world.rig.write("local/a", "one");
    let running = Watching::start(&world);
    running.until(|| world.rig.has("far/a"));
    // A link that is lost and can be made again at once.
    running.cut();
    world.rig.write("local/a", "two");
    running.says("the link to the other end is lost; trying again in 1 s");
    running.says("the link is back");
    running.until(|| world.rig.read("far/a") == b"two");
    // A host that is away.
    world.stop_sshd();
    running.cut();
    world.rig.write("local/a", "three");
    running.says("trying again in 1 s");
    running.says("there is no link to gpu1");
    running.says("trying again in 2 s");
    world.rig.write("local/b", "while it was away");
    world.start_sshd();
    running.says("the link is back");
    running.until(|| world.rig.has("far/b"));
    assert_eq!(world.rig.read("far/a"), b"three");
    let pid = Pid::from_raw(i32::try_from(running.child.id()).unwrap()).unwrap();
    signal(&[pid], Signal::INT);
    assert_eq!(running.ends(), Some(130));
}

/// A login that is refused is not tried again and again: the watch ends and says so.
#[test]
fn a_watch_ends_when_the_login_is_refused() {
    let world = World::new();
    world.rig.write("local/a", "one");
    let running = Watching::start(&world);
    running.until(|| world.rig.has("far/a"));
    fs::write(world.rig.path("ssh/user.pub"), "").unwrap();
    running.cut();
    world.rig.write("local/a", "two");
    running.says("trying again in 1 s");
    running.says("there is no link to gpu1");
    assert_eq!(running.ends(), Some(1));
    assert_eq!(world.rig.read("far/a"), b"one");
}
