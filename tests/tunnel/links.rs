//! The life of a connection: forwards, channels, what happens when something of it dies or stops.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use labproxy::tunnel::ssh::failure::{LinkFailure, Phase};
use labproxy::tunnel::ssh::master::Master;
use labproxy::tunnel::transport::Role;
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Host, Setup, nonce, within};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

async fn connected(host: &Host) -> Master {
    Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", host.log()))
}

/// A fresh directory on the host for a forward's socket, and its path as this side sees it.
fn forward_directory(host: &Host, name: &str) -> (PathBuf, PathBuf) {
    host.ask(&format!(
        "mkdir -m 700 /tmp/{name} && chown tbash /tmp/{name}"
    ));
    let there = Path::new("/tmp").join(name).join("proxy.sock");
    let seen = PathBuf::from(format!("/proc/{}/root{}", host.init(), there.display()));
    (there, seen)
}

/// A socket here that answers one connection with what it got.
fn echo(path: &Path) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    })
}

fn asked(seen: &Path) {
    let mut stream = UnixStream::connect(seen).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
}

/// TB-21, M-71, Tunnel (1): after a killed ssh the next connection forwards at the first try, with a
/// server that removes no stale socket; the old path is refused by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tb21_m71_tu01_a_killed_link_does_not_stand_in_the_way_of_the_next() {
    let host = Host::start();
    let local = host.directory.path().join("home/bash/l");
    let master = connected(&host).await;
    let (there, seen) = forward_directory(&host, "one");
    let echoing = echo(&local);
    master.forward(&there, &local).await.unwrap();
    asked(&seen);
    echoing.join().unwrap();
    signal(host.clients()[0], Signal::KILL);
    let why = within(20, master.closed()).await;
    assert!(matches!(why, LinkFailure::LinkLost { .. }), "{why}");
    assert!(why.retry_after().is_some());

    let next = connected(&host).await;
    assert!(seen.exists(), "sshd leaves its socket behind");
    let error = next.forward(&there, &local).await.unwrap_err();
    assert!(
        matches!(error, LinkFailure::ForwardRefused { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("/tmp/one/proxy.sock"), "{error}");
    let (there, seen) = forward_directory(&host, "two");
    std::fs::remove_file(&local).unwrap();
    let echoing = echo(&local);
    next.forward(&there, &local).await.unwrap();
    asked(&seen);
    echoing.join().unwrap();
    next.close().await;
    host.assert_nothing_here();
    host.assert_quiet();
}

/// Tunnel (2): a server that forwards nothing says so before anything is started there, and the
/// connection goes on.
#[tokio::test]
async fn tu02_a_server_that_forwards_nothing_is_named() {
    for line in [
        "AllowStreamLocalForwarding no",
        "AllowStreamLocalForwarding local",
        "DisableForwarding yes",
    ] {
        let host = Host::with(Setup {
            sshd: line.to_owned(),
            ..Setup::default()
        });
        let master = connected(&host).await;
        let (there, _) = forward_directory(&host, "one");
        let error = master
            .forward(&there, Path::new("/nowhere"))
            .await
            .unwrap_err();
        assert!(
            matches!(error, LinkFailure::ForwardRefused { .. }),
            "{line}: {error}"
        );
        assert!(error.remedy().contains("AllowStreamLocalForwarding"));
        assert_eq!(error.retry_after(), None);
        master.helper(Role::Supervise, nonce(1)).await.unwrap();
        let tcp = master.forward_tcp(21_010, Path::new("/nowhere")).await;
        assert_eq!(tcp.is_ok(), !line.starts_with("Disable"), "{line}: {tcp:?}");
        master.close().await;
        host.assert_nothing_here();
    }
}

/// At most eight channels: the ninth waits for its place. A server that takes fewer is named.
#[tokio::test]
async fn tb36_channels_are_bounded_here_and_there() {
    let host = Host::start();
    let master = connected(&host).await;
    let mut channels = Vec::new();
    for _ in 0..8 {
        channels.push(master.channel("cat").await.unwrap());
    }
    let ninth = tokio::time::timeout(Duration::from_millis(300), master.channel("cat"));
    assert!(ninth.await.is_err(), "a ninth channel");
    channels.pop();
    within(20, master.channel("cat")).await.unwrap();
    drop(channels);
    master.close().await;
    host.assert_quiet();

    let host = Host::with(Setup {
        sshd: "MaxSessions 2".to_owned(),
        ..Setup::default()
    });
    let master = connected(&host).await;
    let _first = master.channel("cat").await.unwrap();
    let error = master.channel("cat").await.unwrap_err();
    assert!(
        matches!(error, LinkFailure::ChannelRefused { .. }),
        "{error}"
    );
    assert!(error.remedy().contains("MaxSessions"));
    master.close().await;
}

/// TB-26: a control socket that does not answer costs five seconds, not for ever.
#[tokio::test]
async fn tb26_a_stopped_ssh_fails_within_five_seconds() {
    let host = Host::start();
    let master = connected(&host).await;
    let client = host.clients()[0];
    signal(client, Signal::STOP);
    let begun = Instant::now();
    let error = master.channel("true").await.map(drop).unwrap_err();
    assert!(matches!(error, LinkFailure::TimedOut { .. }), "{error}");
    let error = master
        .forward(Path::new("/tmp/x"), Path::new("/y"))
        .await
        .unwrap_err();
    assert!(matches!(error, LinkFailure::TimedOut { .. }), "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    master.close().await;
    host.assert_nothing_here();
    host.assert_quiet();
}

/// M-72: a server that stops answering is noticed by ssh itself; until then every call fails at its
/// deadline. The next connection works, whatever the user's own control sockets are.
#[tokio::test]
async fn m72_a_stopped_server_is_noticed_and_replaced() {
    let host = Host::start();
    host.write_client("ControlMaster auto\nControlPath /tmp/never\nControlPersist yes");
    let master = connected(&host).await;
    host.ask("for p in /proc/[0-9]*; do grep -q 'sshd: [t]bash' $p/cmdline && kill -STOP ${p#/proc/}; done");
    let begun = Instant::now();
    let (called, why) = tokio::join!(master.channel("true"), within(40, master.closed()));
    assert!(called.is_err());
    assert!(matches!(why, LinkFailure::LinkLost { .. }), "{why}");
    assert!(why.to_string().contains("not responding"), "{why}");
    assert!(begun.elapsed() > Duration::from_secs(10));
    let next = connected(&host).await;
    next.helper(Role::Supervise, nonce(1)).await.unwrap();
    next.close().await;
    host.assert_nothing_here();
}

/// TB-20: twenty lost links in a row leave nothing on either side.
#[tokio::test]
async fn tb20_twenty_flaps_leave_nothing() {
    let host = Host::start();
    for _ in 0..20 {
        let master = connected(&host).await;
        let clients = host.clients();
        assert_eq!(clients.len(), 1, "{clients:?}");
        signal(clients[0], Signal::KILL);
        within(20, master.closed()).await;
    }
    host.assert_nothing_here();
    host.assert_quiet();
    let own = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = fields.split_whitespace();
        let zombie = fields.next() == Some("Z");
        assert!(!(zombie && fields.next() == Some(own.as_str())), "{stat}");
    }
}

/// TB-17: each phase has its time, in order, and a connection that is closed says so.
#[tokio::test]
async fn tb17_phases_have_times() {
    let host = Host::start();
    let master = connected(&host).await;
    let phases: Vec<_> = master.phases().iter().collect();
    assert!(phases.is_sorted(), "{phases:?}");
    for phase in [
        Phase::Connected,
        Phase::Authenticating,
        Phase::Authenticated,
        Phase::Up,
    ] {
        assert!(
            phases.iter().any(|(reached, _)| *reached == phase),
            "{phases:?}"
        );
    }
    master.close().await;
}
