//! A host: a real sshd on an address of its own, in mount and process namespaces of its own. It has
//! its own users, homes, `/tmp` and mounts, and all of it ends with one process.

#[path = "../support/sshd.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest")]
mod server;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use labproxy::child::Trampoline;
use labproxy::tunnel::host::HostSpec;
use labproxy::tunnel::ssh::local::Local;
use labproxy::wire::greeting::Nonce;
use tempfile::TempDir;

/// Below the range that the kernel takes for outgoing connections.
pub(crate) const PORT: u16 = 2222;
/// The last number of the next host's address.
static NEXT: AtomicU16 = AtomicU16::new(1);
/// Everything of a host must be there soon.
const SOON: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A login shell of each kind; every host has a user of each name.
pub(crate) const SHELLS: [(&str, &str); 6] = [
    ("sh", "/bin/sh"),
    ("dash", "/bin/dash"),
    ("bash", "/bin/bash"),
    ("zsh", "/bin/zsh"),
    ("fish", "/usr/bin/fish"),
    ("csh", "/bin/csh"),
];

/// What is special about a host.
#[derive(Default)]
pub(crate) struct Setup {
    /// Lines of its sshd's configuration, before the usual ones.
    pub(crate) sshd: String,
    /// Shell commands that run as root in its namespaces before sshd: mounts.
    pub(crate) prepare: String,
    /// Files in homes: user, name, content.
    pub(crate) files: Vec<(&'static str, &'static str, String)>,
}

/// A running host.
pub(crate) struct Host {
    /// As its `/srv`: homes in `home/USER`, keys and configurations.
    pub(crate) directory: TempDir,
    /// For what labproxy makes on this side: short, for sockets.
    pub(crate) here: TempDir,
    pub(crate) address: String,
    namespace: Child,
}

/// The two words of a public key that a list of known hosts has.
pub(crate) fn public(path: &Path) -> String {
    let text = fs::read_to_string(path.with_extension("pub")).unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    format!("{} {}", words[0], words[1])
}

