//! Other users of the host: none gets an answer, none gets the port. (12) of the tunnel's cases.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use labproxy::remote::forward::SOCKET_NAME;
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::ForwardEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::rig::{
    ANSWER, LONG, PATIENCE, REQUEST, Rig, accepted, expect, private_directory, signal,
};

/// Two users that are neither root nor each other.
const NOBODY: &str = "65534";
const OTHER: &str = "65533";
const ROOT: &str = "0";

/// Being another user takes root's rights; without them nothing here can be tried.
fn can_be_others() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: nothing is tried as another user");
    }
    is_root
}

/// Runs a script of bash as another user.
fn as_user(user: &str, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .args(["timeout", "20", "bash", "-c", script])
        .stdin(Stdio::null());
    command
}

/// What a request to the port brings as that user.
fn ask_as(user: &str, port: u16) -> Output {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
    );
    as_user(user, &script).output().unwrap()
}

/// Nothing has reached the link.
fn assert_untouched(link: &std::os::unix::net::UnixListener) {
    link.set_nonblocking(true).unwrap();
    assert_eq!(link.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    link.set_nonblocking(false).unwrap();
}

/// Answers one request.
fn serve_one(link: &std::os::unix::net::UnixListener) {
    let mut far = accepted(link);
    let mut request = [0; 18];
    far.read_exact(&mut request).unwrap();
    far.write_all(ANSWER).unwrap();
}

#[test]
fn t17_another_user_gets_no_answer_from_the_port() {
    if !can_be_others() {
        return;
    }
    let (rig, link) = Rig::new();
    for user in [NOBODY, OTHER] {
        let seen = ask_as(user, rig.forwarder.port());
        assert_eq!(seen.stdout.escape_ascii().to_string(), "", "{user}");
        assert_untouched(&link);
    }
    // The same as a friend, so that it is the user that made the difference.
    thread::scope(|scope| {
        scope.spawn(|| serve_one(&link));
        let seen = ask_as(ROOT, rig.forwarder.port());
        assert_eq!(seen.stdout, ANSWER);
    });
}

/// The kernel shows a socket that was closed as root's. A stranger who sends and closes before
/// anybody looks must not pass for root.
#[test]
fn t17_a_stranger_that_is_gone_already_is_no_friend() {
    if !can_be_others() {
        return;
    }
    let (rig, link) = Rig::new();
    signal(rig.forwarder.pid(), Signal::STOP);
    let port = rig.forwarder.port();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; exec 3>&-"
    );
    assert!(as_user(NOBODY, &script).status().unwrap().success());
    signal(rig.forwarder.pid(), Signal::CONT);
    // Accepted in order: when a later one is served, the first was judged.
    let mut friend = rig.connect();
    friend.write_all(REQUEST).unwrap();
    expect(&mut accepted(&link), REQUEST);
    assert_untouched(&link);
}

#[test]
fn t17_another_user_cannot_reach_the_socket() {
    if !can_be_others() {
        return;
    }
    let (rig, _link) = Rig::new();
    let path = rig.path(SOCKET_NAME);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Even where everybody may enter the directory.
    fs::set_permissions(rig.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let connect = format!(
        "import socket; socket.socket(socket.AF_UNIX).connect('{}')",
        path.display()
    );
    let run = |user| {
        let script = format!("exec python3 -c \"{connect}\"");
        as_user(user, &script).output().unwrap()
    };
    let refused = run(NOBODY);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("PermissionError"), "{text}");
    assert!(run(ROOT).status.success());
}

