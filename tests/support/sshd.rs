//! A ssh server of our own: its keys, its configuration, its port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use labproxy::processes::{self, ProcessStamp};
use rustix::process::{Pid, Signal, kill_process};

/// Makes a pair of keys: this file, and one beside it.
pub fn generate(path: &Path, passphrase: &str) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-C", "test", "-N", passphrase, "-f"])
        .arg(path)
        .status();
    assert!(status.expect("ssh-keygen can be run").success());
}

/// A server's configuration: where it listens, the files of keys as it sees them, and lines that come
/// before all others and so win.
pub fn server_config(
    address: (&str, u16),
    host_key: &Path,
    authorized: &Path,
    more: &str,
) -> String {
    format!(
        "{more}\nPort {port}\nListenAddress {name}\nHostKey {}\nPidFile none\n\
         AuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        host_key.display(),
        authorized.display(),
        name = address.0,
        port = address.1,
    )
}

/// A configuration of a user for one server.
fn client_config(host: &str, address: (&str, u16), directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "Host {host}\n  HostName {}\n  Port {}\n  HostKeyAlias {host}\n  \
         IdentityFile {directory}/user\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile {directory}/known_hosts\n  GlobalKnownHostsFile none\n",
        address.0, address.1
    )
}

/// Puts keys and both configurations into a directory, for a server that is called `host`.
pub fn configure(host: &str, address: (&str, u16), directory: &Path) {
    for key in ["host", "user"] {
        generate(&directory.join(key), "");
    }
    let write = |name: &str, text: String| {
        fs::write(directory.join(name), text).expect("the directory is ours");
    };
    let (key, authorized) = (directory.join("host"), directory.join("user.pub"));
    let config = server_config(
        address,
        &key,
        &authorized,
        "LogLevel ERROR\nMaxStartups 100",
    );
    write("sshd_config", config);
    let host_key = fs::read_to_string(directory.join("host.pub")).expect("it was made");
    write("known_hosts", format!("{host} {host_key}"));
    write("ssh_config", client_config(host, address, directory));
}

/// Starts the server of a directory by `command`, a way to run programs on its machine.
pub fn run(command: impl Fn(&str) -> Command, directory: &Path) -> Child {
    // As root it wants a directory that only root can write to.
    let _there = fs::create_dir_all("/run/sshd");
    command("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(directory.join("sshd_config"))
        .stdin(Stdio::null())
        .spawn()
        .expect("sshd can be started")
}

/// The server, and how to reach it.
pub struct Sshd {
    server: Child,
    /// A configuration for `ssh -F`, in which the server is [`HOST`].
    pub config: PathBuf,
}

/// The server's name in the configuration.
pub const HOST: &str = "far";
const PORT: u16 = 22;

impl Sshd {
    /// Starts it by `command`, a way to run programs on its machine, at `address`.
    pub fn start(command: impl Fn(&str) -> Command, address: &str, directory: &Path) -> Self {
        let address = (address, PORT);
        configure(HOST, address, directory);
        let config = directory.join("ssh_config");
        let mut text = fs::read_to_string(&config).expect("it was written");
        text.push_str(
            "  User root\n  BatchMode yes\n  StrictHostKeyChecking yes\n  ExitOnForwardFailure yes\n  \
             LogLevel ERROR\n",
        );
        fs::write(&config, text).expect("the directory is ours");
        let server = run(command, directory);
        Self { server, config }
    }

    /// Waits until it takes logins from where `command` runs programs.
    pub fn wait(&self, command: impl Fn(&str) -> Command) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut ssh = command("ssh");
            ssh.arg("-F").arg(&self.config).args([HOST, "true"]);
            let output = ssh.stdin(Stdio::null()).output().expect("ssh can be run");
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(Instant::now() < deadline, "no login: {said}");
        }
    }
}

impl Sshd {
    /// The server that takes logins; each login is a child of it.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.server.id()).expect("a pid")
    }

    /// The server's processes for logins.
    pub fn logins(&self) -> Vec<ProcessStamp> {
        let server = self.pid();
        let children = processes::all().filter(|seen| seen.parent == server);
        children.map(|seen| seen.stamp).collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // One that is stopped, or whose network goes before it has heard of the end, would stay for ever.
        for login in self.logins().iter().filter(|login| login.is_alive()) {
            let pid = Pid::from_raw(login.pid).expect("a pid");
            let _gone_already = kill_process(pid, Signal::KILL);
        }
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
