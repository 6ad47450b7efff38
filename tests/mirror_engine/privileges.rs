//! Files of other users at the other end: read, replaced and deleted with the right that the login
//! has, or named with the remedy.

use std::os::unix::fs::PermissionsExt as _;

use crate::host::{Host, Setup};
use crate::rig::{Ran, Rig};

/// A host on which `tsh` may become root, and whose real root's home is not touched.
const SUDO: &str = "mount -t tmpfs tmpfs /root\n\
     printf 'root ALL=(ALL) ALL\\ntsh ALL=(ALL) NOPASSWD: ALL\\n' >/run/sudoers\n\
     chmod 440 /run/sudoers\n\
     mount --bind /run/sudoers /etc/sudoers";
/// A host on which nobody may.
const NO_SUDO: &str = "mount -t tmpfs tmpfs /root\n\
     printf 'root ALL=(ALL) ALL\\n' >/run/sudoers\n\
     chmod 440 /run/sudoers\n\
     mount --bind /run/sudoers /etc/sudoers";

fn host(prepare: &str) -> Host {
    let host = Host::with(Setup {
        prepare: prepare.to_owned(),
        ..Setup::default()
    });
    let made = host.run(
        "mkdir /srv/home/sh/tree && cd /srv/home/sh/tree && chown tsh . && \
         printf root >root && chmod 600 root && \
         printf sh >sh && chown tsh sh && chmod 600 sh && \
         printf bash >bash && chown tbash bash && chmod 600 bash && \
         mkdir closed && printf x >closed/x && chmod 700 closed",
    );
    assert!(made.status.success(), "{made:?}");
    host
}

/// The user's configuration: how the host is reached.
fn user(host: &Host, name: &str, more: &str) -> Rig {
    let rig = Rig::new();
    std::fs::remove_dir(rig.path("local")).unwrap();
    rig.write(
        "home/.config/labproxy/config.toml",
        format!(
            "[host.there]\nssh = \"tested\"\nuser = \"{name}\"\nssh_config = \"{}\"\n{more}\n",
            host.file("ssh_config").display()
        ),
    );
    rig
}

fn mirror(rig: &Rig, what: &str, far: &str) -> Ran {
    let local = rig.path("local");
    rig.run(["mirror", what, local.to_str().unwrap(), far])
}

/// Every file comes, as the controller's own; what is edited and deleted here is so there.
fn everything_goes_both_ways(host: &Host, rig: &Rig, far: &str) {
    mirror(rig, "pull", far).expect(0);
    for (name, text) in [
        ("root", "root"),
        ("sh", "sh"),
        ("bash", "bash"),
        ("closed/x", "x"),
    ] {
        assert_eq!(rig.read(format!("local/{name}")), text.as_bytes());
        let mode = rig.path(format!("local/{name}")).metadata().unwrap();
        assert_eq!(mode.permissions().mode() & 0o7777, 0o600, "{name}");
    }
    rig.write("local/root", "edited");
    rig.write("local/closed/new", "new");
    std::fs::remove_file(rig.path("local/bash")).unwrap();
    mirror(rig, "push", far).expect(0);
    assert_eq!(
        host.ask("cd /srv/home/sh/tree && cat root closed/new && ls"),
        "editednewclosed\nroot\nsh"
    );
}

#[test]
fn m57_root_reads_replaces_and_deletes_what_is_anybodys() {
    let host = host(SUDO);
    let rig = user(&host, "root", "workdir = \"/srv/work\"");
    everything_goes_both_ways(&host, &rig, "there:/srv/home/sh/tree");
}

/// The path is the login's, although it is root who reads it.
#[test]
fn m57_with_sudo_a_login_does_what_root_may() {
    if !std::path::Path::new("/usr/bin/sudo").exists() {
        eprintln!("skipped: there is no sudo");
        return;
    }
    let host = host(SUDO);
    let rig = user(&host, "tsh", "sudo = true");
    everything_goes_both_ways(&host, &rig, "there:tree");
    // The files of a login that is root are no way to its keys.
    let refused = mirror(&rig, "pull", "there:.ssh");
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    host.assert_quiet();
}

/// Where sudo asks for a password nothing weaker is done in its place.
#[test]
fn m57_where_sudo_says_no_that_is_said() {
    if !std::path::Path::new("/usr/bin/sudo").exists() {
        eprintln!("skipped: there is no sudo");
        return;
    }
    let host = host(NO_SUDO);
    let rig = user(&host, "tsh", "sudo = true");
    let refused = mirror(&rig, "pull", "there:tree").expect(1);
    assert!(refused.stderr.contains("sudo = true"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("sudo -n says"),
        "{}",
        refused.stderr
    );
    assert!(!rig.has("local"));
}

/// What may not be read is named once with the reason and the remedy, and nothing is published.
#[test]
fn m57_what_may_not_be_read_is_named_once() {
    let host = host(NO_SUDO);
    let rig = user(&host, "tsh", "");
    let refused = mirror(&rig, "pull", "there:tree").expect(1);
    for name in ["root", "bash", "closed"] {
        let line = format!(" {name}: it cannot be read: Permission denied");
        assert_eq!(
            refused.stderr.matches(&line).count(),
            1,
            "{}",
            refused.stderr
        );
    }
    assert!(refused.stderr.contains("sudo = true"), "{}", refused.stderr);
    assert!(!rig.has("local"), "nothing came");
}
