//! What is made of a host's answers: unknown is never taken for none, and only what a session needs
//! fails.

use std::time::Duration;

use super::lines::{self, Line, Step, Verdict};
use super::{json, shell, step_of};
use crate::tunnel::ssh::failure::{Awaited, LinkFailure, Phase};
use crate::wire::bytes::ByteString;
use crate::wire::service::{Docker, Gpu, Gpus, Machine, SessionHere};

const TOOK: Duration = Duration::from_millis(3);

fn machine() -> Machine {
    Machine {
        user: Some("ada".to_owned()),
        uid: 1000,
        architecture: "x86_64".to_owned(),
        workdir: ByteString::from("/home/ada/.labproxy"),
        free_bytes: Some(1 << 40),
        cgroup_version: Some(2),
        cgroup_delegated: true,
    }
}

fn is(line: &Line, verdict: Verdict, detail: &str) {
    assert_eq!((line.verdict, line.detail.as_str()), (verdict, detail));
    assert_eq!(line.remedy.is_some(), verdict != Verdict::Ok, "{line:?}");
}

#[test]
fn room_and_groups_are_told_and_the_unknown_is_a_warning() {
    let line = lines::disk(&machine(), TOOK);
    is(
        &line,
        Verdict::Ok,
        "1024 GiB free in /home/ada/.labproxy (ada, x86_64)",
    );
    let mut less = machine();
    (less.free_bytes, less.user) = (Some(100 << 20), None);
    let line = lines::disk(&less, TOOK);
    is(
        &line,
        Verdict::Warning,
        "100 MiB free in /home/ada/.labproxy (an unknown user, x86_64)",
    );
    less.free_bytes = None;
    assert_eq!(lines::disk(&less, TOOK).verdict, Verdict::Warning);
    let line = lines::cgroup(&machine());
    is(
        &line,
        Verdict::Ok,
        "version 2, with a group for each session",
    );
    (less.cgroup_version, less.cgroup_delegated) = (None, false);
    let line = lines::cgroup(&less);
    is(
        &line,
        Verdict::Warning,
        "unknown version, without a group of our own",
    );
}

#[test]
fn docker_and_gpus_are_never_needed_and_never_guessed() {
    let docker = |docker| lines::docker(&docker, TOOK);
    let here = Docker::Here {
        version: "28.2.2".to_owned(),
        platform: "linux/amd64".to_owned(),
    };
    is(&docker(here), Verdict::Ok, "28.2.2 on linux/amd64");
    is(&docker(Docker::Absent), Verdict::Warning, "not installed");
    let silent = Docker::Silent { why: "no".into() };
    is(&docker(silent), Verdict::Warning, "does not answer: no");
    let gpus = |gpus| lines::gpus(&gpus, TOOK);
    let one = Gpu {
        uuid: "GPU-1".to_owned(),
        name: "A100".to_owned(),
    };
    let two = Gpus::Here(vec![one.clone(), one]);
    is(&gpus(two), Verdict::Ok, "2: A100, A100");
    is(&gpus(Gpus::Absent), Verdict::Warning, "no nvidia-smi");
    let hung = Gpus::Unknown { why: "hung".into() };
    is(&gpus(hung), Verdict::Warning, "unknown: hung");
}

#[test]
fn leftovers_are_counted_by_what_is_known_of_them() {
    let session = |running, pid, workspace| SessionHere {
        session: "ses_x".to_owned(),
        running,
        pid,
        workspace,
    };
    let line = |list: &[SessionHere]| lines::sessions(list, TOOK);
    is(&line(&[]), Verdict::Ok, "none");
    let running = session(Some(true), Some(1), true);
    let ended = session(Some(false), None, true);
    let list = [running, ended];
    is(
        &line(&list),
        Verdict::Ok,
        "1 running, 1 ended, with its workspace",
    );
    let dead = session(Some(false), Some(1), true);
    is(
        &line(&[dead]),
        Verdict::Warning,
        "1 dead, with what it left",
    );
    let hidden = session(None, Some(1), true);
    is(
        &line(&[hidden]),
        Verdict::Warning,
        "1 of which nothing can be told",
    );
}

/// A banner is a foreign string: it is kept short here and escaped where it is shown.
#[test]
fn t37_what_a_login_prints_is_a_warning() {
    is(&shell(b" \n"), Verdict::Ok, "prints nothing by itself");
    is(&shell(b"Hi\n"), Verdict::Warning, "prints 2 bytes: Hi");
    let long = shell(&[b'x'; 4096]);
    assert_eq!(long.detail.len(), "prints 4096 bytes: ".len() + 200);
}

#[test]
fn each_failure_belongs_to_a_step() {
    let said = String::new;
    for (failure, step) in [
        (LinkFailure::Unresolved { said: said() }, Step::Resolve),
        (LinkFailure::Throttled { said: said() }, Step::Connect),
        (LinkFailure::HostKeyRefused { said: said() }, Step::HostKey),
        (
            LinkFailure::TimedOut {
                what: Awaited::Connection(Phase::Authenticating),
                after: TOOK,
            },
            Step::Authentication,
        ),
        (LinkFailure::ShellNoise { printed: said() }, Step::Shell),
        (LinkFailure::OtherVersion { theirs: 9 }, Step::Helper),
        (LinkFailure::LinkLost { said: said() }, Step::Forward),
    ] {
        assert_eq!(step_of(&failure, Step::Forward), step, "{failure:?}");
    }
}

/// What scripts read stays; a time is whole microseconds, the unknown is null.
#[test]
fn the_json_has_the_published_names() {
    let host = crate::tunnel::resolve::ChosenHost {
        name: "gpu1".to_owned(),
        spec: crate::tunnel::host::HostSpec::new("ada@gpu".parse().unwrap()),
        like: Vec::new(),
        notes: Vec::new(),
    };
    let checked = super::Checked {
        steps: vec![Line::ok(Step::HostKey, Some(TOOK), "as known")],
        machine: Some(Machine {
            free_bytes: None,
            ..machine()
        }),
        gpus: Some(Gpus::Unknown { why: "hung".into() }),
        ..super::Checked::default()
    };
    assert_eq!(
        json::of(&host, &checked),
        serde_json::json!({
            "host": "gpu1",
            "destination": "ada@gpu",
            "works": true,
            "steps": [{
                "step": "host_key",
                "verdict": "ok",
                "micros": 3000,
                "detail": "as known",
                "remedy": null,
            }],
            "machine": {
                "user": "ada",
                "uid": 1000,
                "architecture": "x86_64",
                "workdir": "/home/ada/.labproxy",
                "free_bytes": null,
                "cgroup_version": 2,
                "cgroup_delegated": true,
            },
            "docker": null,
            "gpus": { "state": "unknown", "why": "hung" },
            "sessions": null,
        })
    );
}
