//! What a tool can reach: nothing of the user's, unless it runs without a sandbox.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use labproxy::audit::sandbox::Sandbox;
use labproxy::ledger::{SandboxKind, ToolLimits, Verdict};

use crate::rig::{How, Rig, trampoline};

/// Tries to reach what a user has; exits with how many of its tries succeeded.
const PROBE: &str = r#"
import os, socket, sys
home, state, config, run, port, pid = sys.argv[1:7]
hits = []
def attempt(name, work):
    try:
        if work():
            hits.append(name)
    except Exception:
        pass
def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect(address)
    return True
attempt("environment", lambda: any("canary" in value for value in os.environ.values()))
attempt("home", lambda: os.listdir(home))
attempt("own home", lambda: os.listdir(os.environ["HOME"]))
attempt("ssh key", lambda: open(home + "/.ssh/id").read())
attempt("configuration", lambda: os.listdir(config))
attempt("state", lambda: os.listdir(state))
attempt("ledger", lambda: open(state + "/ledger.sqlite3", "rb").read(1))
attempt("control socket", lambda: connect(socket.AF_UNIX, run + "/control.sock"))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, "\0audit-probe-" + port))
attempt("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", int(port))))
attempt("process", lambda: open("/proc/" + pid + "/environ", "rb").read().count(b"canary"))
attempt("any process", lambda: any(b"canary" in open("/proc/" + p + "/environ", "rb").read()
                                   for p in os.listdir("/proc") if p.isdigit()))
attempt("signal", lambda: os.kill(int(pid), 0) is None)
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("host keys", lambda: os.listdir("/etc/ssh"))
attempt("usr", lambda: os.access("/usr", os.W_OK))
print(hits, flush=True)
sys.exit(len(hits))
"#;

/// The user's things, and a socket of every kind that a tool could talk to.
struct Reachable {
    arguments: Vec<String>,
    _control: UnixListener,
    _abstract: UnixListener,
    tcp: TcpListener,
    neighbour: std::process::Child,
}

impl Reachable {
    fn make(rig: &Rig) -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        let paths = rig.paths();
        fs::write(rig.path("home/.ssh/id"), "canary").unwrap();
        rig.configure("# canary\n");
        paths.prepare_state().unwrap();
        paths.prepare_runtime().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        let name = format!("audit-probe-{port}");
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let neighbour = std::process::Command::new("sleep")
            .arg("600")
            .env("NEIGHBOUR", "canary")
            .spawn()
            .unwrap();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let arguments = vec![
            text(&rig.path("home")),
            text(paths.state()),
            text(paths.config()),
            text(paths.runtime()),
            port,
            neighbour.id().to_string(),
        ];
        Self {
            arguments,
            _control: UnixListener::bind(paths.runtime().join("control.sock")).unwrap(),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            tcp,
            neighbour,
        }
    }

    /// How many tries of the probe succeeded.
    fn hits(&self, rig: &Rig, how: How) -> u8 {
        rig.far("probe.py", PROBE);
        let mut argv = vec!["python3", "probe.py"];
        argv.extend(self.arguments.iter().map(String::as_str));
        match rig.try_audit(&argv, how).unwrap().audit.verdict {
            Verdict::Passed => 0,
            Verdict::Failed { status } => status,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        self.neighbour.kill().unwrap();
        self.neighbour.wait().unwrap();
    }
}

/// A tool that tries the environment, keys, state, sockets, the network and other processes has no
/// hit; the same tool without a sandbox has most of them, so the tries are real.
#[test]
fn t03_a_sandboxed_tool_reaches_nothing() {
    let rig = Rig::new();
    let reachable = Reachable::make(&rig);
    assert_eq!(reachable.hits(&rig, How::default()), 0);
    assert!(reachable.tcp.accept().is_err(), "nobody called");
    let bare = How {
        sandboxed: false,
        ..How::default()
    };
    let hits = reachable.hits(&rig, bare);
    assert!(hits >= 10, "{hits}");
    assert!(reachable.tcp.accept().is_ok());
}

/// The network is there when it is asked for, and nothing else with it but what the kernel ties to
/// it: the loopback, and sockets without a file.
#[test]
fn t03_the_network_is_there_when_it_is_asked_for() {
    let rig = Rig::new();
    let reachable = Reachable::make(&rig);
    let how = How {
        network: true,
        ..How::default()
    };
    assert_eq!(reachable.hits(&rig, how), 2);
    assert!(reachable.tcp.accept().is_ok());
}

