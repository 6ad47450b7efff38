//! Sessions on a host whose link is cut, frozen or killed: short of the lease nothing is lost, and
//! after it nothing is left but the work.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use labproxy::processes::ProcessStamp;
use rustix::process::Signal;

use crate::netpair::is_possible;
use crate::rig::signal;
use crate::world::{Session, World, within};

/// Says its pid, counts aloud ten times a second, and repeats what it is told; then its pid again.
const TALKER: &str = r#"echo "pid $$"
(i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo "out $i"; sleep 0.1; done) &
while read -r line; do echo "in $line"; done
wait
echo "pid $$""#;
/// Says its pid and those of children that try to get away, leaves some work, and stays.
const STAYER: &str = r#"echo work > work.txt
setsid sleep 1000 & a=$!
(setsid sh -c 'sleep 1000 & echo $! > twice; exec sleep 1000' &)
while ! [ -s twice ]; do sleep 0.05; done
echo "$$ $a $(cat twice)"
sleep 1000"#;
/// A lease as in the rows of the contract, and how soon after it everything must be gone.
const LEASE: &str = "5s";
const GONE: Duration = Duration::from_secs(35);

fn signal_to(process: ProcessStamp, number: Signal) {
    signal(u32::try_from(process.pid).unwrap(), number);
}

/// What a talker says when nothing is lost and nothing comes twice, while something is done to its
/// link after two seconds.
fn talks_through(disturb: impl Fn(&World, &Session) + Sync) {
    let world = World::new();
    let mut session = world.start("120s", TALKER);
    let pid = session.line();
    let mut stdin = session.stdin.take().unwrap();
    let (mut out, mut heard) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 1..=300 {
                use std::io::Write as _;
                writeln!(stdin, "{number}").unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        });
        for line in 0..600 {
            let line_text = session.line();
            match line_text.split_once(' ') {
                Some(("out", number)) => out.push(number.parse::<u32>().unwrap()),
                Some(("in", number)) => heard.push(number.parse::<u32>().unwrap()),
                _ => panic!("{line_text}"),
            }
            if line == 40 {
                disturb(&world, &session);
            }
        }
    });
    let all: Vec<u32> = (1..=300).collect();
    assert_eq!((out, heard), (all.clone(), all));
    assert_eq!(session.line(), pid, "another agent");
    let guard = world.guard();
    let (code, said) = session.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!guard.is_alive());
}

#[test]
fn a_link_that_is_cut_for_ten_seconds_loses_and_repeats_nothing() {
    if !is_possible() {
        return;
    }
    talks_through(|world, _| {
        world.net.cut();
        thread::sleep(Duration::from_secs(10));
        world.net.restore();
    });
}

/// Long enough that both sides give the link up and make another.
#[test]
fn a_link_that_is_cut_until_it_is_dead_is_replaced() {
    if !is_possible() {
        return;
    }
    talks_through(|world, _| {
        world.net.cut();
        thread::sleep(Duration::from_secs(20));
        world.net.restore();
    });
}

/// The ssh of a session: a descendant of labproxy.
fn ssh_of(session: &Session) -> Vec<ProcessStamp> {
    let labproxy = ProcessStamp::of(session.pid()).unwrap();
    let ssh = |process: &ProcessStamp| {
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid));
        name.is_ok_and(|name| name.trim() == "ssh")
    };
    labproxy.descendants().into_iter().filter(ssh).collect()
}

#[test]
fn a_killed_ssh_is_replaced() {
    if !is_possible() {
        return;
    }
    talks_through(|_, session| {
        let all = ssh_of(session);
        assert!(!all.is_empty());
        for ssh in all {
            signal_to(ssh, Signal::KILL);
        }
    });
}

#[test]
fn a_stopped_sshd_is_left_for_another_link() {
    if !is_possible() {
        return;
    }
    talks_through(|world, _| {
        let logins = world.sshd.logins();
        assert!(!logins.is_empty());
        for login in logins {
            signal_to(login, Signal::STOP);
        }
    });
}

