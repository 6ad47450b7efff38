//! The user's ssh configuration: what it may do, and what it must not.

use std::fs;
use std::net::TcpStream;

use labproxy::tunnel::ssh::failure::LinkFailure;
use labproxy::tunnel::ssh::master::Master;
use labproxy::tunnel::transport::Role;
use tokio::io::AsyncReadExt as _;

use crate::rig::{Host, Setup, nonce};

const CANARY: &str = "sk-ant-canary-5e1f";

/// What a command prints in the user's login shell on the host.
async fn printed(master: &Master, command: &str) -> String {
    let mut channel = master.channel(command).await.unwrap();
    let mut text = String::new();
    channel.stdout.read_to_string(&mut text).await.unwrap();
    text
}

/// T04: a configuration that sends variables, opens forwards, runs commands and keeps connections
/// does none of it, even with a server that takes everything; what runs here to find the way sees
/// no secret.
#[tokio::test]
async fn t04_a_hostile_configuration_gets_nothing() {
    let host = Host::with(Setup {
        sshd: "AcceptEnv *\nPermitTunnel yes".to_owned(),
        ..Setup::default()
    });
    let traces = host.file("traces");
    fs::create_dir(&traces).unwrap();
    let at = traces.display();
    let (local_port, remote_port) = (21_001, 21_002);
    host.write_client(&format!(
        "Match exec \"env > {at}/match\"\n\
         Host *\n\
         SendEnv ANTHROPIC_* SECRET LC_*\nSetEnv STOLEN={CANARY}\n\
         ForwardAgent yes\nForwardX11 yes\nForwardX11Trusted yes\nTunnel ethernet\n\
         GSSAPIDelegateCredentials yes\nGatewayPorts yes\n\
         LocalForward {address}:{local_port} localhost:2222\n\
         RemoteForward {remote_port} localhost:2222\nDynamicForward {address}:21003\n\
         PermitLocalCommand yes\nLocalCommand env > {at}/local\n\
         RemoteCommand env > /srv/traces/remote\nRequestTTY force\n\
         ControlMaster auto\nControlPath {at}/control\nControlPersist yes\n\
         SessionType none\nStdinNull yes\nForkAfterAuthentication yes\n\
         StrictHostKeyChecking no\nUpdateHostKeys yes\nBatchMode no\nLogLevel QUIET\n\
         IgnoreUnknown UseKeychain\nUseKeychain yes\n\
         ProxyCommand /bin/bash -c 'env > {at}/proxy; exec 3<>/dev/tcp/{address}/%p; \
         cat <&3 & exec cat >&3'",
        address = host.address,
    ));
    let secrets = [
        ("ANTHROPIC_API_KEY", CANARY),
        ("SECRET", CANARY),
        ("LC_ALL", CANARY),
        ("SSH_AUTH_SOCK", "/nowhere"),
        ("LABPROXY_X", CANARY),
    ];
    let spec = host.spec("bash");
    let master = Master::connect(&spec, &host.local(&secrets)).await.unwrap();
    let channel = master.helper(Role::Supervise, nonce(1)).await.unwrap();

    let remote = printed(&master, "env").await;
    assert!(!remote.contains("canary"), "{remote}");
    assert!(!remote.contains("SSH_AUTH_SOCK"), "{remote}");
    for name in ["match", "proxy"] {
        let seen = fs::read_to_string(traces.join(name)).unwrap();
        assert!(seen.contains("PATH="), "{name}: {seen}");
        assert!(seen.contains("LC_ALL=C"), "{name}: {seen}");
        assert!(!seen.contains("canary"), "{name}: {seen}");
    }
    let mut names: Vec<_> = fs::read_dir(&traces)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["match", "proxy"]);
    for port in [local_port, remote_port, 21_003] {
        for address in [host.address.as_str(), "127.0.0.1"] {
            assert!(TcpStream::connect((address, port)).is_err(), "{port}");
        }
    }
    for client in host.clients() {
        let seen = fs::read(format!("/proc/{client}/environ")).unwrap();
        assert!(!String::from_utf8_lossy(&seen).contains("canary"));
    }
    assert_eq!(
        host.ask("grep -l canar[y] /proc/[0-9]*/environ /proc/[0-9]*/cmdline"),
        ""
    );
    drop(channel);
    master.close().await;
    host.assert_nothing_here();
    host.assert_quiet();
}

