//! What outlives a session is told of at its end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::client::{Client, Open, shell};
use crate::rig::Host;

/// Programs that list what scripts in a folder put down, in place of the machine's own.
fn listers(host: &Host) -> std::path::PathBuf {
    let folder = host.home.join("bin");
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, script: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(
        "crontab",
        "cat \"$HOME/cron\" 2>/dev/null || { echo 'no crontab for u' >&2; exit 1; }",
    );
    write("atq", "cat \"$HOME/at\" 2>/dev/null; exit 0");
    write("docker", "cat \"$HOME/containers\" 2>/dev/null; exit 0");
    write(
        "systemctl",
        "case \"$*\" in *timer*) cat \"$HOME/timers\" 2>/dev/null; exit 0;; esac; sleep 60",
    );
    folder
}

fn client(host: &Host) -> Client {
    let folder = listers(host);
    let nonce = "00112233445566778899aabbccddeeff";
    let mut command = host.helper(&["supervise", nonce]);
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    let child = command.spawn().unwrap();
    let mut client = Client::over(child, host, &Open::default(), nonce.parse().unwrap());
    client.attach();
    client
}

/// One escape by each way is listed; a lister that hangs is said to be unseen and holds nothing up.
#[test]
fn t16_one_escape_by_each_way_is_told() {
    let host = Host::new();
    fs::write(host.home.join("at"), "1 before\n").unwrap();
    let mut client = client(&host);
    // The first look is over before anything escapes: its hanging lister has 3 s.
    crate::rig::until("the first look is over", || {
        crate::rig::running("labproxy-remote look").is_empty()
    });
    let script = "echo '* * * * * evil' > $HOME/cron; echo '2 evil job' >> $HOME/at; \
                  echo 'abc evil image' > $HOME/containers; echo 'evil.timer' > $HOME/timers; \
                  mkdir -p $HOME/.ssh; echo 'ssh-ed25519 AAAA evil@host' > $HOME/.ssh/authorized_keys";
    client.run(1, &shell(script), b"");
    let report = client.end(0);
    let told = report.escapes.join("\n");
    for expected in [
        "* * * * * evil",
        "2 evil job",
        "abc evil image",
        "evil.timer",
        "evil@host",
    ] {
        assert!(told.contains(expected), "{expected} in {told}");
    }
    assert!(!told.contains("before"), "{told}");
    assert!(
        report
            .unseen
            .iter()
            .any(|line| line.contains("did not answer")),
        "{report:?}"
    );
}

/// A session without escapes reports none.
#[test]
fn t16_an_honest_session_reports_no_escape() {
    let host = Host::new();
    let mut client = client(&host);
    client.run(1, &shell("true"), b"");
    let report = client.end(0);
    assert_eq!(report.escapes, Vec::<String>::new());
}