/// The tool has no capabilities, cannot get any, and its home is empty.
#[test]
fn t03_a_tool_has_no_power() {
    let rig = Rig::new();
    let done = rig.sh("set -e
        grep -q '^CapEff:.0000000000000000$' /proc/self/status
        grep -q '^CapBnd:.0000000000000000$' /proc/self/status
        grep -q '^NoNewPrivs:.1$' /proc/self/status
        test -z \"$(ls -A \"$HOME\")\"
        test \"$(id -u)\" = 1000
        test \"$(hostname)\" = audit
        ! mount -t tmpfs none /tmp
        ! chroot / true
        ! test -e /home/audit/../../root
        test \"$(ls /proc | grep -c '^[0-9]')\" -lt 8");
    assert_eq!(done.verdict(), &Verdict::Passed);
}

/// Without a sandbox only by the user's word, which the ledger has.
#[test]
fn t03_no_sandbox_is_in_the_verdict() {
    let rig = Rig::new();
    let how = How {
        sandboxed: false,
        ..How::default()
    };
    let done = rig.try_audit(&["sh", "-c", "test -z \"$ANTHROPIC_API_KEY\""], how);
    let done = done.unwrap();
    assert_eq!(done.verdict(), &Verdict::Passed);
    assert_eq!(done.audit.sandbox, SandboxKind::None);
    assert!(
        serde_json::to_string(&done.audit)
            .unwrap()
            .contains("\"sandbox\":\"none\"")
    );
}

/// Nothing weaker is chosen when there is no bubblewrap, or it may not make namespaces: the audit
/// does not begin, and the words of bubblewrap are told.
#[test]
fn t03_without_a_sandbox_there_is_no_audit() {
    let rig = Rig::new();
    let tools = rig.path("tools");
    fs::create_dir(&tools).unwrap();
    let prepare = || {
        let (paths, config) = (rig.paths(), rig.config());
        Sandbox::prepare(
            &trampoline(),
            Some(tools.as_os_str()),
            false,
            &ToolLimits::default(),
            &paths,
            &config,
        )
    };
    let failure = prepare().unwrap_err();
    assert!(failure.message().contains("bwrap"), "{failure:?}");
    assert!(failure.hints().iter().any(|hint| hint.contains("install")));
    let mut fake = fs::File::create(tools.join("bwrap")).unwrap();
    fake.write_all(
        b"#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n",
    )
    .unwrap();
    drop(fake);
    fs::set_permissions(tools.join("bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let failure = prepare().unwrap_err();
    assert!(failure.problems()[0].contains("No permissions to create a new namespace"));
    assert!(failure.hints()[0].contains("user namespaces"));
}

/// More of the machine is shown when it is configured, read-only, and never what holds secrets.
#[test]
fn t03_what_is_shown_holds_no_secrets() {
    let rig = Rig::new();
    fs::create_dir(rig.path("opt")).unwrap();
    fs::write(rig.path("opt/data"), "x").unwrap();
    let shown = rig.path("opt");
    rig.configure(&format!("[audit]\nread = [{shown:?}]\n"));
    let script = format!("cat {0}/data && ! touch {0}/new", shown.display());
    assert_eq!(rig.sh(&script).verdict(), &Verdict::Passed);
    for secret in [
        "home",
        "home/.ssh",
        "home/.local",
        "home/.config/labproxy",
        "",
    ] {
        fs::create_dir_all(rig.paths().state()).unwrap();
        let secret = rig.path(secret);
        rig.configure(&format!("[audit]\nread = [{secret:?}]\n"));
        let failure = rig.sandbox(false).unwrap_err();
        assert!(
            failure.message().contains("a tool may not see"),
            "{failure:?}"
        );
    }
}

/// A program that is nowhere in the sandbox is 127 before anything is pulled.
#[test]
fn a_program_outside_the_sandbox_is_not_found() {
    let rig = Rig::new();
    let own = rig.path("own");
    fs::write(&own, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let sandbox = rig.sandbox(false).unwrap();
    let kind = |name: &std::ffi::OsStr| {
        sandbox
            .find(name)
            .unwrap_err()
            .exit(labproxy::report::Job::Program)
            .0
    };
    assert_eq!(kind(own.as_os_str()), 127);
    assert_eq!(kind("no-such-program-anywhere".as_ref()), 127);
    assert!(sandbox.find("sh".as_ref()).is_ok());
    assert!(sandbox.find("./in-the-copy".as_ref()).is_ok());
    assert!(sandbox.find("/workspace/in-the-copy".as_ref()).is_ok());
}
