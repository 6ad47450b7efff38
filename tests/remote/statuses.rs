//! How a program ended is told exactly.

use std::fs;
use std::path::Path;

use labproxy::wire::link::{ExecEnd, ExecSignal, StartError, ToHost};

use crate::client::{Client, shell, spec};
use crate::rig::{Host, helper};

/// Statuses of programs, of programs that are not there, and signals are told apart.
#[test]
fn tu09_exit_statuses_and_signals_are_told_apart() {
    let host = Host::new();
    let mut client = Client::new(&host);
    for (id, code) in [
        (1, 0),
        (2, 1),
        (3, 7),
        (4, 126),
        (5, 127),
        (6, 137),
        (7, 143),
        (8, 255),
    ] {
        let done = client.run(id, &shell(&format!("exit {code}")), b"");
        assert_eq!(done.end(), ExecEnd::Exited(code));
    }
    for (id, signal) in [(9, 9), (10, 15), (11, 11), (12, 1)] {
        let done = client.run(id, &shell(&format!("kill -{signal} $$")), b"");
        let expected = ExecEnd::Signaled {
            signal,
            out_of_memory: false,
        };
        assert_eq!(done.end(), expected);
    }
    client.end(100);
}

/// A signal of the controller reaches the whole process group; its number makes it count once.
#[test]
fn signals_reach_the_process_group_once() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let script = "trap 'echo int; exit 3' INT; sh -c 'trap \"echo child; exit\" INT; \
                  echo ready; while :; do sleep 0.05; done' & wait; wait";
    let exec = client.start(1, &shell(script));
    client.pump(|client| client.execs[&exec].stdout.ends_with(b"ready\n"));
    for _ in 0..2 {
        client.send(&ToHost::Signal {
            exec,
            number: 1,
            signal: ExecSignal::Interrupt,
        });
    }
    let done = client.wait(exec);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said.matches("int").count(), 1, "{said}");
    assert_eq!(done.end(), ExecEnd::Exited(3));
    client.end(1000);
}

/// A kill that the controller asked for is no lack of memory.
#[test]
fn a_kill_of_ours_is_a_kill() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let exec = client.start(1, &spec(&["sleep", "600"]));
    client.pump(|client| client.execs[&exec].pid.is_some());
    client.send(&ToHost::Signal {
        exec,
        number: 1,
        signal: ExecSignal::Kill,
    });
    let expected = ExecEnd::Signaled {
        signal: 9,
        out_of_memory: false,
    };
    assert_eq!(client.wait(exec).end(), expected);
    client.end(100);
}

/// What the kernel ends for want of memory is told from what somebody killed. Needs a control
/// group with a limit, and so the right to make one; without it the row of counters is tested alone
/// (`kills_are_counted_where_they_are_told`).
#[test]
fn tu09_an_end_for_want_of_memory_is_told() {
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("lp-test-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return;
    }
    let limits = [
        ("memory.limit_in_bytes", "60000000"),
        ("memory.swappiness", "0"),
    ];
    for (name, value) in limits {
        fs::write(group.join(name), value).unwrap();
    }
    {
        let host = Host::new();
        // The helper starts inside the group, and so does everything that it starts.
        let mut command = std::process::Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
        command.args(["-c", &script, "sh"]).arg(helper());
        let nonce = "00112233445566778899aabbccddeeff";
        command.args(["supervise", nonce]).env_clear();
        command.env("HOME", &host.home).env("PATH", "/usr/bin:/bin");
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        let open = crate::client::Open::default();
        let mut client = Client::over(child, &host, &open, nonce.parse().unwrap());
        client.attach();
        // A shell that doubles a text does not stop by itself.
        let script = "x=0123456789abcdef; while :; do x=$x$x; done";
        let done = client.run(1, &shell(script), b"");
        let expected = ExecEnd::Signaled {
            signal: 9,
            out_of_memory: true,
        };
        assert_eq!(done.end(), expected);
        client.end(100);
    }
    crate::rig::until("the group is empty", || fs::remove_dir(&group).is_ok());
}

/// What cannot run says why: 127, 126, and the directory are not mixed up.
#[test]
fn what_does_not_start_says_why() {
    let host = Host::new();
    let plain = host.write("plain", "no program\n");
    let orphan = host.write("orphan", "#!/no/such/interpreter\n");
    fs::set_permissions(&orphan, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut client = Client::new(&host);
    let mut failed = |id, argv: &[&str]| client.run(id, &spec(argv), b"").failed.unwrap();
    assert_eq!(failed(1, &["no-such-program"]), StartError::NotFound);
    assert_eq!(failed(2, &["/no/such/program"]), StartError::NotFound);
    assert_eq!(failed(3, &[""]), StartError::NotFound);
    let denied = StartError::NotExecutable { errno: 13 };
    assert_eq!(failed(4, &[plain.to_str().unwrap()]), denied);
    let missing = StartError::NotExecutable { errno: 2 };
    assert_eq!(failed(5, &[orphan.to_str().unwrap()]), missing);
    let mut elsewhere = spec(&["true"]);
    elsewhere.directory = labproxy::wire::bytes::ByteString::from("/no/such/directory");
    let done = client.run(6, &elsewhere, b"");
    assert_eq!(done.failed, Some(StartError::Directory { errno: 2 }));
    let mut nothing = spec(&["true"]);
    nothing.argv.clear();
    assert_eq!(
        client.run(7, &nothing, b"").failed,
        Some(StartError::Malformed)
    );
    client.end(100);
}
