//! Each of the host side's processes is killed in turn: nothing stays behind.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Instant;

use labproxy::processes::{ProcessStamp, seen};
use labproxy::remote::guard::{BEAT, MISSED_MAX};
use labproxy::wire::frame;
use labproxy::wire::link::{ExecId, FromHost, HostPart, Refusal, ToHost};
use rustix::process::Signal;

use crate::client::{Client, Open, shell};
use crate::rig::{Host, PATIENCE, exists, kill, running, until, within};

/// A session with a program that left a child in a session of its own.
fn session(host: &Host) -> (Client, ProcessStamp, String) {
    let mut client = Client::new(host);
    let mark = format!("33{}{}", std::process::id(), host.session.len());
    let mark = format!("{mark}{}", host.session.rsplit('-').next().unwrap());
    let script =
        format!("setsid sleep {mark} & trap '' TERM; echo ready; while :; do sleep {mark}; done");
    let exec = client.start(1, &shell(&script));
    client.pump(|client| client.execs[&exec].stdout == b"ready\n");
    let agent = ProcessStamp::of(client.execs[&exec].pid.unwrap() as i32).unwrap();
    (client, agent, format!("sleep {mark}"))
}

/// The supervisor is killed: the guard ends everything and removes what it made.
#[test]
fn a_killed_supervisor_leaves_nothing() {
    let host = Host::new();
    let (client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    kill(record.supervisor, Signal::KILL);
    until("the guard is done", || !record.guard.is_alive());
    assert!(!agent.is_alive());
    assert_eq!(running(&mark), Vec::<i32>::new());
    assert!(!exists(&record.place.path()) && host.record().is_none());
    assert!(host.workspace().is_dir());
    drop(client);
}

/// The host's side says who was killed, and tells no end that the program did not make.
fn says(client: &mut Client, part: HostPart) {
    let refusal = client.refusal();
    assert_eq!(refusal, Refusal::Killed { part, left: 0 });
    assert_eq!(client.execs[&ExecId(1)].exited, None);
}

/// The supervisor is stopped, and no lease of its ends: the guard does, and well before this lease.
#[test]
fn t39_a_stopped_supervisor_leaves_nothing() {
    let host = Host::new();
    let (client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    let began = Instant::now();
    kill(record.supervisor, Signal::STOP);
    let limit = BEAT * MISSED_MAX;
    within(limit + PATIENCE, "the guard is done", || {
        !record.guard.is_alive()
    });
    // The beat before the stop may be half a beat old.
    assert!(
        began.elapsed() >= BEAT * (MISSED_MAX - 1),
        "{:?}",
        began.elapsed()
    );
    assert!(host.log().contains("the supervisor is silent"));
    assert!(!agent.is_alive() && !record.supervisor.is_alive());
    assert_eq!(running(&mark), Vec::<i32>::new());
    assert!(!exists(&record.place.path()) && host.record().is_none());
    assert!(host.workspace().is_dir());
    drop(client);
}

/// A guard that is stopped once goes on, and so does the session; stopped at the very end, it does
/// not stay.
#[test]
fn t39_a_stopped_guard_goes_on() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let record = host.record().unwrap();
    let is_stopped = || seen(record.guard.pid).is_some_and(|guard| guard.state == 'T');
    kill(record.guard, Signal::STOP);
    until("the guard goes on", || !is_stopped());
    assert_eq!(client.run(1, &shell("echo on"), b"").stdout, b"on\n");
    kill(record.guard, Signal::STOP);
    until("it is stopped again", is_stopped);
    client.end(0);
    drop(client);
    until("both are gone", || {
        !record.guard.is_alive() && !record.supervisor.is_alive()
    });
    assert!(!exists(&record.place.path()) && host.record().is_none());
}

/// A guard that is stopped again and again is given up, and everything ends.
#[test]
fn t39_a_guard_that_stays_stopped_ends_the_session() {
    let host = Host::new();
    let (client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    within(BEAT * MISSED_MAX + PATIENCE, "the guard is gone", || {
        kill(record.guard, Signal::STOP);
        !record.guard.is_alive()
    });
    until("the supervisor is done", || !record.supervisor.is_alive());
    assert!(host.log().contains("stopped again and again"));
    assert!(!agent.is_alive());
    assert_eq!(running(&mark), Vec::<i32>::new());
    assert!(!exists(&record.place.path()) && host.record().is_none());
    drop(client);
}

/// The guard is killed: the supervisor ends everything, removes what was made and says so.
#[test]
fn a_killed_guard_leaves_nothing() {
    let host = Host::new();
    let (mut client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    kill(record.guard, Signal::KILL);
    says(&mut client, HostPart::Guard);
    until("the supervisor is done", || !record.supervisor.is_alive());
    assert!(!agent.is_alive());
    assert_eq!(running(&mark), Vec::<i32>::new());
    assert!(!exists(&record.place.path()) && host.record().is_none());
}

/// Both are stopped, as by a debugger or a freezer: nobody is left to see it, until somebody comes, for
/// this session or for another one. Then they go on, and judge the lease themselves.
#[test]
fn t39_a_stopped_guard_and_supervisor_go_on_when_somebody_comes() {
    for (comes_for, lease_ms) in [("it", 60_000), ("another", 5_000)] {
        let host = Host::new();
        let open = Open {
            lease_ms,
            ..Open::default()
        };
        let mut client = Client::connect(&host, &open);
        client.attach();
        let record = host.record().unwrap();
        for process in [record.guard, record.supervisor] {
            kill(process, Signal::STOP);
        }
        until("both are stopped", || {
            let state = |process: ProcessStamp| seen(process.pid).unwrap().state;
            state(record.guard) == 'T' && state(record.supervisor) == 'T'
        });
        drop(client);
        let other = Open {
            session: (comes_for == "another").then(|| format!("{}-other", host.session)),
            link: 2,
            ..Open::default()
        };
        let mut next = Client::connect(&host, &other);
        next.attach();
        if comes_for == "another" {
            until("its lease ends it", || {
                !record.guard.is_alive() && !record.supervisor.is_alive()
            });
            assert!(!exists(&record.place.path()));
        }
        next.end(0);
    }
}

/// A controller whose link was down when the guard died is told what became of the session, not that
/// there is none: a program that does not mind TERM keeps the end going.
#[test]
fn a_controller_that_comes_back_during_the_end_is_told_why() {
    let host = Host::new();
    let (client, agent, _) = session(&host);
    let record = host.record().unwrap();
    drop(client);
    kill(record.guard, Signal::KILL);
    until("the end has begun", || {
        host.log().contains("the guard is gone")
    });
    assert!(agent.is_alive());
    let open = Open {
        role: "attach",
        link: 2,
        must_live: true,
        ..Open::default()
    };
    let mut back = Client::connect(&host, &open);
    back.of(ExecId(1)).stdout = b"ready\n".to_vec();
    back.attach();
    let refusal = back.refusal();
    let part = HostPart::Guard;
    assert_eq!(refusal, Refusal::Killed { part, left: 0 });
    assert!(!agent.is_alive());
}

/// A supervisor that cannot begin says why to whoever asked for it, and leaves nothing: here it has too
/// few descriptors, a little more than its guard needs.
#[test]
fn a_supervisor_that_cannot_begin_says_why() {
    let nonce = "00112233445566778899aabbccddeeff";
    let mut refused = Vec::new();
    for descriptors in 14..=26 {
        let host = Host::new();
        let helper = host.helper(&["supervise", nonce]);
        let mut command = host.helper(&[]);
        command = limited(&command, descriptors, helper.get_args());
        let open = Open::default();
        let child = command.spawn().unwrap();
        let mut client = Client::over(child, &host, &open, nonce.parse().unwrap());
        client.send(&ToHost::Attach { execs: Vec::new() });
        let answer = client.next(PATIENCE).unwrap();
        match frame::decode::<FromHost<'_>>(&answer).unwrap() {
            FromHost::Attached { .. } => drop(client.end(0)),
            FromHost::Refused(Refusal::Failed { what }) => {
                assert!(what.contains("Too many open files"), "{what}");
                assert!(host.record().is_none(), "{what}");
                refused.push(what);
            }
            other => panic!("{descriptors}: {other:?}"),
        }
    }
    let of_supervisor = |what: &&String| what.starts_with("no supervisor: ");
    assert!(
        refused.iter().any(|what| of_supervisor(&what)),
        "{refused:?}"
    );
}

/// The program of a command with these arguments and so many descriptors.
fn limited<'a>(
    command: &Command,
    descriptors: u32,
    arguments: impl Iterator<Item = &'a OsStr>,
) -> Command {
    let mut limited = Command::new("prlimit");
    limited
        .arg(format!("--nofile={descriptors}"))
        .arg(command.get_program())
        .args(arguments)
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    limited
}

/// Both are killed: the program dies by its death signal, and the next session sweeps the rest.
#[test]
fn killed_guard_and_supervisor_leave_no_program() {
    let host = Host::new();
    let (client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    // Stopped first, so that neither can do anything about the other's death.
    kill(record.guard, Signal::STOP);
    kill(record.supervisor, Signal::STOP);
    kill(record.guard, Signal::KILL);
    kill(record.supervisor, Signal::KILL);
    until("the program is gone", || !agent.is_alive());
    drop(client);
    assert!(exists(&record.place.path()));
    let mut next = Client::new(&host);
    assert!(!exists(&record.place.path()), "swept");
    next.end(0);
    // Without a control group nothing holds what left its session; it is this test's to end.
    for pid in running(&mark) {
        kill(ProcessStamp::of(pid).unwrap(), Signal::KILL);
    }
}

/// The forwarder is killed again and again: its port stays taken, and nothing else notices.
#[test]
fn a_killed_forwarder_is_started_again() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let supervisor = host.supervisor();
    let forwarder = || {
        let all = labproxy::processes::all().filter(|process| process.parent == supervisor.pid);
        let mut found = all.filter(|process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.stamp.pid));
            !process.zombie && line.unwrap_or_default().ends_with(b"forward\0")
        });
        found.next().map(|process| process.stamp)
    };
    for _ in 0..3 {
        until("a forwarder runs", || forwarder().is_some());
        let before = forwarder().unwrap();
        kill(before, Signal::KILL);
        until("another runs", || {
            forwarder().is_some_and(|now| now != before)
        });
    }
    assert_eq!(client.run(1, &shell("echo on"), b"").stdout, b"on\n");
    client.end(0);
}

