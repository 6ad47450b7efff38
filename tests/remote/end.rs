//! The end of a session: by order, by lease; nothing of it stays, but the workspace.

use std::time::{Duration, Instant};

use labproxy::processes::ProcessStamp;
use labproxy::wire::link::{ExecEnd, Refusal, ToHost};

use crate::client::{Client, Open, shell};
use crate::rig::{Host, exists, running, until};

/// Processes that called setsid, forked twice, stopped themselves or ignore TERM end too.
#[test]
fn descendants_end_however_they_hid() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mark = format!("31{}", std::process::id());
    let script = format!(
        "setsid sleep {mark} & (setsid sh -c '(sleep {mark} &) ; exec sleep {mark}' &) ; \
         sh -c 'kill -STOP $$; sleep {mark}' & \
         sh -c 'trap \"\" TERM HUP INT; sleep {mark}; sleep {mark}' & \
         nohup sleep {mark} >/dev/null 2>&1 & sleep 0.3; echo ready; exit 0"
    );
    let exec = client.start(1, &shell(&script));
    assert_eq!(client.wait(exec).end(), ExecEnd::Exited(0));
    assert!(running(&format!("sleep {mark}")).len() >= 5);
    let report = client.end(300);
    assert_eq!(report.left, []);
    assert!(report.ended >= 4 && report.killed >= 1, "{report:?}");
    assert_eq!(running(&format!("sleep {mark}")), Vec::<i32>::new());
}

/// A program is asked before it is killed, and what it writes then arrives before the report.
#[test]
fn a_program_may_finish_in_its_grace() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let script = "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let exec = client.start(1, &shell(script));
    client.pump(|client| client.execs[&exec].stdout == b"ready\n");
    let began = Instant::now();
    let report = client.end(20_000);
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!((report.killed, report.left.len()), (0, 0));
    let done = &client.execs[&exec];
    assert_eq!(
        (done.stdout.as_slice(), done.end()),
        (&b"ready\nsaved\n"[..], ExecEnd::Exited(5))
    );
}

/// What forks without end is ended within bounded time.
#[test]
fn a_fork_bomb_ends() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mark = format!("bomb-{}", std::process::id());
    // Each makes its successor and ends, so that no list of them is ever true; two at a time also
    // make a tree. More would hold up the machine's other tests.
    let script = format!(
        ": {mark}; f() {{ f & }}; g() {{ [ $1 = 0 ] || {{ g $(($1-1)) & g $(($1-1)) & sleep 600; }}; }}; \
         for i in 1 2 3 4; do f & done; g 6 & echo go; wait; sleep 600"
    );
    let exec = client.start(1, &shell(&script));
    client.pump(|client| client.execs[&exec].stdout == b"go\n");
    let report = client.end(0);
    assert_eq!(report.left, []);
    assert_eq!(running(&mark), Vec::<i32>::new());
}

/// Without a link everything ends when the lease is over; the workspace stays, and a link that
/// comes meanwhile is told.
#[test]
fn t13_after_the_lease_everything_ends_and_the_work_stays() {
    let host = Host::new();
    let lease = Open {
        lease_ms: 1000,
        ..Open::default()
    };
    let mut client = Client::connect(&host, &lease);
    client.attach();
    let mark = format!("32{}", std::process::id());
    let script =
        format!("echo work > result; trap '' TERM; setsid sleep {mark} & echo ready; sleep {mark}");
    let exec = client.start(1, &shell(&script));
    client.pump(|client| client.execs[&exec].stdout == b"ready\n");
    let record = host.record().unwrap();
    drop(client);
    until("the lease is over", || {
        host.log().contains("the lease is over")
    });
    let late = Open {
        link: 2,
        must_live: true,
        role: "attach",
        ..Open::default()
    };
    let refusal = Client::connect(&host, &late).refusal();
    assert!(
        matches!(refusal, Refusal::LeaseOver | Refusal::NoSupervisor),
        "{refusal:?}"
    );
    until("all is gone", || {
        !record.supervisor.is_alive() && !record.guard.is_alive()
    });
    assert_eq!(running(&format!("sleep {mark}")), Vec::<i32>::new());
    assert!(!exists(&record.place.path()));
    assert!(host.record().is_none());
    let work = std::fs::read_to_string(host.workspace().join("result")).unwrap();
    assert_eq!(work, "work\n");
}

/// A link that comes within the lease keeps the program, with its pid.
#[test]
fn a_link_within_the_lease_keeps_everything() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let exec = client.start(1, &shell("echo $$; cat"));
    client.pump(|client| !client.execs[&exec].stdout.is_empty());
    let execs = client.execs.clone();
    let stamp = ProcessStamp::of(execs[&exec].pid.unwrap() as i32).unwrap();
    // SIGKILL of what ssh runs is a lost link.
    client.child.kill().unwrap();
    drop(client);
    let open = Open {
        link: 2,
        must_live: true,
        ..Open::default()
    };
    let mut client = Client::connect(&host, &open);
    client.execs = execs;
    assert_eq!(client.attach().len(), 1);
    assert!(stamp.is_alive());
    client.send(&ToHost::StdinEnd { exec, length: 0 });
    assert_eq!(client.wait(exec).end(), ExecEnd::Exited(0));
    client.end(0);
}
