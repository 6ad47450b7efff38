//! The example of `examples/agent_sdk`: an agent on a host whose own tools are audits, made here.

use std::path::Path;

use serde_json::Value;

use crate::agents::There;
use crate::rig::{Run, clients};

/// The agent cuts its own link: every ssh server's process of its user on that host.
const CUT: &str =
    "for p in /proc/[0-9]*; do grep -qx sshd $p/comm && kill ${p#/proc/}; done; echo cut";

/// Runs the example with one prompt for each scenario.
fn harness(there: &There, scenarios: &[&str]) -> Run {
    let rig = &there.rig;
    let programs = [
        clients().join("node_modules/.bin"),
        Path::new(env!("CARGO_BIN_EXE_labproxy"))
            .parent()
            .unwrap()
            .to_owned(),
    ];
    let named = programs.map(|folder| folder.display().to_string());
    let path = format!("{}:{}", named.join(":"), std::env::var("PATH").unwrap());
    let workspace = rig.path("workspace");
    let mut command = tokio::process::Command::new(clients().join("venv/bin/python"));
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agent_sdk/harness.py"))
        .args(["--host", "rig", "--cap", "2", "--workspace"])
        .arg(&workspace)
        .args(["--upstream", &rig.standin.url()])
        .arg("--credential")
        .arg(format!("file:{}", rig.path("key").display()))
        .arg("--receipt")
        .arg(rig.path("receipt.json"))
        .args(
            scenarios
                .iter()
                .map(|scenario| format!("Please. [[scenario: {scenario}]]")),
        )
        .current_dir(&workspace)
        .env_clear()
        .envs(rig.environment())
        .env("PATH", path);
    rig.finish(command)
}

/// What a command of labproxy says of the session, as JSON.
fn ask(there: &There, words: &[&str]) -> Value {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_labproxy"))
        .args(words)
        .arg("--json")
        .current_dir(there.rig.path("workspace"))
        .env_clear()
        .envs(there.rig.environment())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A directory's files with their hashes, by programs that share nothing with labproxy.
fn sums(directory: &Path) -> String {
    let output = std::process::Command::new("sh")
        .args(["-c", "find . -type f -exec sha256sum {} + | sort"])
        .current_dir(directory)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Three tools and five audits in one loop of the real SDK with the real CLI, the last of which restores
/// what its tool made, with a lost link in the middle: each sees what the agent had made by then, the bill is
/// exact, and both ends are one tree.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_agent_sdks_tools_are_audits() {
    let there = There::new();
    there
        .rig
        .write("workspace/test.sh", "grep -qx better answer.txt\n");
    let run = harness(
        &there,
        &[
            "bash echo good > answer.txt",
            "tool mcp__lab__run_tests {}",
            &format!("bash {CUT}"),
            "tool mcp__lab__list_files {}",
            "tool mcp__lab__submit {}",
            "bash echo better > answer.txt",
            "tool mcp__lab__run_tests {}",
            "tool mcp__lab__submit {}",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert!(
        run.stderr.contains("link to rig lost"),
        "it was cut: {run:#?}"
    );
    let audits = ask(&there, &["audit", "list"]);
    let verdicts: Vec<&str> = audits["audits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|audit| audit["verdict"].as_str().unwrap())
        .collect();
    let expected = ["failed", "passed", "failed", "passed", "restored"];
    assert_eq!(verdicts, expected, "{audits:#}");
    let last = &audits["audits"][4];
    let submitted = format!(
        "submitted: audit 5, tree {}\n",
        last["tree"].as_str().unwrap()
    );
    assert_eq!(last["named"], "submit");
    assert!(run.stdout.ends_with(&submitted), "{run:#?}");
    assert_eq!(ask(&there, &["audit", "verify"])["sound"], true, "{run:#?}");

    let here = sums(&there.rig.path("workspace"));
    assert_eq!(here, sums(&there.workspace()));
    assert!(here.contains("./answer.txt"), "{here}");
    let stamp = std::fs::read_to_string(there.workspace().join("SUBMITTED")).unwrap();
    assert_eq!(stamp.trim_end(), last["generation"]["tree"]);
    let served = there.rig.served();
    assert_eq!(served.answers, 16);
    assert_eq!(run.receipt["spent_pico_usd"], served.pico_usd, "{run:#?}");
    assert_eq!(run.receipt["held_pico_usd"], 0, "{run:#?}");
    there.rig.assert_no_key(&run);
    there.assert_clean();
}