/// A supervisor that is asked to end by a signal ends everything and says so.
#[test]
fn t39_a_signal_to_the_supervisor_ends_the_session() {
    let host = Host::new();
    let (mut client, agent, mark) = session(&host);
    let record = host.record().unwrap();
    kill(record.supervisor, Signal::TERM);
    says(&mut client, HostPart::Supervisor);
    until("all is gone", || {
        !record.guard.is_alive() && !agent.is_alive()
    });
    assert_eq!(running(&mark), Vec::<i32>::new());
}

/// Ctrl-C where ssh runs does not reach guard, supervisor or program: each has its own session.
#[test]
fn t39_the_host_side_is_in_no_session_of_ssh() {
    let host = Host::new();
    let (mut client, agent, _) = session(&host);
    let sid = |pid: i32| seen(pid).unwrap().session;
    let channel = sid(client.child.id() as i32);
    let record = host.record().unwrap();
    for stamp in [record.guard, record.supervisor, agent] {
        assert_ne!(sid(stamp.pid), channel);
    }
    assert_ne!(sid(agent.pid), sid(record.supervisor.pid));
    client.end(0);
}

/// Private files go with the session, however it ends; the next one of that name has its own.
#[test]
fn private_files_go_with_the_session() {
    let host = Host::new();
    let mut asked = shell("cat \"$1\"; read line");
    let [name, placeholder] = ["sh", "{file-1}"].map(labproxy::wire::bytes::ByteString::from);
    asked.argv.extend([name, placeholder.clone()]);
    asked.files.push(labproxy::wire::link::PrivateFile {
        name: "settings".into(),
        content: b"first\n".to_vec(),
        placeholder,
    });
    let folder = host.directory().join("private/1");
    for (content, ends) in [
        ("first\n", "order"),
        ("again\n", "kill"),
        ("third\n", "both"),
    ] {
        asked.files[0].content = content.into();
        let mut client = Client::new(&host);
        let exec = client.start(1, &asked);
        client.pump(|client| client.execs[&exec].stdout == content.as_bytes());
        let record = host.record().unwrap();
        match ends {
            "order" => assert_eq!(client.end(0).left, []),
            "kill" => kill(record.supervisor, Signal::KILL),
            _ => {
                // Stopped first, so that neither can do anything about the other's death.
                kill(record.guard, Signal::STOP);
                kill(record.supervisor, Signal::STOP);
                kill(record.guard, Signal::KILL);
                kill(record.supervisor, Signal::KILL);
            }
        }
        until("both are gone", || {
            !record.guard.is_alive() && !record.supervisor.is_alive()
        });
        // Nobody was left to remove them; the next session does.
        assert_eq!(folder.exists(), ends == "both", "{ends}");
    }
    let mut client = Client::new(&host);
    assert!(!folder.exists());
    client.end(0);
}
