//! Sessions that are told to end while their host cannot be reached.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::losses::ssh_of;
use crate::rig::{eventually, is_alive, kill};
use crate::sshd::World;

/// Far below what a host that is tried on takes: the grace and 15 s.
const AT_ONCE: Duration = Duration::from_secs(8);

/// A session in front, its agent, and what it says.
struct Cut {
    labproxy: Child,
    agent: i32,
    said: PathBuf,
}

impl Cut {
    /// Starts a session and takes its host away.
    fn new(world: &mut World) -> Self {
        let said = world.rig.path("said");
        let mut labproxy = world
            .start(&[], &["sh", "-c", "echo $$; exec sleep 1000"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(labproxy.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let agent = line.trim_end().parse().unwrap();
        let cut = Self {
            labproxy,
            agent,
            said,
        };
        world.stop_sshd();
        kill("KILL", ssh_of(cut.pid()).unwrap());
        cut.says("link to gpu1 lost");
        cut
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.labproxy.id()).unwrap()
    }

    fn says(&self, what: &str) {
        eventually(what, || {
            let said = std::fs::read_to_string(&self.said).unwrap();
            said.contains(what).then_some(())
        });
    }

    fn code(&mut self) -> Option<i32> {
        self.labproxy.wait().unwrap().code()
    }
}

/// A signal is acted on at once, a second one ends at once, the session is listed as unconfirmed, and
/// only a flag makes it be forgotten; when the host is back it is asked again.
#[test]
fn an_end_without_a_link_is_told_and_can_be_hurried() {
    let mut world = World::new();
    let mut cut = Cut::new(&mut world);
    kill("INT", cut.pid());
    cut.says("gpu1 cannot be reached; everything there ends when its lease is over, within 1");
    let begun = Instant::now();
    kill("INT", cut.pid());
    assert_eq!(cut.code(), Some(130));
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    cut.says("cannot confirm that nothing of the session is left on gpu1");
    assert!(is_alive(cut.agent));
    assert_eq!(world.rig.list()[0]["state"], "unconfirmed");

    let session = world.rig.session();
    let done = world.rig.labproxy(&["session", "discard", &session]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("--leave-remains"), "{done:?}");
    assert_eq!(world.rig.list()[0]["state"], "unconfirmed");
    world.start_sshd();
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    eventually("the end", || (!is_alive(cut.agent)).then_some(()));
}

/// Without a second signal the host is tried for a while, and used when it is back.
#[test]
fn a_host_that_is_back_is_still_asked_to_end_everything() {
    let mut world = World::new();
    let mut cut = Cut::new(&mut world);
    kill("TERM", cut.pid());
    cut.says("gpu1 cannot be reached; everything there ends when its lease is over");
    world.start_sshd();
    assert_eq!(cut.code(), Some(143));
    cut.says("nothing of the session is left on gpu1");
    assert!(!is_alive(cut.agent));
}

/// `session stop` ends what is here, and fails as nothing is confirmed; the session can be forgotten,
/// and what may be left is told.
#[test]
fn a_stop_without_a_link_fails_and_the_session_can_be_forgotten() {
    let mut world = World::new();
    world.lease("20s");
    let mut cut = Cut::new(&mut world);
    let session = world.rig.session();
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("cannot confirm"), "{done:?}");
    assert_eq!(cut.code(), Some(143));
    let done = world
        .rig
        .labproxy(&["session", "discard", "--leave-remains", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let place = world.there(&session).display().to_string();
    let told = format!(
        "{place} on gpu1 may be left, and what runs there ends by itself when the lease of 20 s is over"
    );
    assert!(done.stdout.contains(&told), "{done:?}");
    assert!(world.rig.list().is_empty());
    eventually("the lease's end", || (!is_alive(cut.agent)).then_some(()));
}