/// Copies a program, by a process of its own: what is open for writing anywhere cannot be run, and
/// another test's child may hold what this one opens.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// The login user of a host is seldom root: it and root are served, others are not.
#[test]
fn t17_a_forwarder_of_a_user_serves_that_user_and_root() {
    if !can_be_others() {
        return;
    }
    let directory = private_directory();
    let [program, script, wrapper] =
        ["labproxy-remote", "script", "as-nobody"].map(|name| directory.path().join(name));
    copy(&crate::host_program::path(), &program);
    let text = format!(
        "#!/bin/sh\nexec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {} \"$@\"\n",
        program.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    copy(&script, &wrapper);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let mut rig = Rig::of_program(directory, &wrapper, LONG);
    let link = rig.link("proxy.sock");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(rig.path("proxy.sock"), open).unwrap();
    for user in [NOBODY, ROOT] {
        thread::scope(|scope| {
            scope.spawn(|| serve_one(&link));
            assert_eq!(ask_as(user, rig.forwarder.port()).stdout, ANSWER, "{user}");
        });
    }
    // One is ready for the next friend, and is not for a stranger.
    let mut ahead = accepted(&link);
    assert!(ask_as(OTHER, rig.forwarder.port()).stdout.is_empty());
    ahead.set_nonblocking(true).unwrap();
    let nothing = ahead.read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    assert_untouched(&link);
}

/// Waits until the forwarder has ended.
fn wait_for_end(rig: &Rig) {
    let mut ended = [PollFd::from_borrowed_fd(
        rig.forwarder.ended(),
        PollFlags::IN,
    )];
    let patience = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut ended, Some(&patience)).unwrap(), 1);
}

/// The far end of the next connection that asks something. A killed forwarder leaves one behind that it
/// had opened for its next client.
fn asked(link: &std::os::unix::net::UnixListener) -> UnixStream {
    let mut request = vec![0; REQUEST.len()];
    loop {
        let mut far = accepted(link);
        if far.read_exact(&mut request).is_ok() {
            assert_eq!(request, REQUEST);
            return far;
        }
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn t17_a_hundred_kills_never_free_the_port() {
    const KILLS: usize = 100;
    let (mut rig, link) = Rig::new();
    let port = rig.forwarder.port();
    let (over, tries) = (AtomicBool::new(false), AtomicU64::new(0));
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    thread::scope(|scope| {
        // Also when this fails: the thief would never end.
        let over_at_the_end = SetOnDrop(&over);
        let thief = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                tries.fetch_add(1, Ordering::Relaxed);
                if let Ok(stolen) = bind() {
                    return Some(stolen);
                }
            }
            None
        });
        for _ in 0..KILLS {
            signal(rig.forwarder.pid(), Signal::KILL);
            wait_for_end(&rig);
            // Comes while nobody is there, and is not lost.
            let mut early = rig.connect();
            early.write_all(REQUEST).unwrap();
            let before = tries.load(Ordering::Relaxed);
            rig.forwarder.restart().unwrap();
            let mut far = asked(&link);
            far.write_all(ANSWER).unwrap();
            expect(&mut early, ANSWER);
            while tries.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
        drop(over_at_the_end);
        assert!(thief.join().unwrap().is_none(), "the port was free");
    });
    assert!(tries.load(Ordering::Relaxed) >= 100);
    drop(rig);
    // So that it was the forwarder's holder that kept it.
    bind().unwrap();
}

/// A new forwarder is told what the old one knew: no link, and the rest of the lease.
#[test]
fn a_new_forwarder_knows_what_the_old_one_knew() {
    let mut rig = Rig::without_link(Duration::from_secs(2));
    signal(rig.forwarder.pid(), Signal::KILL);
    wait_for_end(&rig);
    rig.forwarder.restart().unwrap();
    let began = Instant::now();
    let mut stream = rig.connect();
    stream.write_all(REQUEST).unwrap();
    super::rig::assert_try_again(&super::rig::rest(&mut stream));
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// One that does not read its orders is ended, and the next one has them.
#[test]
fn a_forwarder_that_hangs_is_replaced() {
    let (mut rig, link) = Rig::new();
    signal(rig.forwarder.pid(), Signal::STOP);
    for _ in 0..10_000 {
        rig.forwarder.down(LONG);
    }
    wait_for_end(&rig);
    let path = rig.path("proxy.sock");
    rig.forwarder
        .up(&ForwardEnd::Socket(ByteString::from(&path)));
    rig.forwarder.restart().unwrap();
    let mut stream: TcpStream = rig.connect();
    stream.write_all(REQUEST).unwrap();
    expect(&mut accepted(&link), REQUEST);
}
