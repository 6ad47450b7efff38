//! Host keys and users' keys: what is not known, what has changed, what is refused.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use labproxy::tunnel::ssh::failure::LinkFailure;
use labproxy::tunnel::ssh::master::Master;
use tokio::io::AsyncReadExt as _;

use crate::rig::{Host, PORT, Setup, public};

async fn refused(host: &Host) -> LinkFailure {
    let error = Master::connect(&host.spec("bash"), &host.local(&[])).await;
    host.assert_nothing_here();
    error.map(|_| ()).unwrap_err()
}

/// `SHA256:…` as ssh-keygen shows it.
fn fingerprint(key: &Path) -> String {
    let output = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(key)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').nth(1).unwrap().to_owned()
}

/// Tunnel (10): a changed host key is refused, also where new hosts are taken, and the text shows
/// both fingerprints, the place, and the command that forgets the old one.
#[tokio::test]
async fn tu10_a_changed_host_key_shows_both_fingerprints() {
    let host = Host::start();
    let other = host.file("other_host_key");
    fs::write(
        host.file("known_hosts"),
        format!("# old\ntested {}\n", public(&other)),
    )
    .unwrap();
    let mut spec = host.spec("bash");
    for accept_new in [false, true] {
        spec.accept_new = accept_new;
        let error = Master::connect(&spec, &host.local(&[])).await.map(drop);
        let error = error.unwrap_err();
        assert!(
            matches!(error, LinkFailure::HostKeyChanged { .. }),
            "{error}"
        );
        let text = error.to_string();
        for part in [
            fingerprint(&other),
            fingerprint(&host.file("host_key")),
            format!("{}:2", host.file("known_hosts").display()),
        ] {
            assert!(text.contains(&part), "{part} in {text}");
        }
        assert!(error.remedy().contains("-R tested"), "{}", error.remedy());
        assert_eq!(error.retry_after(), None);
    }
}

/// An unknown host is refused with its fingerprint and the command that asks; nothing here asks. It
/// is taken and written down when that was asked for.
#[tokio::test]
async fn an_unknown_host_key_is_shown_and_taken_only_when_asked_for() {
    let host = Host::start();
    fs::write(host.file("known_hosts"), "").unwrap();
    let error = refused(&host).await;
    assert!(
        matches!(error, LinkFailure::HostKeyUnknown { .. }),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains(&fingerprint(&host.file("host_key"))),
        "{text}"
    );
    let command = format!(
        "ssh -o StrictHostKeyChecking=ask -F {} -l tbash -- tested true",
        host.file("ssh_config").display()
    );
    assert!(error.remedy().contains(&command), "{}", error.remedy());
    assert_eq!(fs::read_to_string(host.file("known_hosts")).unwrap(), "");

    let mut spec = host.spec("bash");
    spec.accept_new = true;
    let master = Master::connect(&spec, &host.local(&[])).await.unwrap();
    master.close().await;
    let known = fs::read_to_string(host.file("known_hosts")).unwrap();
    assert!(known.contains(&public(&host.file("host_key"))), "{known}");
    Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap()
        .close()
        .await;
}

/// An encrypted key that no agent holds is the reason that is told.
#[tokio::test]
async fn an_encrypted_key_without_an_agent_is_named() {
    let host = Host::start();
    let mut spec = host.spec("bash");
    spec.key_path = Some(host.file("encrypted_key"));
    // The user's file names a key that works, and key_path is the only one that is offered.
    host.write_client("");
    let config = fs::read_to_string(host.file("ssh_config")).unwrap();
    let config: Vec<&str> = config
        .lines()
        .filter(|line| !line.contains("IdentityFile"))
        .collect();
    fs::write(host.file("ssh_config"), config.join("\n")).unwrap();
    let error = Master::connect(&spec, &host.local(&[]))
        .await
        .map(drop)
        .unwrap_err();
    let LinkFailure::AuthRefused { encrypted, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        encrypted.as_deref(),
        Some(host.file("encrypted_key").as_path())
    );
    assert!(error.remedy().contains("ssh-add"), "{}", error.remedy());
    assert_eq!(
        error.retry_after(),
        None,
        "refusals are counted by the server"
    );
}

/// A user that the host does not know is refused as such.
#[tokio::test]
async fn an_unknown_user_is_refused() {
    let host = Host::start();
    let error = Master::connect(&host.spec("nobody-here"), &host.local(&[])).await;
    let error = error.map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            LinkFailure::AuthRefused {
                encrypted: None,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("Permission denied"), "{error}");
}

