//! A session of a user without any privilege, and what another user can do to it: nothing. Both
//! need two users, and so a test that runs as root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use labproxy::wire::link::{ExecEnd, Refusal};

use crate::client::{Client, Open, shell};
use crate::rig::{Host, exists, helper, running, until};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;
const NONCE: &str = "00112233445566778899aabbccddeeff";

/// A helper that this user may run, as this user.
fn as_nobody(host: &Host, open: &Open, home: &str) -> Client {
    let program = host.home.join("helper");
    if !program.exists() {
        fs::copy(helper(), &program).unwrap();
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program)
        .args(["supervise", NONCE])
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Client::over(command.spawn().unwrap(), host, open, NONCE.parse().unwrap())
}

/// A plain user's session does all that another's does; what no control group holds is followed by
/// its parents, and the report says so.
#[test]
fn t16_a_plain_users_session_ends_whole_and_says_what_it_cannot_see() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new();
    std::os::unix::fs::chown(&host.home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut client = as_nobody(&host, &Open::default(), host.home.to_str().unwrap());
    client.attach();
    let record = host.record().unwrap();
    assert_eq!(record.group, None);
    let mark = format!("34{}", std::process::id());
    let script =
        format!("id -u; setsid sleep {mark} & (setsid sleep {mark} &) ; sleep 0.1; exit 3");
    let done = client.run(1, &shell(&script), b"");
    assert_eq!(
        (done.stdout.as_slice(), done.end()),
        (&b"65534\n"[..], ExecEnd::Exited(3))
    );
    let report = client.end(0);
    assert_eq!(report.left, []);
    assert!(
        report
            .unseen
            .iter()
            .any(|line| line.contains("control group")),
        "{report:?}"
    );
    assert_eq!(running(&format!("sleep {mark}")), Vec::<i32>::new());
    until("all is gone", || {
        !record.guard.is_alive() && !record.supervisor.is_alive()
    });
    assert!(!exists(&record.place.path()));
}

/// Another user reaches neither the session's directory nor its sockets, and sweeps nothing of it.
#[test]
fn t35_another_user_can_neither_join_nor_sweep() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new();
    fs::set_permissions(&host.home, fs::Permissions::from_mode(0o755)).unwrap();
    let mut client = Client::new(&host);
    let record = host.record().unwrap();
    for (path, mode) in [(record.place.path(), 0o700), (host.directory(), 0o700)] {
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o777,
            mode
        );
    }
    let open = Open {
        workdir: host.home.join(".labproxy").to_str().unwrap().into(),
        link: 2,
        ..Open::default()
    };
    let refusal = as_nobody(&host, &open, "/").refusal();
    assert!(matches!(refusal, Refusal::Directory { .. }), "{refusal:?}");
    assert!(exists(&record.place.supervisor_socket()));
    assert_eq!(client.run(1, &shell("echo on"), b"").stdout, b"on\n");
    client.end(0);
}

/// A home that cannot be written is refused with the cause.
#[test]
fn a_home_that_cannot_be_written_is_the_cause() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new();
    let refusal = as_nobody(&host, &Open::default(), "/").refusal();
    let Refusal::Directory { path, why } = refusal else {
        panic!("{refusal:?}");
    };
    assert_eq!(path.as_bytes(), b"/.labproxy");
    assert!(why.contains("this user may not"), "{why}");
}
