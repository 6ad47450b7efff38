//! `labproxy host check` against a real sshd: it tells each step, and fails at the one at which a
//! session would.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rig::{Host, PORT, Setup};

/// What a check left behind.
struct Checked {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs the real program with a configuration that leads to the host, more of it, and arguments.
fn labproxy(host: &Host, more: &str, arguments: &[&str]) -> Checked {
    let home = host.file("user");
    let config = home.join(".config/labproxy/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    let text = format!(
        "[host.lab]\nssh = \"tested\"\nuser = \"tbash\"\nssh_config = \"{}\"\n{more}\n",
        host.file("ssh_config").display()
    );
    std::fs::write(config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_labproxy"))
        .args(arguments)
        .env_clear()
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", host.here.path())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(host.here.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Checked {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The report of `host check --json`, after which nothing is left on either side.
fn report(host: &Host, more: &str) -> (i32, Value) {
    let checked = labproxy(host, more, &["host", "check", "lab", "--json"]);
    host.assert_quiet();
    assert_eq!(host.clients(), Vec::<u32>::new());
    let left = host.ask("ls -d /tmp/lp-* 2>/dev/null");
    assert_eq!(left, "", "left on the host");
    let report = serde_json::from_str(&checked.stdout);
    (checked.code, report.expect(&checked.stderr))
}

fn step<'a>(report: &'a Value, name: &str) -> &'a Value {
    let steps = report["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == name).unwrap()
}

/// The step that failed, when exactly one did and everything before it went well.
fn failed(report: &Value) -> (&str, &str) {
    assert_eq!(report["works"], false, "{report:#}");
    let steps = report["steps"].as_array().unwrap();
    let at = steps.iter().position(|step| step["verdict"] == "failed");
    let at = at.expect("a failed step");
    for (place, step) in steps.iter().enumerate() {
        let verdict = step["verdict"].as_str().unwrap();
        match place.cmp(&at) {
            std::cmp::Ordering::Less => assert_ne!(verdict, "skipped", "{report:#}"),
            std::cmp::Ordering::Equal => assert!(step["remedy"].is_string()),
            std::cmp::Ordering::Greater => assert_eq!(verdict, "skipped", "{report:#}"),
        }
    }
    let text = |field: &str| steps[at][field].as_str().unwrap();
    (text("step"), text("detail"))
}

/// Puts a program where the host's users find it first.
fn program(host: &Host, name: &str, script: &str) {
    let path = host.file("bin").join(name);
    std::fs::create_dir_all(host.file("bin")).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Everything works: each step has its line and the timed ones their time; what a session does
/// without is a warning and fails nothing. The second time the helper is there.
#[test]
fn a_host_that_works_passes_every_step() {
    let host = Host::start();
    let (code, first) = report(&host, "");
    assert_eq!(
        (code, &first["works"]),
        (0, &Value::Bool(true)),
        "{first:#}"
    );
    let names: Vec<&str> = first["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "resolve",
            "connect",
            "host_key",
            "authentication",
            "shell",
            "helper",
            "disk",
            "forward",
            "docker",
            "cgroup",
            "gpus",
            "sessions"
        ]
    );
    for timed in [
        "resolve",
        "connect",
        "host_key",
        "authentication",
        "helper",
        "forward",
    ] {
        assert!(step(&first, timed)["micros"].is_u64(), "{timed}");
    }
    assert_eq!(step(&first, "helper")["detail"], "sent");
    assert_eq!(step(&first, "gpus")["verdict"], "warning");
    assert_eq!(step(&first, "sessions")["detail"], "none");
    let machine = &first["machine"];
    assert_eq!(machine["user"], "tbash");
    assert_eq!(machine["architecture"], std::env::consts::ARCH);
    assert_eq!(machine["workdir"], "/srv/home/bash/.labproxy");
    assert!(machine["free_bytes"].is_u64());
    let (code, second) = report(&host, "");
    assert_eq!(
        (code, &step(&second, "helper")["detail"]),
        (0, &"was there".into())
    );
    let told = labproxy(&host, "", &["host", "check", "lab"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(
        told.stdout.starts_with("ok       resolve "),
        "{}",
        told.stdout
    );
    assert!(
        told.stdout.ends_with("a session would start\n"),
        "{}",
        told.stdout
    );
}

/// A server that forbids forwards fails at the forward, with the lines of its configuration to ask
/// for.
#[test]
fn tu02_a_forbidden_forward_fails_the_check() {
    let host = Host::with(Setup {
        sshd: "AllowStreamLocalForwarding no".to_owned(),
        ..Setup::default()
    });
    let (code, report) = report(&host, "");
    assert_eq!((code, failed(&report).0), (1, "forward"), "{report:#}");
    let remedy = step(&report, "forward")["remedy"].as_str().unwrap();
    assert!(
        remedy.contains("AllowStreamLocalForwarding yes"),
        "{remedy}"
    );
}

/// With `tcp_fallback` the check forwards a port, as a session would, and says what that costs.
#[test]
fn tu02_a_check_falls_back_where_a_session_would() {
    let host = Host::with(Setup {
        sshd: "AllowStreamLocalForwarding no".to_owned(),
        ..Setup::default()
    });
    let (code, report) = report(&host, "tcp_fallback = true");
    let forward = step(&report, "forward");
    assert_eq!(
        (code, &forward["verdict"]),
        (0, &Value::from("warning")),
        "{report:#}"
    );
    let remedy = forward["remedy"].as_str().unwrap();
    assert!(remedy.contains("any local user"), "{remedy}");
}

/// A changed host key fails at its step, and both fingerprints are shown.
#[test]
fn tu10_a_changed_host_key_fails_the_check() {
    let host = Host::start();
    let other = crate::rig::public(&host.file("other_host_key"));
    std::fs::write(host.file("known_hosts"), format!("tested {other}\n")).unwrap();
    for more in ["", "accept_new_host_key = true"] {
        let (code, report) = report(&host, more);
        let (step, detail) = failed(&report);
        assert_eq!((code, step), (1, "host_key"), "{report:#}");
        assert_eq!(detail.matches("SHA256:").count(), 2, "{detail}");
    }
}

/// A user who is not taken, and an address where nobody listens, fail at their steps.
#[test]
fn b17_a_refused_user_and_a_closed_port_fail_at_their_steps() {
    let host = Host::start();
    std::fs::write(host.file("authorized_keys"), "").unwrap();
    let (code, refused) = report(&host, "");
    assert_eq!(
        (code, failed(&refused).0),
        (1, "authentication"),
        "{refused:#}"
    );
    let (code, closed) = report(&host, &format!("port = {}", PORT + 1));
    assert_eq!((code, failed(&closed).0), (1, "connect"), "{closed:#}");
}

/// A banner and chatty start-up files are passed over, told once, and cannot draw on the terminal.
#[test]
fn t37_tb09_a_chatty_login_is_a_warning_and_is_escaped() {
    let host = Host::with(Setup {
        files: vec![(
            "bash",
            ".bashrc",
            "printf '\\033[2JWelcome \\302\\2331m'; echo back\n".to_owned(),
        )],
        ..Setup::default()
    });
    let (code, report) = report(&host, "");
    assert_eq!(
        (code, &step(&report, "shell")["verdict"]),
        (0, &"warning".into()),
        "{report:#}"
    );
    let told = labproxy(&host, "", &["host", "check", "lab"]);
    assert!(
        told.stdout.contains("\\x1b[2JWelcome \\x9b1mback"),
        "{}",
        told.stdout
    );
    assert!(!told.stdout.contains(['\u{1b}', '\u{9b}']));
}

/// A login that ends before it does anything fails where the shell is looked at.
#[test]
fn tb10_a_login_that_exits_fails_the_check() {
    let host = Host::with(Setup {
        files: vec![("bash", ".bashrc", "echo bye; exit 0\n".to_owned())],
        ..Setup::default()
    });
    let (code, report) = report(&host, "");
    let (step, detail) = failed(&report);
    assert_eq!((code, step), (1, "shell"), "{report:#}");
    assert!(detail.contains("bye"), "{detail}");
}

/// A directory for sessions that others can write fails; another one does not.
#[test]
fn an_open_workdir_fails_the_check() {
    let host = Host::with(Setup {
        prepare: "mkdir -m 777 /run/open && mkdir -m 700 /run/closed && chown 30003 /run/closed"
            .to_owned(),
        ..Setup::default()
    });
    let (code, open) = report(&host, "workdir = \"/run/open\"");
    assert_eq!((code, failed(&open).0), (1, "disk"), "{open:#}");
    let (code, closed) = report(&host, "workdir = \"/run/closed\"");
    assert_eq!(code, 0, "{closed:#}");
    assert_eq!(closed["machine"]["workdir"], "/run/closed");
}

/// An engine that answers is told with its platform, and GPUs with their names; a hung `nvidia-smi`
/// is unknown within its limit, and neither fails a check.
#[test]
fn tb72_an_engine_and_gpus_are_told_and_a_hung_one_is_unknown() {
    let host = Host::with(Setup {
        files: vec![("bash", ".bashrc", "PATH=/srv/bin:$PATH\n".to_owned())],
        ..Setup::default()
    });
    program(&host, "docker", "echo linux/amd64 28.2.2");
    program(&host, "nvidia-smi", "echo GPU-0a1b, NVIDIA A100");
    let (code, here) = report(&host, "");
    assert_eq!(code, 0, "{here:#}");
    assert_eq!(here["docker"]["platform"], "linux/amd64", "{here:#}");
    assert_eq!(here["gpus"]["list"][0]["uuid"], "GPU-0a1b");
    program(&host, "docker", "exit 1");
    program(&host, "nvidia-smi", "exec sleep 1000");
    let (code, hung) = report(&host, "");
    assert_eq!(
        (code, &hung["gpus"]["state"]),
        (0, &"unknown".into()),
        "{hung:#}"
    );
}

/// What an earlier session left is told, and is no failure.
#[test]
fn leftovers_of_earlier_sessions_are_told() {
    let host = Host::start();
    let session = "/srv/home/bash/.labproxy/sessions/ses_old";
    let (code, _) = report(&host, "");
    assert_eq!(code, 0);
    let made = host.run(&format!(
        "umask 077; mkdir -p {session}/workspace && chown -R 30003:30003 {session}"
    ));
    assert!(made.status.success());
    let (code, report) = report(&host, "");
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(
        step(&report, "sessions")["detail"],
        "1 ended, with its workspace"
    );
    assert_eq!(report["sessions"][0]["session"], "ses_old");
    assert_eq!(report["sessions"][0]["workspace"], true);
}