impl Host {
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let Setup {
            sshd,
            prepare,
            files,
        } = setup;
        let here = tempfile::Builder::new()
            .prefix("lpt")
            .tempdir_in("/tmp")
            .unwrap();
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let top = directory.path();
        fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
        // An address of its own for each host of each process: loopback is large.
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (high, low) = (64 + process / 256 % 128, process % 256);
        let address = format!("127.{high}.{low}.{number}");
        for name in ["host_key", "other_host_key", "user_key"] {
            server::generate(&top.join(name), "");
        }
        server::generate(&top.join("encrypted_key"), "secret");
        let mut passwd = fs::read_to_string("/etc/passwd").unwrap();
        let shells = SHELLS.iter().chain([&("nologin", "/usr/sbin/nologin")]);
        for (id, (name, shell)) in (30_001..).zip(shells) {
            let home = top.join("home").join(name);
            fs::create_dir_all(&home).unwrap();
            std::os::unix::fs::chown(&home, Some(id), Some(id)).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
            writeln!(passwd, "t{name}:*:{id}:{id}::/srv/home/{name}:{shell}").unwrap();
            for (_, file, text) in files.iter().filter(|(user, ..)| user == name) {
                fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
                fs::write(home.join(file), text).unwrap();
            }
        }
        fs::write(top.join("passwd"), passwd).unwrap();
        let keys = ["user_key", "encrypted_key"].map(|key| public(&top.join(key)));
        fs::write(top.join("authorized_keys"), keys.join("\n") + "\n").unwrap();
        let known = format!("tested {}\n", public(&top.join("host_key")));
        fs::write(top.join("known_hosts"), known).unwrap();
        let config = server::server_config(
            (&address, PORT),
            Path::new("/srv/host_key"),
            Path::new("/srv/authorized_keys"),
            &format!("{sshd}\nLogLevel VERBOSE"),
        );
        fs::write(top.join("sshd_config"), config).unwrap();
        let host = Self {
            namespace: start(top, &prepare),
            here,
            directory,
            address,
        };
        host.write_client("");
        host.wait();
        host
    }

    /// A file of the host's `/srv`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The user's ssh configuration, with more lines before the usual ones.
    pub(crate) fn write_client(&self, more: &str) {
        let text = format!(
            "{more}\nHost *\nPort {PORT}\nHostName {}\nHostKeyAlias tested\n\
             UserKnownHostsFile {}\nGlobalKnownHostsFile none\nIdentitiesOnly yes\nIdentityFile {}\n",
            self.address,
            self.file("known_hosts").display(),
            self.file("user_key").display(),
        );
        fs::write(self.file("ssh_config"), text).unwrap();
    }

    /// The host for a user of it.
    pub(crate) fn spec(&self, user: &str) -> HostSpec {
        spec(&self.file("ssh_config"), user)
    }

    /// This side, with more in its environment.
    pub(crate) fn local(&self, more: &[(&str, &str)]) -> Local {
        local(self.here.path(), more)
    }

    /// The first process of its namespaces.
    pub(crate) fn init(&self) -> u32 {
        let parent = self.namespace.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let text = fs::read_to_string(children).unwrap();
        text.trim().parse().unwrap()
    }

    /// Runs a shell command as root on the host, in its namespaces.
    pub(crate) fn run(&self, command: &str) -> Output {
        Command::new("nsenter")
            .args(["--target", &self.init().to_string(), "--mount", "--pid"])
            .args(["/bin/sh", "-c", command])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What that prints.
    pub(crate) fn ask(&self, command: &str) -> String {
        let output = self.run(command);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commands that run on the host, but for its first process, and this question.
    pub(crate) fn processes(&self) -> Vec<String> {
        let text = self.ask("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done");
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.contains("cmdline"))
            .filter(|line| !line.starts_with("sshd: /usr/sbin/sshd"))
            .filter(|line| !line.starts_with("tr "))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until nothing but sshd itself runs on the host.
    pub(crate) fn assert_quiet(&self) {
        let until = Instant::now() + SOON;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "still there: {left:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for what must come soon.
    pub(crate) fn eventually(&self, holds: impl Fn() -> bool) {
        let until = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Nothing of a connection is left here: no file, and no ssh that was started for this host.
    pub(crate) fn assert_nothing_here(&self) {
        let left: Vec<_> = fs::read_dir(self.here.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.clients(), Vec::<u32>::new());
    }

    /// Processes here that have this host's directory on this side in their arguments: our ssh.
    pub(crate) fn clients(&self) -> Vec<u32> {
        let mark = self.here.path().to_str().unwrap().as_bytes().to_vec();
        let is_ours = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(mark.len()).any(|part| part == mark)
        };
        let entries = fs::read_dir("/proc").unwrap();
        entries
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(is_ours)
            .collect()
    }

    /// What its sshd said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// How many connections its sshd has taken so far.
    pub(crate) fn connections(&self) -> usize {
        self.log().matches("Connection from ").count()
    }

    fn wait(&self) {
        self.eventually(|| TcpStream::connect((self.address.as_str(), PORT)).is_ok());
        // That one is told of late, by a process of its own.
        self.eventually(|| self.connections() > 0);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The namespaces' first process ends with it, and everything in them.
        self.namespace.kill().unwrap();
        self.namespace.wait().unwrap();
    }
}

/// Starts sshd as the first process of new namespaces.
fn start(top: &Path, prepare: &str) -> Child {
    let script = format!(
        "set -e\n\
         mount --bind {top} /srv\n\
         mount --bind /srv/passwd /etc/passwd\n\
         for d in /tmp /var/tmp /run; do mount -t tmpfs -o mode=1777 tmpfs $d; done\n\
         mkdir -m 755 /run/sshd\n\
         {prepare}\n\
         exec /usr/sbin/sshd -D -e -f /srv/sshd_config 2>/srv/log\n",
        top = top.display()
    );
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["/bin/sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// A user of the host that a configuration leads to.
pub(crate) fn spec(config: &Path, user: &str) -> HostSpec {
    let mut spec = HostSpec::new("tested".parse().unwrap());
    spec.user = Some(format!("t{user}"));
    spec.ssh_config = Some(config.to_path_buf());
    spec
}

/// This side, with a directory for sockets, and with more in its environment.
pub(crate) fn local(here: &Path, more: &[(&str, &str)]) -> Local {
    let path = std::env::var_os("PATH").unwrap();
    let mut environment: Vec<(OsString, OsString)> =
        vec![("PATH".into(), path), ("HOME".into(), here.into())];
    environment.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
    let trampoline = Trampoline::at(env!("CARGO_BIN_EXE_labproxy"));
    Local::new(environment, here, trampoline).unwrap()
}

/// What must come within so many seconds.
pub(crate) async fn within<F: Future>(seconds: u64, what: F) -> F::Output {
    let limit = Duration::from_secs(seconds);
    tokio::time::timeout(limit, what).await.expect("in time")
}

/// A nonce for a test.
pub(crate) fn nonce(number: u8) -> Nonce {
    Nonce::new([number; 16])
}
