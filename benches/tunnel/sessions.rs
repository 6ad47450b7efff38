//! Whole sessions on the host, as a user starts them: how long until the agent says something, and
//! what the host side keeps in memory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, Read as _, Write as _, stdin, stdout};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use labproxy::processes;
use labproxy::remote::record::Record;
use tempfile::TempDir;

use crate::chain::{Part, memory};
use crate::load::connect;
use crate::netpair::{FAR, NetPair};
use crate::report::{quantile, spread};
use crate::sshd::{HOST, Sshd};

/// Bytes that go through the forwarder, and through the supervisor, between two looks at memory.
pub const THROUGH: usize = 64 << 20;
/// What every agent here says first.
const FIRST: &str = "echo there";

/// A user on both machines.
pub struct World<'a> {
    net: &'a NetPair,
    sshd: Sshd,
    upstream: Part,
    folder: TempDir,
}

impl<'a> World<'a> {
    pub fn new(net: &'a NetPair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "config/labproxy", "state", "run", "host", "ssh"] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let ssh = folder.path().join("ssh");
        let sshd = Sshd::start(|program| alone(net, program), FAR, &ssh);
        sshd.wait(|program| net.near(program));
        let config = format!(
            "[host.{HOST}]\nssh = \"{HOST}\"\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
            sshd.config.display(),
            folder.path().join("host").display()
        );
        fs::write(folder.path().join("config/labproxy/config.toml"), config).unwrap();
        let this = std::env::current_exe().unwrap();
        let upstream = Part::start(net.near(this).arg("upstream"), true);
        Self {
            net,
            sshd,
            upstream,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `labproxy session start --host`, with this agent.
    fn session(&self, agent: &[&str]) -> Command {
        let mut command = self.net.near(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(["session", "start", "--host", HOST, "--cap", "1"])
            .arg("--upstream")
            .arg(format!("http://127.0.0.1:{}", self.upstream.line))
            .args(["--credential", "env:BENCH_CREDENTIAL", "--"])
            .args(agent)
            .current_dir(self.path("home"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("LABPROXY_PRICING_ALLOW_STALE", "true")
            .env("BENCH_CREDENTIAL", "sk-ant-api03-tunnel-bench");
        command
    }

    fn ssh(&self, options: &[&str], command: &str) -> Command {
        let mut ssh = self.net.near("ssh");
        ssh.arg("-F").arg(&self.sshd.config);
        ssh.args(options).args([HOST, command]);
        ssh
    }

    /// Milliseconds until a command's first byte, and until its end.
    fn times(&self, mut command: Command) -> (f64, f64) {
        let said = self.path("said");
        command.stderr(File::create(&said).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut bytes = vec![0; 1];
        let has_first = output.read_exact(&mut bytes).is_ok();
        let first = began.elapsed();
        output.read_to_end(&mut bytes).unwrap();
        let status = child.wait().unwrap();
        let end = began.elapsed();
        // `true` says nothing.
        let said = || fs::read_to_string(&said).unwrap();
        assert!(status.success(), "{command:?}: {}", said());
        assert!(!has_first || bytes == b"there\n", "{command:?}: {}", said());
        (first.as_secs_f64() * 1e3, end.as_secs_f64() * 1e3)
    }

    /// A session until its agent's first byte, ms; when `is_cold`, the helper has to be sent.
    fn start(&self, is_cold: bool) -> f64 {
        let helper = self.path("host/bin");
        if is_cold && helper.exists() {
            fs::remove_dir_all(&helper).unwrap();
        }
        let (first, _) = self.times(self.session(&["sh", "-c", FIRST]));
        // Elsewhere it could have been found, and the start was not cold.
        assert!(fs::read_dir(helper).unwrap().next().is_some());
        first
    }

    /// The table of starts.
    pub fn starts(&self, rounds: u32) -> String {
        let names = [
            "ssh far true, whole",
            "ssh -R … far agent, first byte",
            "session start, helper sent, first byte",
            "session start, helper there, first byte",
        ];
        let mut values = names.map(|_| Vec::new());
        for round in 1..=rounds {
            eprintln!("starts, round {round}");
            let socket = self.path(&format!("host/bare-{round}"));
            let forward = format!("{}:127.0.0.1:{}", socket.display(), self.upstream.line);
            let round = [
                self.times(self.ssh(&[], "true")).1,
                self.times(self.ssh(&["-R", &forward], FIRST)).0,
                self.start(true),
                self.start(false),
            ];
            for (values, value) in values.iter_mut().zip(round) {
                values.push(value);
            }
        }
        let mut text = String::from(
            "| start | p50, ms (least–most) | p99, ms | of ssh far true, × |\n|---|---|---|---|\n",
        );
        for (name, of) in names.iter().zip(&values) {
            let ratio: Vec<f64> = of
                .iter()
                .zip(&values[0])
                .map(|(of, ssh)| of / ssh)
                .collect();
            let (p50, ratio) = (spread(of), spread(&ratio));
            let p99 = quantile(of, 0.99);
            let _ = writeln!(text, "| {name} | {p50} | {p99:.0} | {ratio} |");
        }
        text
    }

    /// The table of memory.
    pub fn memory(&self) -> String {
        let this = std::env::current_exe().unwrap();
        let before = self.sessions();
        let mut command = self.session(&[this.to_str().unwrap(), "agent"]);
        command.stderr(File::create(self.path("said")).unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut agent = Agent::start(&mut command);
        let mut new = self.sessions();
        new.retain(|path| !before.contains(path));
        let directory = OwnedFd::from(File::open(new.first().unwrap()).unwrap());
        let record = Record::read(&directory).unwrap();
        let forwarder = processes::all()
            .filter(|process| process.parent == record.supervisor.pid)
            .map(|process| process.stamp.pid)
            .find(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline"));
                line.is_ok_and(|line| line.ends_with(b"forward\0"))
            });
        let processes = [
            ("guard", record.guard.pid),
            ("supervisor", record.supervisor.pid),
            ("forwarder", forwarder.unwrap()),
        ];
        let look = || processes.map(|(_, pid)| memory(pid.unsigned_abs()));
        let idle = look();
        agent.goes_through();
        let after = look();
        agent.end();
        let mut text =
            String::from("| resident, KiB | idle | after 64 MiB | the most |\n|---|---|---|---|\n");
        for (at, (name, _)) in processes.iter().enumerate() {
            let (idle, (after, most)) = (idle[at].0, after[at]);
            let _ = writeln!(text, "| {name} | {idle} | {after} | {most} |");
        }
        text
    }

    /// Directories of sessions on the host.
    fn sessions(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.path("host/sessions"));
        let all = all.into_iter().flatten().flatten();
        all.map(|entry| entry.path()).collect()
    }
}

/// A program on the host, where nothing is found that other logins of this user left: the helper is
/// looked for in more places than the one that [`World::start`] empties.
fn alone(net: &NetPair, program: &str) -> Command {
    const COVER: &str = "for d in /var/tmp /tmp; do d=$d/labproxy-$(id -u); \
        [ ! -d $d ] || mount -t tmpfs -o mode=0700 none $d || exit; done; exec \"$0\" \"$@\"";
    let mut command = net.far("unshare");
    command.args(["--mount", "sh", "-c", COVER, program]);
    command
}

/// The controller of a session whose agent is [`agent`].
struct Agent {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Agent {
    /// Starts it and waits for its first word.
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 6]).unwrap();
        Self {
            child,
            input,
            output,
        }
    }

    /// Lets as much go through forwarder and supervisor, and waits for it.
    fn goes_through(&mut self) {
        self.input.write_all(b"go\n").unwrap();
        let mut part = vec![0; 256 * 1024];
        let mut left = THROUGH;
        while left > 0 {
            let most = left.min(part.len());
            let read = self.output.read(&mut part[..most]).unwrap();
            assert!(read > 0, "the agent ended early");
            left -= read;
        }
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// A role: an agent that reads [`THROUGH`] bytes from the proxy when it is told to, then writes as
/// many, and ends with its input.
pub fn agent() {
    println!("there");
    let mut lines = stdin().lock();
    lines.read_line(&mut String::new()).unwrap();
    let base = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let key = std::env::var("ANTHROPIC_API_KEY").unwrap();
    let address = base.strip_prefix("http://127.0.0.1:").unwrap();
    let mut stream = connect(&format!("tcp:{address}")).unwrap();
    // A free call, whose answer the proxy relays whatever its length.
    write!(
        stream,
        "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:{address}\r\nx-api-key: {key}\r\n\
         anthropic-version: 2023-06-01\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut part = vec![0; 256 * 1024];
    let mut count = 0;
    loop {
        match stream.read(&mut part).unwrap() {
            0 => break,
            length => count += length,
        }
    }
    assert!(count > THROUGH, "only {count} bytes from the proxy");
    for _ in 0..THROUGH / part.len() {
        stdout().write_all(&part).unwrap();
    }
    lines.read_to_end(&mut Vec::new()).unwrap();
}
