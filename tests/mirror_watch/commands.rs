//! `mirror push --watch` as a person runs it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::Rig;

/// What must come comes within this, on however busy a machine.
const SOON: Duration = Duration::from_mins(1);

/// A watch that runs, and what it prints.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                drop(sender.send(line.unwrap()));
            }
        });
        Self { child, lines }
    }

    /// The next summary.
    #[track_caller]
    fn pushed(&mut self) -> String {
        let line = self.lines.recv_timeout(SOON);
        line.unwrap_or_else(|error| panic!("nothing was pushed ({error}): {}", self.end()))
    }

    /// Waits for pushes until this holds.
    #[track_caller]
    fn until(&mut self, holds: impl Fn() -> bool) {
        while !holds() {
            self.pushed();
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends it, and gives what it said on standard error.
    fn end(&mut self) -> String {
        self.signal(Signal::INT);
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    fn status(mut self) -> (Option<i32>, String) {
        let said = self.end();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn watch(rig: &Rig, more: &[&str]) -> Command {
    let (local, far) = (rig.path("local"), rig.path("far"));
    let mut command = rig.command(["mirror", "push", "--watch"]);
    command.args([local, far]).args(more);
    command
}

/// The first push is made at once, each edit is pushed, and Ctrl-C ends it with what is there.
#[test]
fn edits_are_pushed_until_it_is_interrupted() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    let mut running = Running::start(watch(&rig, &["--exclude", "build"]));
    assert!(running.pushed().starts_with("pushed 1 new"));
    rig.write("local/a", "two");
    running.until(|| rig.read("far/a") == b"two");
    rig.write("local/new/deep/b", "three");
    running.until(|| rig.has("far/new/deep/b"));
    rig.write("local/build/x", "no");
    fs::remove_file(rig.path("local/a")).unwrap();
    running.until(|| !rig.has("far/a"));
    assert!(!rig.has("far/build"));
    let (status, said) = running.status();
    assert_eq!(status, Some(130), "{said}");
    // Both ends are free again, and agree.
    assert!(rig.push("").stdout.contains("0 new, 0 changed"));
}

/// A file of excludes that is edited meanwhile has no effect, and that is said, once.
#[test]
fn excludes_that_are_edited_meanwhile_are_told_once() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    let mut running = Running::start(watch(&rig, &[]));
    running.until(|| rig.has("far/a"));
    rig.write("local/.labproxyignore", "b\n");
    running.until(|| rig.has("far/.labproxyignore"));
    rig.write("local/b", "two");
    running.until(|| rig.has("far/b"));
    let (status, said) = running.status();
    assert_eq!(status, Some(130), "{said}");
    let note = ".labproxyignore is not what it was";
    assert_eq!(said.matches(note).count(), 1, "{said}");
}

/// No watch tells of a write through a name outside, or of a store through a mapped page; the next
/// push has the bytes.
#[test]
fn m44_what_no_watch_tells_goes_with_the_next_push() {
    let rig = Rig::new();
    rig.write("outside", "old");
    fs::hard_link(rig.path("outside"), rig.path("local/linked")).unwrap();
    rig.write("local/mapped", vec![b'a'; 4_096]);
    let mut running = Running::start(watch(&rig, &[]));
    running.pushed();
    fs::write(rig.path("outside"), "new").unwrap();
    let store = "import mmap,sys\n\
                 f=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[0:1]=b'b'\n";
    let status = Command::new("python3")
        .args(["-c", store])
        .arg(rig.path("local/mapped"))
        .status();
    assert!(status.unwrap().success());
    rig.write("local/touched", "x");
    running.until(|| rig.has("far/touched"));
    assert_eq!(rig.read("far/linked"), b"new");
    assert_eq!(rig.read("far/mapped")[0], b'b');
    let (status, said) = running.status();
    assert_eq!(status, Some(130), "{said}");
}

/// Where the kernel watches no more directories, that is said with the limit's name, and edits are
/// looked for.
#[test]
fn m41_at_the_limit_of_watches_edits_are_looked_for() {
    let rig = Rig::new();
    for number in 0..20 {
        rig.write(format!("local/d{number}/file"), "one");
    }
    let watch = watch(&rig, &[]);
    // A user namespace has a limit of its own, which its own root may lower.
    let script = "echo 10 >/proc/sys/user/max_inotify_watches && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]);
    command.arg(watch.get_program()).args(watch.get_args());
    command.env_clear().envs(
        watch
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(watch.get_current_dir().unwrap());
    command.stdin(Stdio::null()).process_group(0);
    let mut running = Running::start(command);
    running.pushed();
    rig.write("local/d19/file", "two");
    running.until(|| rig.read("far/d19/file") == b"two");
    fs::remove_file(rig.path("local/d3/file")).unwrap();
    running.until(|| !rig.has("far/d3/file"));
    let (status, said) = running.status();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("fs.inotify.max_user_watches"), "{said}");
    assert!(said.contains("sysctl"), "{said}");
    assert_eq!(said.matches("warning").count(), 1, "{said}");
}

/// What somebody changed at the other end is not overwritten: the watch ends and says so.
#[test]
fn a_change_at_the_other_end_ends_it() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    let mut running = Running::start(watch(&rig, &[]));
    running.pushed();
    rig.write("far/theirs", "x");
    rig.write("local/a", "two");
    let mut said = String::new();
    let mut stderr = running.child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("theirs"), "{said}");
    assert_eq!(rig.read("far/a"), b"one");
}