/// TB-35, TB-36: a server that has enough connections is told apart from one that refuses, and may be tried
/// again after a while.
#[tokio::test]
async fn tb35_tb36_a_server_with_enough_connections_is_throttling() {
    let host = Host::with(Setup {
        sshd: "MaxStartups 1".to_owned(),
        ..Setup::default()
    });
    // Somebody who connects and says nothing, after the one who looked whether sshd is there.
    host.assert_quiet();
    let seen = host.connections();
    let silent = TcpStream::connect((host.address.as_str(), PORT)).unwrap();
    host.eventually(|| host.connections() > seen);
    let error = refused(&host).await;
    assert!(matches!(error, LinkFailure::Throttled { .. }), "{error}");
    assert!(error.retry_after().is_some());
    assert!(error.remedy().contains("MaxStartups"));
    drop(silent);
}

/// Nobody there, and no such name.
#[tokio::test]
async fn a_host_that_is_not_there_is_named() {
    let host = Host::start();
    let mut spec = host.spec("bash");
    spec.port = Some(1);
    let error = Master::connect(&spec, &host.local(&[]))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, LinkFailure::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    fs::write(host.file("ssh_config"), "HostName no-such-host.invalid\n").unwrap();
    let error = refused(&host).await;
    assert!(matches!(error, LinkFailure::Unresolved { .. }), "{error}");
}

/// An agent of this machine that holds what `ssh-add` was given. It ends with its test.
struct KeyAgent(std::process::Child);

impl KeyAgent {
    fn start(host: &Host) -> Self {
        let socket = Self::socket(host);
        let agent = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let agent = Self(agent);
        host.eventually(|| socket.exists());
        agent
    }

    fn socket(host: &Host) -> std::path::PathBuf {
        host.file("agent.sock")
    }

    /// Gives it the encrypted key, as a user does who types the passphrase.
    fn add(host: &Host) {
        let asks = host.file("asks");
        fs::write(&asks, "#!/bin/sh\necho secret\n").unwrap();
        fs::set_permissions(&asks, fs::Permissions::from_mode(0o700)).unwrap();
        let added = Command::new("ssh-add")
            .arg(host.file("encrypted_key"))
            .env("SSH_AUTH_SOCK", Self::socket(host))
            .env("SSH_ASKPASS", &asks)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(added.status.success(), "{added:?}");
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// An encrypted key is no obstacle once an agent holds it; the agent itself is not forwarded.
#[tokio::test]
async fn an_encrypted_key_that_an_agent_holds_logs_in() {
    let host = Host::start();
    let mut spec = host.spec("bash");
    spec.key_path = Some(host.file("encrypted_key"));
    let _agent = KeyAgent::start(&host);
    let socket = KeyAgent::socket(&host).display().to_string();
    let local = host.local(&[("SSH_AUTH_SOCK", socket.as_str())]);
    KeyAgent::add(&host);
    // Nothing else logs in.
    let authorized = public(&host.file("encrypted_key"));
    fs::write(host.file("authorized_keys"), authorized + "\n").unwrap();
    let master = Master::connect(&spec, &local).await.unwrap();
    let mut channel = master
        .channel("echo \"agent=$SSH_AUTH_SOCK\"")
        .await
        .unwrap();
    let mut said = String::new();
    channel.stdout.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "agent=\n");
    drop(channel);
    master.close().await;
    host.assert_nothing_here();
}

/// A host behind another one, as `ProxyJump` of the user's configuration says: each host's own key is
/// checked, and the connection goes through the first.
#[tokio::test]
async fn a_host_behind_a_jump_host_is_reached() {
    let (jump, host) = (Host::start(), Host::start());
    let lines = |known: &Path| {
        format!(
            "Host tested\nProxyJump tdash@gate\nHost gate\nHostName {}\nPort {PORT}\n\
             UserKnownHostsFile {}\nIdentityFile {}\n",
            jump.address,
            known.display(),
            jump.file("user_key").display()
        )
    };
    host.write_client(&lines(&jump.file("known_hosts")));
    let before = (jump.connections(), host.connections());
    let master = Master::connect(&host.spec("bash"), &host.local(&[]))
        .await
        .unwrap();
    let mut channel = master.channel("id -un").await.unwrap();
    let mut said = String::new();
    channel.stdout.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "tbash\n");
    drop(channel);
    let passed = (jump.connections(), host.connections());
    assert_eq!(passed, (before.0 + 1, before.1 + 1));
    master.close().await;
    // The ssh to the first host is a child of the other one, and ends when its pipes do.
    host.eventually(|| host.clients().is_empty());
    host.assert_nothing_here();
    jump.assert_quiet();
    // The first host's key is not taken on trust either.
    host.write_client(&lines(&host.file("known_hosts")));
    let error = refused(&host).await;
    assert_eq!(host.connections(), passed.1);
    assert!(error.to_string().contains("host key"), "{error:?}: {error}");
}
