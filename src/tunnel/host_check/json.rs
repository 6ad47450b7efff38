//! What `labproxy host check --json` prints: names that stay.

use serde_json::{Value, json};

use super::Checked;
use crate::tunnel::resolve::ChosenHost;
use crate::wire::service::{Docker, Gpus, Machine, SessionHere};

/// Everything that was found.
pub fn of(host: &ChosenHost, checked: &Checked) -> Value {
    let Checked {
        steps,
        machine,
        docker,
        gpus,
        sessions,
    } = checked;
    json!({
        "host": host.name,
        "destination": host.spec.destination.to_string(),
        "works": checked.works(),
        "steps": steps,
        "machine": machine.as_ref().map(of_machine),
        "docker": docker.as_ref().map(of_docker),
        "gpus": gpus.as_ref().map(of_gpus),
        "sessions": sessions.as_ref().map(|list| list.iter().map(of_session).collect::<Vec<_>>()),
    })
}

/// What could not be learned is `null`.
fn of_machine(machine: &Machine) -> Value {
    let Machine {
        user,
        uid,
        architecture,
        workdir,
        free_bytes,
        cgroup_version,
        cgroup_delegated,
    } = machine;
    json!({
        "user": user,
        "uid": uid,
        "architecture": architecture,
        "workdir": String::from_utf8_lossy(workdir.as_bytes()),
        "free_bytes": free_bytes,
        "cgroup_version": cgroup_version,
        "cgroup_delegated": cgroup_delegated,
    })
}

fn of_docker(docker: &Docker) -> Value {
    match docker {
        Docker::Absent => json!({ "state": "absent" }),
        Docker::Silent { why } => json!({ "state": "silent", "why": why }),
        Docker::Here { version, platform } => {
            json!({ "state": "here", "version": version, "platform": platform })
        }
    }
}

fn of_gpus(gpus: &Gpus) -> Value {
    match gpus {
        Gpus::Absent => json!({ "state": "absent" }),
        Gpus::Unknown { why } => json!({ "state": "unknown", "why": why }),
        Gpus::Here(list) => {
            let one =
                |gpu: &crate::wire::service::Gpu| json!({ "uuid": gpu.uuid, "name": gpu.name });
            json!({ "state": "here", "list": list.iter().map(one).collect::<Vec<_>>() })
        }
    }
}

fn of_session(here: &SessionHere) -> Value {
    let SessionHere {
        session,
        running,
        pid,
        workspace,
    } = here;
    json!({ "session": session, "running": running, "pid": pid, "workspace": workspace })
}