/// T04: what no setting of ours turns off is refused by name before anything is connected.
#[tokio::test]
async fn t04_a_command_for_known_hosts_is_refused_by_name() {
    let host = Host::start();
    host.assert_quiet();
    let seen = host.connections();
    host.write_client(&format!(
        "KnownHostsCommand /bin/touch {}",
        host.file("ran").display()
    ));
    let error = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .map(drop);
    let error = error.unwrap_err();
    assert!(
        matches!(error, LinkFailure::ConfigurationRefused { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("knownhostscommand /bin/touch"),
        "{error}"
    );
    assert!(!host.file("ran").exists());
    assert_eq!(host.connections(), seen);
    host.assert_nothing_here();
}

/// A command of the configuration that hangs is ended together with ssh.
#[tokio::test]
async fn a_command_that_hangs_is_ended() {
    let host = Host::start();
    let mark = format!("36{}", std::process::id());
    host.write_client(&format!("Match exec \"sleep {mark}; true\"\nUser nobody"));
    let error = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .map(drop);
    let error = error.unwrap_err();
    assert!(matches!(error, LinkFailure::TimedOut { .. }), "{error}");
    host.eventually(|| {
        let lines = fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        !lines
            .into_iter()
            .any(|line| String::from_utf8_lossy(&line).contains(&mark))
    });
    host.assert_nothing_here();
}

/// A line that ssh does not know is ssh's to name.
#[tokio::test]
async fn a_broken_configuration_is_shown_as_ssh_names_it() {
    let host = Host::start();
    host.write_client("ProxyJmp somewhere");
    let error = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .map(drop);
    let error = error.unwrap_err();
    assert!(
        matches!(error, LinkFailure::ConfigurationUnread { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("proxyjmp"), "{error}");
}

/// TB-28, TB-31, T04: the connection does not persist, is asked whether it lives, and is ssh's
/// `-M` with a command, never a bare `-N`.
#[tokio::test]
async fn tb28_tb31_the_command_line_keeps_the_link_alive_and_no_longer() {
    let host = Host::start();
    let master = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap();
    let [client] = host.clients()[..] else {
        panic!("{:?}", host.clients());
    };
    let line = fs::read(format!("/proc/{client}/cmdline")).unwrap();
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8(word.to_vec()).unwrap())
        .collect();
    assert!(words.contains(&"-M".to_owned()), "{words:?}");
    for never in ["-N", "-f", "-A", "-R", "-L"] {
        assert!(!words.contains(&never.to_owned()), "{never}");
    }
    assert!(
        words.ends_with(&["exec cat".to_owned(), String::new()]),
        "{words:?}"
    );
    // T39: a Ctrl-C in our terminal does not reach it.
    let stat = fs::read_to_string(format!("/proc/{client}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    assert_eq!(fields[3], client.to_string(), "its own session");
    master.close().await;
}

/// TB-29: long names elsewhere do not reach the control socket.
#[tokio::test]
async fn tb29_a_long_name_for_temporary_files_does_not_matter() {
    let host = Host::start();
    let long = format!("/tmp/{}", "x".repeat(200));
    let local = host.local(&[("TMPDIR", &long), ("XDG_RUNTIME_DIR", &long)]);
    let alias = "a".repeat(200);
    let mut spec = host.spec("bash");
    spec.destination = alias.parse().unwrap();
    Master::connect(&spec, &local).await.unwrap().close().await;
}