/// A client of ssh that does nothing is noticed by its silence, killed and replaced.
#[test]
fn tu06_m72_a_stopped_ssh_is_replaced() {
    if !is_possible() {
        return;
    }
    let stopped = Mutex::new(Vec::new());
    talks_through(|_, session| {
        let all = ssh_of(session);
        assert!(!all.is_empty());
        for ssh in &all {
            signal_to(*ssh, Signal::STOP);
        }
        stopped.lock().unwrap().extend(all);
    });
    let stopped = stopped.into_inner().unwrap();
    assert!(!stopped.iter().any(ProcessStamp::is_alive));
}

/// A stayer, and everything that runs for it on the host.
fn stays(world: &World, session: &Session) -> Vec<ProcessStamp> {
    let pids = session.line();
    let pids = pids.split(' ').map(|pid| pid.parse().unwrap());
    let mut all: Vec<_> = pids.map(|pid| ProcessStamp::of(pid).unwrap()).collect();
    let record = world.record();
    all.extend([record.guard, record.supervisor]);
    all.extend(record.guard.descendants());
    all
}

/// A stayer in a world of its own: what runs for it on the host, and where its sockets are there.
fn staying() -> (World, Session, Vec<ProcessStamp>, PathBuf) {
    let world = World::new();
    let session = world.start(LEASE, STAYER);
    let all = stays(&world, &session);
    let runtime = world.record().place.path();
    (world, session, all, runtime)
}

/// Within the lease and half a minute nothing runs, no socket is left, and the work is there.
fn assert_gone(world: &World, all: &[ProcessStamp], runtime: &std::path::Path) {
    within(GONE, "the end of every process", || {
        !all.iter().any(ProcessStamp::is_alive)
    });
    within(GONE, "the end of the sockets", || !runtime.exists());
    let work = world.session().join("workspace/work.txt");
    assert_eq!(fs::read_to_string(work).unwrap(), "work\n");
}

#[test]
fn t13_a_link_that_is_cut_for_longer_than_the_lease_leaves_only_the_work() {
    if !is_possible() {
        return;
    }
    let (world, session, all, runtime) = staying();
    world.net.cut();
    assert_gone(&world, &all, &runtime);
    world.net.restore();
    let (code, said) = session.end();
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("lease"), "{said}");
}

/// A server of ssh that does nothing any more, for a login or for a new one, is as good as none.
#[test]
fn tu06_m72_an_ssh_server_that_is_stopped_for_longer_than_the_lease_leaves_only_the_work() {
    if !is_possible() {
        return;
    }
    let (world, session, all, runtime) = staying();
    let server = ProcessStamp::of(world.sshd.pid()).unwrap();
    let mut stopped = world.sshd.logins();
    stopped.push(server);
    for process in &stopped {
        signal_to(*process, Signal::STOP);
    }
    assert_gone(&world, &all, &runtime);
    let (code, said) = session.end();
    for process in stopped.iter().filter(|process| process.is_alive()) {
        signal_to(*process, Signal::CONT);
    }
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("lease"), "{said}");
}

#[test]
fn a_killed_controller_leaves_only_the_work() {
    if !is_possible() {
        return;
    }
    let (world, mut session, all, runtime) = staying();
    let ssh = ssh_of(&session);
    assert!(!ssh.is_empty());
    session.child.kill().unwrap();
    assert_gone(&world, &all, &runtime);
    within(GONE, "the end of ssh", || {
        !ssh.iter().any(ProcessStamp::is_alive)
    });
    drop(session.end());
}

/// Either of the two that watch each other.
fn helper_killed(which: impl Fn(&World) -> ProcessStamp, says: &str) {
    let (world, session, all, runtime) = staying();
    signal_to(which(&world), Signal::KILL);
    assert_gone(&world, &all, &runtime);
    let (code, said) = session.end();
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains(says), "{said}");
    assert!(said.contains("host_killed"), "{said}");
    assert!(!said.contains("SIGTERM"), "{said}");
}

#[test]
fn a_killed_supervisor_leaves_only_the_work() {
    if is_possible() {
        let says = "the session's supervisor on far is gone";
        helper_killed(|world| world.record().supervisor, says);
    }
}

#[test]
fn a_killed_guard_leaves_only_the_work() {
    if is_possible() {
        helper_killed(World::guard, "the session's guard on far was killed");
    }
}
